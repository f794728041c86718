package wal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
)

// A file is settled where all is in its buckets and it says that it has no log: then it
// is whole alone, and what lies beside it does not matter. It is settled when it was
// closed in order, for a moment when it is copied, and before a log is begun. A log's
// files are made, and removed, only while the file says that it has none; so there is no
// moment at which it says that it has one and the files are not there.

// ready makes sure that a transaction can be written: that there is a log, and that
// its table is not to be full while the one before is not folded. That is the one thing
// that a commit waits for.
func (db *DB) ready() error {
	if err := db.broken(); err != nil {
		return err
	}
	if db.options.Unlogged {
		return nil
	}
	if db.log == nil {
		if err := db.settle(time.Time{}); err != nil {
			return fmt.Errorf("fold the log that was there: %w", err)
		}
		if err := db.beginLog(); err != nil {
			return fmt.Errorf("begin a log: %w", err)
		}
	}
	for s := db.state.Load(); s.frozen != nil && db.overdue(s.active); s = db.state.Load() {
		if _, err := db.foldChunk(); err != nil {
			return fmt.Errorf("fold the log: %w", err)
		}
	}
	return nil
}

var errLate = errors.New("it takes too long")

// foldHeld folds all there is while nobody writes. A deadline of zero is none.
func (db *DB) foldHeld(deadline time.Time) error {
	for s := db.state.Load(); !s.empty(); s = db.state.Load() {
		db.freezeNow()
		if _, err := db.foldChunk(); err != nil {
			if deadline.IsZero() {
				db.startFolding() // goes on trying
			}
			return err
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			return errLate
		}
	}
	return nil
}

// settle makes the file whole alone while nobody writes.
func (db *DB) settle(deadline time.Time) error {
	if err := db.broken(); err != nil {
		return err
	}
	if err := db.foldHeld(deadline); err != nil {
		return err
	}
	// gofail: var logFolded struct{}
	db.pass("logFolded")
	last := db.state.Load().active.last
	settled := false
	if err := db.raw.View(func(raw *bolt.Tx) (err error) {
		settled, err = isSettled(raw.Bucket(logName), last)
		return err
	}); err != nil || settled {
		return err
	}
	if err := db.update(func(raw *bolt.Tx) error { return markSettled(raw, last) }); err != nil {
		return err
	}
	// gofail: var logSettled struct{}
	db.pass("logSettled")
	if db.log != nil {
		db.log.close()
		db.log = nil
	}
	_ = db.discardLog() // the next start does, too
	return nil
}

func isSettled(head *bolt.Bucket, last uint64) (bool, error) {
	until, err := number(head, rowFolded)
	return until == last && head.Get(rowID) == nil, err
}

func markSettled(raw *bolt.Tx, last uint64) error {
	head := raw.Bucket(logName)
	if id := head.Get(rowID); id != nil {
		if err := errors.Join(head.Put(rowDone, slices.Clone(id)), head.Delete(rowID)); err != nil {
			return err
		}
	}
	return folded(raw, last)
}

// beginLog makes the files of a log beside a settled file, which says so then.
func (db *DB) beginLog() error {
	if err := db.discardLog(); err != nil {
		return err
	}
	l, err := createLog(db.path, db.options, !db.raw.NoSync, &db.did)
	if err != nil {
		return err
	}
	// gofail: var logMade struct{}
	db.pass("logMade")
	if err := db.update(func(raw *bolt.Tx) error { return raw.Bucket(logName).Put(rowID, l.id[:]) }); err != nil {
		l.close()
		return err
	}
	// gofail: var logBegun struct{}
	db.pass("logBegun")
	db.log = l
	return nil
}

// Settle folds all there is, after which the file is whole alone until the next
// transaction that writes.
func (db *DB) Settle() error {
	db.writer.Lock()
	defer db.writer.Unlock()
	return db.settle(time.Time{})
}

const (
	// settleBytes may be folded while commits wait, a few milliseconds' worth, and
	// settleRounds is how often more than that is folded before, while they go on.
	settleBytes  = 256 << 10
	settleRounds = 8
)

// Snapshot opens a transaction that reads, of a file that is settled: a copy of it is
// whole alone. Commits wait for as much to be folded as was written a moment before.
func (db *DB) Snapshot() (*Tx, error) {
	for range settleRounds {
		if t := db.Tables(); t.Active+t.Frozen <= settleBytes {
			break
		}
		if err := db.foldNow(); err != nil {
			return nil, fmt.Errorf("fold the log: %w", err)
		}
	}
	db.writer.Lock()
	defer db.writer.Unlock()
	if err := db.settle(time.Time{}); err != nil {
		return nil, fmt.Errorf("fold the log: %w", err)
	}
	return db.Begin(false)
}

// Replaces notes that this file will take the place of the one at path, whose log is
// not needed then.
func (db *DB) Replaces(path string) error {
	var ids []byte
	for slot := range 2 {
		switch id, err := readID(logPath(path, slot)); {
		case err == nil:
			ids = append(ids, id[:]...)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNoHeader):
			return unread(logPath(path, slot), err)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return db.update(func(raw *bolt.Tx) error { return raw.Bucket(logName).Put(rowDone, ids) })
}

func readID(path string) (id logID, err error) {
	f, err := os.Open(path)
	if err != nil {
		return id, err
	}
	defer f.Close()
	b := make([]byte, headerSize)
	n, err := f.ReadAt(b, 0)
	switch {
	case n == headerSize:
	case errors.Is(err, io.EOF):
		return id, errNoHeader
	default:
		return id, err
	}
	id, _, err = cutHeader(b)
	return id, err
}

// clear removes what lies beside a settled file where it is known to be folded, or
// holds nothing. The log of another file must not be lost.
func (db *DB) clear() error {
	left, err := db.leftovers()
	if err != nil || len(left) == 0 {
		return err
	}
	// That it is settled, or has its name, may be known to the system alone, of a process
	// that was killed there: after a power cut the log would be needed still.
	if err := errors.Join(db.raw.Update(func(*bolt.Tx) error { return nil }), syncDir(filepath.Dir(db.path))); err != nil {
		return fmt.Errorf("make sure that the log is not needed: %w", err)
	}
	return db.discardLog()
}

// leftovers are the files to be removed.
func (db *DB) leftovers() (paths []string, err error) {
	if db.raw.IsReadOnly() {
		return nil, nil
	}
	err = db.raw.View(func(raw *bolt.Tx) error {
		head := raw.Bucket(logName)
		if head.Get(rowID) != nil {
			return nil
		}
		for slot := range 2 {
			path := logPath(db.path, slot)
			switch t, err := readLog(path); {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil && !errors.Is(err, errNoHeader):
				return unread(path, err)
			case err == nil && len(t.records) > 0 && !hasID(head.Get(rowDone), t.id):
				return fmt.Errorf("%s is the log of another file, and has transactions that are nowhere else: move it away with the file that it belongs to, or put that back", path)
			}
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

func hasID(ids []byte, id logID) bool {
	for ; len(ids) >= idSize; ids = ids[idSize:] {
		if logID(ids[:idSize]) == id {
			return true
		}
	}
	return false
}
