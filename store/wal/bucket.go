package wal

import (
	"bytes"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/bbolt/errors"
)

// Bucket is one bucket as a transaction sees it: what the active memtable has of it,
// over what the immutable one has, over the bucket of the file. It is for one
// goroutine. What it returns is valid until the transaction ends.
type Bucket struct {
	tx                *Tx
	space, inner      []byte
	active, immutable *layer // nil: nothing
	own               bool   // active is this transaction's copy
	deleted           bool   // by this transaction
	looked            bool   // for the bucket of the file
	found             *bolt.Bucket
	measured          bool
	last              []byte // key of the bucket of the file; nil: it is empty
	pivot             row
}

// raw is the bucket of the file; nil where it is not there yet. Many a transaction
// never asks.
func (b *Bucket) raw() *bolt.Bucket {
	if !b.looked {
		b.looked, b.found = true, b.tx.raw.Bucket(b.space)
		if b.inner != nil && b.found != nil {
			b.found = b.found.Bucket(b.inner)
		}
	}
	return b.found
}

// overlaid is what the memtables say of a key; decided is false where they say
// nothing, and a row nil where they say that the bucket holds nothing else.
func (b *Bucket) overlaid(key []byte) (r *row, decided bool) {
	if r, decided = b.in(b.active, key); decided {
		return r, true
	}
	return b.in(b.immutable, key)
}

func (b *Bucket) in(l *layer, key []byte) (r *row, decided bool) {
	if l == nil {
		return nil, false
	}
	b.pivot.buf, b.pivot.cut = key, len(key)
	if r, decided = l.rows.Get(&b.pivot); decided {
		return r, true
	}
	return nil, l.wiped
}

// Get is the value of a key; nil where there is none, or a bucket.
func (b *Bucket) Get(key []byte) []byte {
	if r, decided := b.overlaid(key); decided {
		if r == nil {
			return nil
		}
		return r.value()
	}
	if raw := b.raw(); raw != nil {
		return unpack(raw.Get(key))
	}
	return nil
}

// Put sets a value. It copies both: the caller may change them afterwards.
func (b *Bucket) Put(key, value []byte) error {
	if err := b.settable(key); err != nil {
		return err
	}
	if len(value) > bolt.MaxValueSize {
		return errors.ErrValueTooLarge
	}
	b.set(put, key, value)
	return nil
}

// settable refuses what the bucket of the file would refuse: once it is in the WAL
// it must find its place.
func (b *Bucket) settable(key []byte) error {
	if err := b.changeable(); err != nil {
		return err
	}
	switch {
	case len(key) == 0:
		return errors.ErrKeyRequired
	case len(key) > bolt.MaxKeySize:
		return errors.ErrKeyTooLarge
	case b.nests() && b.holds(key):
		return errors.ErrIncompatibleValue
	}
	return nil
}

// changeable tells why nothing in the bucket can be changed, if so.
func (b *Bucket) changeable() error {
	switch {
	case b.tx.closed:
		return errors.ErrTxClosed
	case !b.tx.writable:
		return errors.ErrTxNotWritable
	case b.deleted:
		return errors.ErrBucketNotFound
	}
	return nil
}

// nests tells whether there may be buckets within.
func (b *Bucket) nests() bool {
	return b.inner == nil && b.tx.db.options.Spaces[string(b.space)].Nested
}

// holds tells whether a key is a bucket.
func (b *Bucket) holds(name []byte) bool {
	if b.inner != nil {
		return false
	}
	if r, decided := b.overlaid(name); decided {
		return r != nil && r.kind == made
	}
	return b.raw() != nil && b.raw().Bucket(name) != nil
}

// set writes a row of any kind.
func (b *Bucket) set(k kind, key, value []byte) {
	r := b.tx.newRow(k, key, value)
	if was, replaced := b.change().rows.Set(r); replaced {
		b.tx.replaced(was)
	}
	b.tx.wrote(b, r)
	b.tx.active.count(r, 1)
}

// change is the layer that the transaction may change.
func (b *Bucket) change() *layer {
	if b.own {
		return b.active
	}
	if b.active == nil {
		b.active = &layer{path: string(appendPath(nil, b.space, b.inner)), space: b.space, inner: b.inner, rows: newRows()}
	} else {
		b.active = b.active.copy()
	}
	b.own = true
	b.tx.memtable().layers[b.active.path] = b.active
	return b.active
}

