package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"
)

// load reads the WAL of a file, and removes the remains of a flushed one.
func (db *DB) load() error {
	if err := db.prepare(); err != nil {
		return err
	}
	if err := db.clear(); err != nil {
		return err
	}
	return db.raw.View(func(raw *bolt.Tx) error {
		if err := db.names(raw); err != nil {
			return err
		}
		head := raw.Bucket(walBucket)
		if err := db.syncFiles(head); err != nil {
			return err
		}
		active, _, err := db.loadMemtable(raw)
		if err != nil {
			return err
		}
		db.durable.Store(active.last) // the files were synced
		db.version.Store(&version{active: active})
		return nil
	})
}

// loadMemtable returns a memtable with the rows of the WAL, and the point before the last transaction in it.
func (db *DB) loadMemtable(raw *bolt.Tx) (active *memtable, before Point, err error) {
	t := newMemtable()
	if t.last, t.sum, err = flushedPoint(raw.Bucket(walBucket)); err != nil {
		return nil, before, err
	}
	tx := newTx(db, raw, &version{active: t})
	_, err = db.replay(raw, func(seq uint64, entry, rows []byte) error {
		err := tx.replay(seq, rows)
		t := tx.memtable()
		t.walBytes, t.allocated = t.walBytes+len(entry), t.arena.size
		before = t.point()
		t.advance(seq, entry)
		return err
	})
	return tx.active, before, err
}

// names records the top-level buckets. They never change.
func (db *DB) names(raw *bolt.Tx) error {
	db.spaces = map[string][]byte{}
	return raw.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if !isWALBucket(name) {
			db.spaces[string(name)] = bytes.Clone(name)
		}
		return nil
	})
}

func (db *DB) prepare() error {
	there := false
	if err := db.raw.View(func(raw *bolt.Tx) error {
		there = raw.Bucket(walBucket) != nil
		return nil
	}); err != nil || there {
		return err
	}
	return db.raw.Update(func(raw *bolt.Tx) error {
		if _, err := raw.CreateBucket(walBucket); err != nil || db.options.From == (Point{}) {
			return err
		}
		return flushed(raw, db.options.From)
	})
}

// errNoBucket is of rows of a bucket that the file does not have.
var errNoBucket = errors.New("there is no bucket")

// replay applies the rows of an entry to the memtable.
func (tx *Tx) replay(seq uint64, rows []byte) error {
	tx.seq, tx.writable = seq, true
	err := eachRow(rows, func(space, inner []byte, k kind, key, value []byte) error {
		b := tx.Bucket(space)
		if b == nil {
			return fmt.Errorf("%w %q", errNoBucket, space)
		}
		if inner != nil {
			b = tx.inner(b, inner)
		}
		switch k {
		case put:
			b.set(put, key, value)
		case tombstone:
			b.erase(key)
		case made:
			b.set(made, key, nil)
		case dropped:
			b.drop(key)
		}
		return nil
	})
	tx.wrotes = tx.wrotes[:0]
	return err
}

// damaged adds what to do about a damaged WAL.
func damaged(format string, args ...any) error {
	return fmt.Errorf("the log is damaged: %w: restore a backup", fmt.Errorf(format, args...))
}

// versionError says that undamaged content has an unknown version.
type versionError struct {
	what     string
	is, want uint32
}

// otherVersion returns the error for an unknown version.
func otherVersion(what string, is, want uint32) error {
	if is == 0 {
		return errNoVersion
	}
	return &versionError{what, is, want}
}

// errNoVersion says that there is no version, because versions start with 1.
var errNoVersion = errors.New("its version is 0, which no edda has written")

func (e *versionError) Error() string {
	if e.is > e.want {
		return fmt.Sprintf("was written by a newer edda (%s version %d, this one reads %d): use that version, or restore a backup", e.what, e.is, e.want)
	}
	return fmt.Sprintf("was written by an older edda (%s version %d, this one reads %d): open the store with that version and stop it in good order, so that nothing is left in the log, or restore a backup", e.what, e.is, e.want)
}

func isOtherVersion(err error) bool {
	_, is := errors.AsType[*versionError](err)
	return is
}

