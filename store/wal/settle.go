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

// A file is settled if all rows are in its buckets and its own bucket names no WAL. Then it is complete
// without a WAL. It is settled after Close, while it is copied, and before a WAL is begun. The files
// of a WAL are created and removed only while the file is settled, so a file that names a WAL has
// it.

// ready prepares a transaction that writes: it begins a WAL if there is none, and waits while both
// memtables are full. A commit waits for nothing else.
func (db *DB) ready() error {
	if err := db.broken(); err != nil {
		return err
	}
	if db.wal == nil && !db.options.Unlogged {
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

// flushHeld flushes all rows; the caller holds the writer's lock. A zero deadline is none.
func (db *DB) flushHeld(deadline time.Time) error {
	for s := db.version.Load(); !s.empty(); s = db.version.Load() {
		db.rotateNow()
		_, err := db.flushChunk()
		if err == nil {
			err = db.broken() // it may have been too broken to rotate
		}
		if err != nil {
			if deadline.IsZero() {
				db.startFlushing() // it tries again
			}
			return err
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			return errLate
		}
	}
	return nil
}

// settle settles the file; the caller holds the writer's lock.
func (db *DB) settle(deadline time.Time) error {
	if err := db.broken(); err != nil {
		return err
	}
	if err := db.flushHeld(deadline); err != nil {
		return err
	}
	// gofail: var logFolded struct{}
	db.pass("logFolded")
	last := db.Point()
	settled := false
	if err := db.raw.View(func(raw *bolt.Tx) (err error) {
		settled, err = isSettled(raw.Bucket(walBucket), last.Transaction)
		return err
	}); err != nil || settled {
		return err
	}
	if err := db.update(func(raw *bolt.Tx) error { return markSettled(raw, last) }); err != nil {
		return err
	}
	db.durable.Store(last.Transaction) // of a standby, which may not have synced the WAL for it
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

func markSettled(raw *bolt.Tx, last Point) error {
	head := raw.Bucket(walBucket)
	if id := head.Get(rowID); id != nil {
		if err := errors.Join(head.Put(rowDone, slices.Clone(id)), head.Delete(rowID)); err != nil {
			return err
		}
	}
	return flushed(raw, last)
}

// beginWAL creates the files of a WAL beside a settled file, then notes the WAL in the file.
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

// Settle flushes all rows. The file is complete without a WAL then, until the next transaction that
// writes.
func (db *DB) Settle() error {
	db.writer.Lock()
	defer db.writer.Unlock()
	return db.settle(time.Time{})
}

const (
	// settleBytes may be flushed while commits wait, for some milliseconds. Before, up to settleRounds
	// flushes run while commits go on.
	settleBytes  = 256 << 10
	settleRounds = 8
)

// Snapshot opens a read transaction of the settled file, so that a copy of it is complete without a
// WAL. Commits wait while the last rows are flushed.
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

// Replaces notes that this file is to replace the one at path, whose WAL is not needed then.
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

// clear removes a WAL beside a settled file if it is flushed or empty. It refuses one of another file.
func (db *DB) clear() error {
	left, err := db.leftovers()
	if err != nil || len(left) == 0 {
		return err
	}
	// If a process was killed here, the file may be settled or renamed in the page cache alone, and
	// the WAL would be needed after a power cut.
	if err := errors.Join(db.raw.Update(func(*bolt.Tx) error { return nil }), syncDir(filepath.Dir(db.path))); err != nil {
		return fmt.Errorf("make sure that the log is not needed: %w", err)
	}
	return db.discardWAL()
}

// leftovers are the files to remove.
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
