package wal

import (
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"

	"edda/internal/datasync"
)

// A process that ends between the two halves of a commit leaves a transaction in the WAL that was perhaps
// never shipped. Before the file can follow the log that it ships to, that transaction must go.

// ErrNoRewind says that [DB.Rewind] cannot bring the file back to a point. Nothing has changed then.
var ErrNoRewind = errors.New("the file cannot be rewound")

// Rewind cuts the last transaction off the WAL, and the file is at an earlier point then: the one before that
// transaction, or it is [ErrNoRewind]. So it is if the transaction may be in the buckets, or if the file was
// written since it was opened. After any other error nothing can be written until the file is opened
// again, with the transaction or without it; so it is after a crash. Open snapshots still have its rows.
func (db *DB) Rewind(to Point) error {
	db.writer.Lock()
	defer db.writer.Unlock()
	if err := db.broken(); err != nil {
		return err
	}
	db.flushes.Lock()
	defer db.flushes.Unlock()
	if db.wal != nil || db.version.Load().immutable != nil {
		return fmt.Errorf("%w: it was written since it was opened", ErrNoRewind)
	}
	return db.raw.View(func(raw *bolt.Tx) error {
		path, at, size, err := db.findLast(raw, to)
		if err != nil {
			return err
		}
		if err := db.erase(path, at, size); err != nil {
			err = fmt.Errorf("cut transaction %d off the log: %w", to.Transaction+1, err)
			db.breaks(err)
			return err
		}
		active, _, err := db.loadMemtable(raw)
		if err == nil && active.point() != to {
			err = damaged("without transaction %d it is at transaction %d (%08x), want %d (%08x)", to.Transaction+1, active.last, active.sum, to.Transaction, to.Sum)
		}
		if err != nil {
			db.breaks(err)
			return err
		}
		db.durable.Store(active.last)
		db.change(func(s *version) bool {
			s.active = active
			return false
		})
		return nil
	})
}

// findLast finds the record of the last transaction, which must be the one after a point, in the WAL alone.
func (db *DB) findLast(raw *bolt.Tx, to Point) (path string, at, size int64, err error) {
	head, last := raw.Bucket(walBucket), db.Point()
	active, before, err := db.loadMemtable(raw)
	if err != nil {
		return "", 0, 0, err
	}
	if active.point() != last {
		return "", 0, 0, damaged("it ends with transaction %d (%08x) and not with %d (%08x)", active.last, active.sum, last.Transaction, last.Sum)
	}
	inBuckets, err := number(head, rowFlushing)
	if err != nil {
		return "", 0, 0, err
	}
	if flushed, err := number(head, rowFlushed); err != nil {
		return "", 0, 0, err
	} else if max(flushed, inBuckets) >= last.Transaction {
		return "", 0, 0, fmt.Errorf("%w: the rows of transaction %d may be in the buckets", ErrNoRewind, last.Transaction)
	}
	if before != to {
		return "", 0, 0, fmt.Errorf("%w: before its last transaction it was at %d (%08x), and not at %d (%08x)", ErrNoRewind, before.Transaction, before.Sum, to.Transaction, to.Sum)
	}
	files, err := db.readFiles(walID(head.Get(rowID)))
	if err != nil {
		return "", 0, 0, err
	}
	for _, t := range files {
		if n := len(t.records); n == 0 || t.records[n-1].seq != last.Transaction {
			continue
		}
		at = headerSize
		for _, r := range t.records {
			at, size = at+size, int64(recordHeader+len(r.entry))
		}
		return t.path, at, size, nil
	}
	return "", 0, 0, damaged("transaction %d is in neither of its files", last.Transaction)
}

// erase overwrites a part of a file of the WAL with zeros, which is durable when it returns. A record that is
// erased in part is a torn one.
func (db *DB) erase(path string, at, size int64) error {
	f, err := db.options.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for until := at + size; err == nil && at < until; at += int64(len(zeros)) {
		_, err = f.WriteAt(zeros[:min(int64(len(zeros)), until-at)], at)
		db.pass("logErased")
	}
	if err == nil && !db.raw.NoSync {
		err = datasync.Sync(f)
	}
	return errors.Join(err, f.Close())
}