// unread adds what to do about a WAL file that cannot be read.
func unread(path string, err error) error {
	switch {
	case isOtherVersion(err):
		return fmt.Errorf("%s %w", path, err)
	case errors.Is(err, errNoHeader), errors.Is(err, errNoVersion):
		return damaged("%s: %w", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the log cannot be read: %w: change its owner to that of the store's file, who is to run edda", err)
	}
	return fmt.Errorf("the log cannot be read: %w: nothing says that it is damaged; look after the disk, and start again", err)
}

// replayed is called with the rows of a transaction.
type replayed func(seq uint64, entry, rows []byte) error

func (fn replayed) pass(seq uint64, entry []byte) error {
	rows, err := content(seq, entry, new([]byte))
	if err == nil {
		err = fn(seq, entry, rows)
	}
	switch {
	case isOtherVersion(err):
		return fmt.Errorf("transaction %d of the log %w", seq, err)
	case err != nil:
		return damaged("transaction %d: %w", seq, err)
	}
	return nil
}

// replay passes the transactions of a file's WAL in order. A missing or altered one is an error. A
// torn last one is not, because its writer got no answer.
func (db *DB) replay(raw *bolt.Tx, fn replayed) (last uint64, err error) {
	head := raw.Bucket(walBucket)
	flushed, err := number(head, rowFlushed)
	switch id := head.Get(rowID); {
	case err != nil:
		return 0, err
	case id == nil:
		return flushed, nil
	case len(id) != idSize:
		return 0, damaged("the row %s has %d bytes", rowID, len(id))
	default:
		return db.eachInFiles(walID(id), flushed, fn)
	}
}

func number(b *bolt.Bucket, name []byte) (uint64, error) {
	v := b.Get(name)
	if v == nil {
		return 0, nil // nothing was written or flushed yet
	}
	if len(v) != 8 {
		return 0, damaged("the row %s has %d bytes", name, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// eachInFiles passes the transactions in the files of the WAL with that id.
func (db *DB) eachInFiles(id walID, flushed uint64, fn replayed) (last uint64, err error) {
	files, err := db.readFiles(id)
	if err != nil {
		return 0, err
	}
	first, second := &files[0], &files[1]
	first.after(flushed)
	second.after(flushed)
	if len(second.records) > 0 && (len(first.records) == 0 || second.records[0].seq < first.records[0].seq) {
		first, second = second, first
	}
	last = flushed
	if len(first.records) > 0 && first.records[0].seq > flushed+1 {
		if err := second.stopsAt(flushed + 1); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("its log begins with transaction %d, and the file ends with %d: an older copy of the file lies in its place; put the newest one back, or restore a backup", first.records[0].seq, flushed)
	}
	for i, t := range [2]*walText{first, second} {
		if len(t.records) > 0 && (t.records[0].seq != last+1 || i == 1 && !t.follows(first)) {
			return 0, damaged("transaction %d is missing, or not what was written, and %d follows", last+1, t.records[0].seq)
		}
		for _, r := range t.records {
			if err := fn.pass(r.seq, r.entry); err != nil {
				return 0, err
			}
			last = r.seq
		}
	}
	for _, t := range []*walText{first, second} {
		err := t.stopsAt(last + 1)
		if err != nil && !db.options.Standby && !db.options.ReadStandby {
			return last, err
		}
		if err != nil || t.cutOff(last) {
			db.cut.Store(&Cut{Path: t.path, After: last})
		}
	}
	return last, nil
}

// Cut says that the end of the WAL was cut off.
type Cut struct {
	Path  string // of the truncated file
	After uint64 // the last remaining transaction
}

// Cut is not nil if the end of the WAL was cut off when the file was opened. The last commits may
// then be lost.
func (db *DB) Cut() *Cut { return db.cut.Load() }

// follows reports whether the first record names the last record of another file.
func (t *walText) follows(before *walText) bool {
	n := len(before.records)
	return n == 0 || t.records[0].prev == before.records[n-1].sum
}

// stopsAt returns an error if a synced record follows the valid records.
func (t *walText) stopsAt(seq uint64) error {
	if found, ok := t.beyond(seq); ok {
		return damaged("transaction %d is missing in %s, or not what was written, and %d follows", seq, t.path, found)
	}
	return nil
}

// readFiles reads both files of a WAL.
func (db *DB) readFiles(id walID) (files [2]walText, err error) {
	for slot := range files {
		path := walPath(db.path, slot)
		t, err := readWAL(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return files, fmt.Errorf("%s is missing, which has the last transactions: put it where it was, beside the file, or restore a backup", path)
		case err != nil:
			return files, unread(path, err)
		case t.id != id:
			return files, fmt.Errorf("%s is the log of another file: put the one back that was beside this one, or restore a backup", path)
		case t.slot != slot:
			return files, fmt.Errorf("%s is what %s was: give each of the two its name again, or restore a backup", path, walPath(db.path, t.slot))
		}
		files[slot] = t
	}
	return files, nil
}

// syncFiles syncs the WAL of a killed process, which may be in the page cache only, before anything
// relies on it.
func (db *DB) syncFiles(head *bolt.Bucket) error {
	if head.Get(rowID) == nil || db.raw.IsReadOnly() || db.raw.NoSync {
		return nil
	}
	for slot := range 2 {
		path := walPath(db.path, slot)
		if err := syncFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unread(path, err)
		}
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
