package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// A standby is a copy of a file that applies the entries of the file's transactions, in order. An entry
// has rows and no operations, so the standby needs no code that knows what rows mean, and has the same
// rows after the same transaction. When they reach its buckets does not matter.

// Point is a place in the history of a file and of its copies.
type Point struct {
	// Transaction is the number of the last transaction. Numbers have no gaps, and go on in a copy.
	Transaction uint64
	// Sum is the CRC-32C of the headers of all entries up to there, which have the checksums of their
	// content: two files with the same transaction and sum applied the same entries.
	Sum uint32
}

func (t *memtable) point() Point { return Point{t.last, t.sum} }

// Next is the point after the next transaction, whose entry this is.
func (p Point) Next(entry []byte) Point {
	return Point{p.Transaction + 1, crc32.Update(p.Sum, castagnoli, entry[:entryHeader])}
}

// advance moves the memtable's point to the next transaction.
func (t *memtable) advance(seq uint64, entry []byte) {
	t.last, t.sum = seq, t.point().Next(entry).Sum
}

// Point is the point of the last transaction that readers see.
func (db *DB) Point() Point { return db.version.Load().active.point() }

// Point is the point of the last transaction that the snapshot has.
func (tx *Tx) Point() Point { return tx.version.active.point() }

// flushedPoint reads the point of the buckets. A file whose last flush was by an Edda without sums
// begins its sum anew.
func flushedPoint(head *bolt.Bucket) (last uint64, sum uint32, err error) {
	last, err = number(head, rowFlushed)
	v := head.Get(rowSum)
	switch {
	case err != nil || v == nil:
		return last, 0, err
	case len(v) != 8+4:
		return last, 0, damaged("the row %s has %d bytes", rowSum, len(v))
	case binary.BigEndian.Uint64(v) != last:
		return last, 0, nil
	}
	return last, binary.BigEndian.Uint32(v[8:]), nil
}

// Ship begins to ship the entry of a transaction, for [DB.Apply] of a standby, and returns without
// waiting. The entry is valid until wait has returned. wait is called once, after the local sync: the
// transaction is durable when both have succeeded. After an error of wait nothing can be written any
// more, as after a failed sync; see [DB.Ahead].
type Ship func(seq uint64, entry []byte) (wait func() error)

// Follow calls fn with the entry of each later transaction, before readers see it; nil ends that. The
// entry is valid until fn returns. Commits wait for fn.
func (db *DB) Follow(fn func(seq uint64, entry []byte)) {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.follower = fn
}

// Causes for which [DB.Apply] refuses an entry. Any other error is of this file, not of the entry.
var (
	ErrGap     = errors.New("transactions before it are missing")
	ErrUnknown = errors.New("a newer version of edda wrote it")
	ErrDamaged = errors.New("it is not what was written")
)

// Apply commits the entry of the next transaction, as another file has it. It ignores a transaction that
// the file has already. After an error readers see no change.
func (db *DB) Apply(seq uint64, entry []byte) (err error) {
	db.writer.Lock()
	switch last := db.Point().Transaction; {
	case seq <= last:
		db.writer.Unlock()
		return nil
	case seq > last+1:
		db.writer.Unlock()
		return fmt.Errorf("apply transaction %d after %d: %w", seq, last, ErrGap)
	}
	tx, err := db.beginHeld()
	if err != nil {
		db.writer.Unlock()
		return err
	}
	if err := tx.decode(entry); err != nil {
		_ = tx.Rollback() // unlocks the writer
		return fmt.Errorf("apply transaction %d: %w", seq, err)
	}
	defer func() { tx.end(err == nil) }()
	tx.closed = true
	if err := tx.raw.Rollback(); err != nil { // read-only
		return err
	}
	defer db.scratch.poison()
	return db.log(tx, db.scratch.hold(entry), nil, !db.options.Standby)
}

// decode writes the rows of an entry into the transaction's memtable.
func (tx *Tx) decode(entry []byte) error {
	rows, err := content(tx.seq, entry, &tx.db.scratch.rows)
	if err == nil {
		err = tx.replay(tx.seq, rows)
	}
	switch {
	case err == nil:
		return nil
	case isOtherVersion(err), errors.Is(err, errNoBucket):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// Sync makes all applied transactions durable. After an error nothing can be written any more.
func (db *DB) Sync() error {
	db.writer.Lock()
	defer db.writer.Unlock()
	if err := db.broken(); err != nil {
		return err
	}
	return db.syncUpTo(db.Point().Transaction)
}

// Promote ends a standby, and returns its file as one that [DB.Apply] does not write, with other options. The file, its
// WAL and the memtables stay as they are, so it takes one sync, where Close and [Load] take a flush. Nobody may read or
// use db any more; after an error, but for Close.
func (db *DB) Promote(o Options) (*DB, error) {
	o.validate()
	o.File = db.options.File
	db.writer.Lock()
	defer db.writer.Unlock()
	db.endFlushing()
	if err := db.broken(); err != nil {
		return nil, err
	}
	if err := db.syncUpTo(db.Point().Transaction); err != nil {
		return nil, err
	}
	if db.wal == nil && db.Cut() != nil { // nobody but a standby opens what was cut off
		if err := db.settle(time.Time{}); err != nil {
			return nil, err
		}
	}
	next := &DB{raw: db.raw, path: db.path, options: o, spaces: db.spaces, wal: db.wal, expected: db.expected, flushing: db.flushing,
		packer: Packer{Plain: o.Plain}, quit: make(chan struct{}), pauses: newPauses()}
	next.version.Store(db.version.Load())
	next.durable.Store(db.durable.Load())
	if next.wal != nil {
		next.wal.did, next.wal.pass = &next.did, o.passed
	}
	db.breaks(berrors.ErrDatabaseNotOpen)
	db.wal = nil
	if next.version.Load().immutable != nil {
		next.startFlushing()
	}
	return next, nil
}

// syncUpTo is Sync up to the last transaction in the WAL; the caller holds the writer's lock.
func (db *DB) syncUpTo(last uint64) error {
	if db.durable.Load() >= last || db.wal == nil {
		return nil
	}
	if err := db.wal.synced(db.wal.slot); err != nil {
		err = fmt.Errorf("sync the log: %w", err)
		db.breaks(err)
		return err
	}
	db.durable.Store(last)
	return nil
}