// Delete removes a key, if it is there. A row that has not come below the active
// memtable yet leaves nothing there.
func (b *Bucket) Delete(key []byte) error {
	if err := b.changeable(); err != nil {
		return err
	}
	if b.nests() && b.holds(key) {
		return errors.ErrIncompatibleValue
	}
	b.erase(key)
	return nil
}

// Tell has the WAL say once more what the value of a key is, or was, for those who read
// the WAL alone: see [DB.Past]. Nothing changes.
func (b *Bucket) Tell(key, value []byte) {
	told := func(k kind, value []byte) {
		r := b.tx.newRow(k, key, value)
		b.tx.wrote(b, r)
	}
	told(put, value)
	if b.Get(key) == nil {
		told(tombstone, nil) // or opening the file would bring it back
	}
}

func (b *Bucket) erase(key []byte) {
	r, _ := b.in(b.active, key)
	switch {
	case b.below(key) || b.hides(key):
		if r == nil || r.kind == put {
			b.set(tombstone, key, nil)
		}
	case r != nil:
		b.change().rows.Delete(r)
		b.tx.replaced(r)
		mark := b.tx.newRow(tombstone, key, nil) // those who read the WAL must know
		b.tx.wrote(b, mark)
	}
}

// below tells whether a key has a value beneath the active memtable, which a row that
// is not there would let be seen.
func (b *Bucket) below(key []byte) bool {
	if b.active != nil && b.active.wiped {
		return false
	}
	if r, decided := b.in(b.immutable, key); decided {
		return r != nil && (r.kind == put || r.kind == made)
	}
	return b.raw() != nil && !b.behind(key) && b.raw().Get(key) != nil
}

// behind tells whether a key is behind all that the bucket of the file holds, which there
// is, as that of a queue is: then it need not be looked for.
func (b *Bucket) behind(key []byte) bool {
	if !b.measured {
		b.measured = true
		b.last, _ = b.raw().Cursor().Last()
	}
	return bytes.Compare(key, b.last) > 0
}

// hides tells whether a key was a bucket that may still be beneath.
func (b *Bucket) hides(key []byte) bool {
	if !b.nests() {
		return false
	}
	l := b.tx.active.layer(b.space, key)
	return l != nil && l.wiped
}

// Bucket is a bucket within; nil where there is none.
func (b *Bucket) Bucket(name []byte) *Bucket {
	if !b.holds(name) {
		return nil
	}
	return b.tx.inner(b, name)
}

// CreateBucket makes a bucket within.
func (b *Bucket) CreateBucket(name []byte) (*Bucket, error) {
	switch err := b.settable(name); {
	case err == errors.ErrIncompatibleValue:
		return nil, errors.ErrBucketExists
	case err != nil:
		return nil, err
	case !b.nests() || b.Get(name) != nil:
		return nil, errors.ErrIncompatibleValue
	}
	b.set(made, name, nil)
	return b.tx.inner(b, name), nil
}

// CreateBucketIfNotExists makes it where there is none.
func (b *Bucket) CreateBucketIfNotExists(name []byte) (*Bucket, error) {
	if inner := b.Bucket(name); inner != nil {
		return inner, nil
	}
	return b.CreateBucket(name)
}

// DeleteBucket drops a bucket within, and all that is in it.
func (b *Bucket) DeleteBucket(name []byte) error {
	if err := b.changeable(); err != nil {
		return err
	}
	switch {
	case b.holds(name):
		b.drop(name)
		return nil
	case b.Get(name) != nil:
		return errors.ErrIncompatibleValue
	}
	return errors.ErrBucketNotFound
}

// drop leaves of a bucket that what is below of it counts no more.
func (b *Bucket) drop(name []byte) {
	inner := b.tx.inner(b, name)
	l := inner.change()
	l.rows.Scan(func(r *row) bool {
		b.tx.replaced(r)
		return true
	})
	l.rows, l.wiped = newRows(), true
	b.set(dropped, name, nil)
	inner.deleted = true
	b.tx.forget(inner)
}

// ForEach calls fn with every key and value, in order; the value of a bucket is nil.
func (b *Bucket) ForEach(fn func(k, v []byte) error) error {
	if b.tx.closed {
		return errors.ErrTxClosed
	}
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return nil
}

// less orders layers for flushing: a bucket before those within it.
func (l *layer) less(other *layer) int {
	if c := bytes.Compare(l.space, other.space); c != 0 {
		return c
	}
	return bytes.Compare(l.inner, other.inner)
}
