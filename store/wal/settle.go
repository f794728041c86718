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

// A file is settled where all is in its buckets and it says that it has no WAL: then it
// is whole alone, and what lies beside it does not matter. It is settled when it was
// closed in order, for a moment when it is copied, and before a WAL is begun. A WAL's
// files are made, and removed, only while the file says that it has none; so there is no
// moment at which it says that it has one and the files are not there.

// ready makes sure that a transaction can be written: that there is a WAL, and that
// its memtable is not to be full while the one before is not flushed. That is the one thing
// that a commit waits for.
func (db *DB) ready() error {
	if err := db.broken(); err != nil {
		return err
	}
	if db.options.Unlogged {
		return nil
	}
	if db.wal == nil {
		if err := db.settle(time.Time{}); err != nil {
			return fmt.Errorf("fold the log that was there: %w", err)
		}
		if err := db.beginWAL(); err != nil {
			return fmt.Errorf("begin a log: %w", err)
		}
	}
	for s := db.version.Load(); s.immutable != nil && db.overdue(s.active); s = db.version.Load() {
		if _, err := db.flushChunk(); err != nil {
			return fmt.Errorf("fold the log: %w", err)
		}
	}
	return nil
}

var errLate = errors.New("it takes too long")

// flushHeld flushes all there is while nobody writes. A deadline of zero is none.
func (db *DB) flushHeld(deadline time.Time) error {
	for s := db.version.Load(); !s.empty(); s = db.version.Load() {
		db.rotateNow()
		if _, err := db.flushChunk(); err != nil {
			if deadline.IsZero() {
				db.startFlushing() // goes on trying
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
	if err := db.flushHeld(deadline); err != nil {
		return err
	}
	// gofail: var logFolded struct{}
	db.pass("logFolded")
	last := db.version.Load().active.last
	settled := false
	if err := db.raw.View(func(raw *bolt.Tx) (err error) {
		settled, err = isSettled(raw.Bucket(walBucket), last)
		return err
	}); err != nil || settled {
		return err
	}
	if err := db.update(func(raw *bolt.Tx) error { return markSettled(raw, last) }); err != nil {
		return err
	}
	// gofail: var logSettled struct{}
	db.pass("logSettled")
	if db.wal != nil {
		db.wal.close()
		db.wal = nil
	}
	_ = db.discardWAL() // the next start does, too
	return nil
}

func isSettled(head *bolt.Bucket, last uint64) (bool, error) {
	until, err := number(head, rowFlushed)
	return until == last && head.Get(rowID) == nil, err
}

func markSettled(raw *bolt.Tx, last uint64) error {
	head := raw.Bucket(walBucket)
	if id := head.Get(rowID); id != nil {
		if err := errors.Join(head.Put(rowDone, slices.Clone(id)), head.Delete(rowID)); err != nil {
			return err
		}
	}
	return flushed(raw, last)
}

// beginWAL makes the files of a WAL beside a settled file, which says so then.
func (db *DB) beginWAL() error {
	if err := db.discardWAL(); err != nil {
		return err
	}
	l, err := createWAL(db.path, db.options, !db.raw.NoSync, &db.did)
	if err != nil {
		return err
	}
	// gofail: var logMade struct{}
	db.pass("logMade")
	if err := db.update(func(raw *bolt.Tx) error { return raw.Bucket(walBucket).Put(rowID, l.id[:]) }); err != nil {
		l.close()
		return err
	}
	// gofail: var logBegun struct{}
	db.pass("logBegun")
	db.wal = l
	return nil
}

// Settle flushes all there is, after which the file is whole alone until the next
// transaction that writes.
func (db *DB) Settle() error {
	db.writer.Lock()
	defer db.writer.Unlock()
	return db.settle(time.Time{})
}

const (
	// settleBytes may be flushed while commits wait, a few milliseconds' worth, and
	// settleRounds is how often more than that is flushed before, while they go on.
	settleBytes  = 256 << 10
	settleRounds = 8
)

// Snapshot opens a transaction that reads, of a file that is settled: a copy of it is
// whole alone. Commits wait for as much to be flushed as was written a moment before.
func (db *DB) Snapshot() (*Tx, error) {
	for range settleRounds {
		if t := db.Memtables(); t.Active+t.Immutable <= settleBytes {
			break
		}
		if err := db.flushNow(); err != nil {
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

// Replaces notes that this file will take the place of the one at path, whose WAL is
// not needed then.
func (db *DB) Replaces(path string) error {
	var ids []byte
	for slot := range 2 {
		switch id, err := readID(walPath(path, slot)); {
		case err == nil:
			ids = append(ids, id[:]...)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNoHeader):
			return unread(walPath(path, slot), err)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return db.update(func(raw *bolt.Tx) error { return raw.Bucket(walBucket).Put(rowDone, ids) })
}

func readID(path string) (id walID, err error) {
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

// clear removes what lies beside a settled file where it is known to be flushed, or
// holds nothing. The WAL of another file must not be lost.
func (db *DB) clear() error {
	left, err := db.leftovers()
	if err != nil || len(left) == 0 {
		return err
	}
	// That it is settled, or has its name, may be known to the system alone, of a process
	// that was killed there: after a power cut the WAL would be needed still.
	if err := errors.Join(db.raw.Update(func(*bolt.Tx) error { return nil }), syncDir(filepath.Dir(db.path))); err != nil {
		return fmt.Errorf("make sure that the log is not needed: %w", err)
	}
	return db.discardWAL()
}

// leftovers are the files to be removed.
func (db *DB) leftovers() (paths []string, err error) {
	if db.raw.IsReadOnly() {
		return nil, nil
	}
	err = db.raw.View(func(raw *bolt.Tx) error {
		head := raw.Bucket(walBucket)
		if head.Get(rowID) != nil {
			return nil
		}
		for slot := range 2 {
			path := walPath(db.path, slot)
			switch t, err := readWAL(path); {
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

func hasID(ids []byte, id walID) bool {
	for ; len(ids) >= idSize; ids = ids[idSize:] {
		if walID(ids[:idSize]) == id {
			return true
		}
	}
	return false
}
