package changelog

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
	state    *state
	buckets  []*Bucket // that were opened: few, so that looking through them is fast
	writable bool
	closed   bool

	// Of one that writes: its number, the active table as it changes it, and its
	// rows in the order in which they were written.
	seq    uint64
	active *table
	owned  bool // active is a copy
	wrotes []written
}

// written is a row and the bucket that it is in.
type written struct {
	bucket *Bucket
	row    *row
}

// Bucket is a top-level bucket; nil where there is none.
func (tx *Tx) Bucket(name []byte) *Bucket {
	if b := tx.opened(name, nil); b != nil {
		return b
	}
	if tx.closed || isLog(name) {
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

// forget lets a bucket that was deleted be opened anew.
func (tx *Tx) forget(b *Bucket) {
	tx.buckets = slices.DeleteFunc(tx.buckets, func(x *Bucket) bool { return x == b })
}

// inner is a bucket within another, whether or not it is there.
func (tx *Tx) inner(b *Bucket, name []byte) *Bucket {
	if inner := tx.opened(b.space, name); inner != nil {
		return inner
	}
	return tx.open(b.space, bytes.Clone(name))
}

func (tx *Tx) open(space, inner []byte) *Bucket {
	b := &Bucket{tx: tx, space: space, inner: inner, active: tx.active.layer(space, inner), frozen: tx.state.frozen.layer(space, inner)}
	tx.buckets = append(tx.buckets, b)
	return b
}

// CreateBucket makes a top-level bucket, in the file at once: there are few.
func (tx *Tx) CreateBucket(name []byte) (*Bucket, error) {
	if isLog(name) || bytes.IndexByte(name, 0) >= 0 {
		return nil, errors.ErrBucketNameRequired
	}
	if _, err := tx.raw.CreateBucket(name); err != nil {
		return nil, err
	}
	return tx.Bucket(name), nil
}

// ForEach calls fn with every top-level bucket, in the order of their names.
func (tx *Tx) ForEach(fn func(name []byte, b *Bucket) error) error {
	return tx.raw.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if isLog(name) {
			return nil
		}
		return fn(name, tx.Bucket(name))
	})
}

// Size is how far the file's pages come, in bytes.
func (tx *Tx) Size() int64 { return tx.raw.Size() }

// DB is what it is a transaction of.
func (tx *Tx) DB() *DB { return tx.db }

// WriteTo copies the file, its log included.
func (tx *Tx) WriteTo(w io.Writer) (int64, error) { return tx.raw.WriteTo(w) }

// Check checks the pages of the file, as bbolt's does.
func (tx *Tx) Check() <-chan error { return tx.raw.Check() }

// table is the one that the transaction may change.
func (tx *Tx) table() *table {
	if !tx.owned {
		tx.active, tx.owned = tx.active.copy(), true
	}
	return tx.active
}

// wrote notes a row for the log.
func (tx *Tx) wrote(b *Bucket, r *row) { tx.wrotes = append(tx.wrotes, written{b, r}) }

// replaced takes a row away that another took the place of. If this transaction
// wrote it, it need not be in the log; but that a bucket was dropped must be, also
// if it was made again.
func (tx *Tx) replaced(r *row) {
	if r.seq == tx.seq && r.kind != dropped {
		r.stale = true
	}
	tx.table().count(r, -1)
}

// Rollback ends the transaction and changes nothing. After a commit, or a second
// time, it is an error.
func (tx *Tx) Rollback() error {
	if tx.closed {
		return errors.ErrTxClosed
	}
	tx.closed = true
	err := tx.raw.Rollback()
	if tx.writable {
		tx.db.writer.Unlock()
	}
	return err
}

// Commit writes what was changed to the log, in one bbolt transaction, with a part
// of the frozen table. When it fails nothing has changed that a reader could see.
func (tx *Tx) Commit() error {
	switch {
	case tx.closed:
		return errors.ErrTxClosed
	case !tx.writable:
		return errors.ErrTxNotWritable
	}
	defer tx.db.writer.Unlock()
	tx.closed = true
	next, err := tx.write()
	if err != nil {
		_ = tx.raw.Rollback() // after a commit that failed there is nothing to do
		return err
	}
	tx.db.publish(next)
	return nil
}

// write commits to the file, and says what is to be published then.
func (tx *Tx) write() (*progress, error) {
	next := &progress{state: *tx.state, folding: tx.db.folding, tail: tx.db.tail}
	wrote := 0
	if len(tx.wrotes) > 0 {
		n, err := tx.append(next)
		if err != nil {
			return nil, err
		}
		wrote = n
	}
	if err := tx.fold(next, wrote); err != nil {
		return nil, err
	}
	folded := next.folding.ended() && !tx.db.folding.ended()
	if err := tx.raw.Commit(); err != nil {
		return nil, err
	}
	if folded {
		// gofail: var foldFinished struct{}
		next.state.frozen = nil
	}
	return next, nil
}

// weighs is what the rows of this transaction weigh, as the tables count it.
func (tx *Tx) weighs() (n int) {
	for _, w := range tx.wrotes {
		n += w.row.weight()
	}
	return n
}

func newTx(db *DB, raw *bolt.Tx, s *state) *Tx {
	return &Tx{db: db, raw: raw, state: s, active: s.active}
}

// layersOf are the layers of a table in the order in which they are folded.
func layersOf(t *table) []*layer {
	return sortedFunc(maps.Values(t.layers))
}
