package wal

import (
	"bytes"
	"io"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/bbolt/errors"
)

// Tx is one transaction. It is for one goroutine.
type Tx struct {
	db       *DB
	raw      *bolt.Tx
	version  *version
	buckets  []*Bucket // opened ones: few, so a linear search is fast
	writable bool
	closed   bool

	// Only in a writing transaction: its number, its copy of the active memtable, and its
	// rows in the order of their writes.
	seq    uint64
	active *memtable
	owned  bool // active is a copy
	wrotes []written
}

// written is a row and its bucket.
type written struct {
	bucket *Bucket
	row    *row
}

// Bucket returns a top-level bucket; nil if there is none.
func (tx *Tx) Bucket(name []byte) *Bucket {
	if b := tx.opened(name, nil); b != nil {
		return b
	}
	if tx.closed || isWALBucket(name) {
		return nil
	}
	if known, ok := tx.db.spaces[string(name)]; ok {
		return tx.open(known, nil)
	}
	if tx.raw.Bucket(name) == nil {
		return nil
	}
	return tx.open(bytes.Clone(name), nil)
}

func (tx *Tx) opened(space, inner []byte) *Bucket {
	for _, b := range tx.buckets {
		if bytes.Equal(b.space, space) && bytes.Equal(b.inner, inner) {
			return b
		}
	}
	return nil
}

// forget forgets a deleted bucket, so that it can be opened again.
func (tx *Tx) forget(b *Bucket) {
	tx.buckets = slices.DeleteFunc(tx.buckets, func(x *Bucket) bool { return x == b })
}

// inner returns an inner bucket, which may be missing.
func (tx *Tx) inner(b *Bucket, name []byte) *Bucket {
	if inner := tx.opened(b.space, name); inner != nil {
		return inner
	}
	return tx.open(b.space, bytes.Clone(name))
}

func (tx *Tx) open(space, inner []byte) *Bucket {
	b := &Bucket{tx: tx, space: space, inner: inner, active: tx.active.layer(space, inner), immutable: tx.version.immutable.layer(space, inner)}
	tx.buckets = append(tx.buckets, b)
	return b
}

// ForEach calls fn with every top-level bucket, in the order of their names.
func (tx *Tx) ForEach(fn func(name []byte, b *Bucket) error) error {
	return tx.raw.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if isWALBucket(name) {
			return nil
		}
		return fn(name, tx.Bucket(name))
	})
}

// Size returns the end of the file's last page, in bytes.
func (tx *Tx) Size() int64 { return tx.raw.Size() }

func (tx *Tx) DB() *DB { return tx.db }

// WriteTo copies the file without its WAL: see [DB.Snapshot].
func (tx *Tx) WriteTo(w io.Writer) (int64, error) { return tx.raw.WriteTo(w) }

// memtable returns the memtable that the transaction may change.
func (tx *Tx) memtable() *memtable {
	if !tx.owned {
		tx.active, tx.owned = tx.active.copy(), true
	}
	return tx.active
}

// wrote records a row for the WAL.
func (tx *Tx) wrote(b *Bucket, r *row) { tx.wrotes = append(tx.wrotes, written{b, r}) }

// replaced removes a row that another row replaces. A row of this transaction need not be in the
// WAL. A dropped bucket must be, also if the transaction creates it again.
func (tx *Tx) replaced(r *row) {
	if r.seq == tx.seq && r.kind != dropped {
		r.stale = true
	}
	tx.memtable().count(r, -1)
}

// newRow allocates a row of the transaction with copies of key and value.
func (tx *Tx) newRow(k kind, key, value []byte) *row {
	return tx.active.arena.row(k, key, value, tx.seq)
}

// Rollback ends the transaction without a change. It returns an error after a commit or another
// rollback.
func (tx *Tx) Rollback() error {
	if tx.closed {
		return errors.ErrTxClosed
	}
	tx.closed = true
	err := tx.raw.Rollback()
	if tx.writable {
		tx.end(false)
	}
	return err
}

// maxExpected bounds the initial capacity for a transaction's rows.
const maxExpected = 16 << 10

// end releases the writer's lock. The rows of a failed transaction are unreferenced and do not
// count.
func (tx *Tx) end(committed bool) {
	if !committed {
		tx.active.arena.size = tx.version.active.allocated
	}
	tx.db.expected, tx.wrotes = min(len(tx.wrotes), maxExpected), nil
	tx.db.writer.Unlock()
}

// Commit appends the changes to the WAL as one record and syncs it. After an error readers see no
// change. If it is unknown whether the record is on disk, nothing can be committed any more; see
// [DB.Ahead].
func (tx *Tx) Commit() (err error) {
	switch {
	case tx.closed:
		return errors.ErrTxClosed
	case !tx.writable:
		return errors.ErrTxNotWritable
	}
	defer func() { tx.end(err == nil) }()
	tx.closed = true
	if err = tx.raw.Rollback(); err != nil { // read-only
		return err
	}
	if len(tx.wrotes) == 0 {
		return nil
	}
	return tx.db.commit(tx)
}

func (db *DB) commit(tx *Tx) error {
	framed, err := db.scratch.encode(tx.seq, tx.wrotes)
	if err != nil {
		return err
	}
	defer db.scratch.poison()
	return db.log(tx, framed, db.options.Ship, true)
}

// log appends the record of a transaction to the WAL, unless the file has none, and installs its version.
func (db *DB) log(tx *Tx, framed []byte, ship Ship, sync bool) error {
	t, entry := tx.memtable(), framed[recordHeader:]
	if !db.options.Unlogged {
		if unsure, err := db.wal.append(tx.seq, framed, ship, sync); err != nil {
			if unsure {
				db.breaks(err)
			}
			return err
		}
		db.did.records.Add(1)
		db.did.recordBytes.Add(uint64(len(framed)))
		t.walBytes += len(framed)
	}
	if sync || db.options.Unlogged {
		db.durable.Store(tx.seq)
	}
	t.allocated = t.arena.size
	t.advance(tx.seq, entry)
	if db.follower != nil {
		db.follower(tx.seq, entry)
	}
	db.installVersion(t)
	return nil
}

func newTx(db *DB, raw *bolt.Tx, s *version) *Tx {
	return &Tx{db: db, raw: raw, version: s, active: s.active}
}

// layersOf returns the layers of a memtable in the order in which they are flushed.
func layersOf(t *memtable) []*layer {
	return sortedFunc(maps.Values(t.layers))
}
