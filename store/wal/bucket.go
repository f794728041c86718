package wal

import (
	"bytes"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/bbolt/errors"
)

// Bucket is a bucket in a transaction: the rows of the active memtable, over those of the immutable
// one, over the bucket of the file. It is for one goroutine. Keys and values that it returns are
// valid until the transaction ends.
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

// raw is the bucket of the file, nil if there is none. It is looked up when it is first needed.
func (b *Bucket) raw() *bolt.Bucket {
	if !b.looked {
		b.looked, b.found = true, b.tx.raw.Bucket(b.space)
		if b.inner != nil && b.found != nil {
			b.found = b.found.Bucket(b.inner)
		}
	}
	return b.found
}

// overlaid is the row of a key in the memtables. It is decided if there is one, or, with a nil row, if
// they hide the bucket of the file.
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

// Get is the value of a key; nil without one, or for a bucket.
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

// Put sets a value. It copies the key and the value.
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

// settable refuses what the bucket of the file would refuse, because what is in the WAL must be
// flushed.
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

// changeable is the reason why the bucket cannot be changed, if any.
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

// nests reports whether there may be inner buckets.
func (b *Bucket) nests() bool {
	return b.inner == nil && b.tx.db.options.Spaces[string(b.space)].Nested
}

// holds reports whether a key is an inner bucket.
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

// Delete removes a key. It leaves a tombstone only if there is a value below the active memtable.
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

// Tell writes the value of a key to the WAL once more, for [DB.Past], and changes nothing.
func (b *Bucket) Tell(key, value []byte) {
	told := func(k kind, value []byte) {
		r := b.tx.newRow(k, key, value)
		b.tx.wrote(b, r)
	}
	told(put, value)
	if b.Get(key) == nil {
		told(tombstone, nil) // else opening the file would restore it
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
		mark := b.tx.newRow(tombstone, key, nil) // for readers of the WAL
		b.tx.wrote(b, mark)
	}
}

// below reports whether a key has a value below the active memtable.
func (b *Bucket) below(key []byte) bool {
	if b.active != nil && b.active.wiped {
		return false
	}
	if r, decided := b.in(b.immutable, key); decided {
		return r != nil && (r.kind == put || r.kind == made)
	}
	return b.raw() != nil && !b.behind(key) && b.raw().Get(key) != nil
}

// behind reports whether a key is after all keys of the bucket of the file, as those of a queue are.
// Then it need not be searched.
func (b *Bucket) behind(key []byte) bool {
	if !b.measured {
		b.measured = true
		b.last, _ = b.raw().Cursor().Last()
	}
	return bytes.Compare(key, b.last) > 0
}

// hides reports whether a key was a bucket that may still be below.
func (b *Bucket) hides(key []byte) bool {
	if !b.nests() {
		return false
	}
	l := b.tx.active.layer(b.space, key)
	return l != nil && l.wiped
}

// Bucket is an inner bucket; nil if there is none.
func (b *Bucket) Bucket(name []byte) *Bucket {
	if !b.holds(name) {
		return nil
	}
	return b.tx.inner(b, name)
}

// CreateBucket creates an inner bucket.
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

// CreateBucketIfNotExists creates an inner bucket unless it exists.
func (b *Bucket) CreateBucketIfNotExists(name []byte) (*Bucket, error) {
	if inner := b.Bucket(name); inner != nil {
		return inner, nil
	}
	return b.CreateBucket(name)
}

// DeleteBucket drops an inner bucket with all its rows.
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

// drop replaces the layer of an inner bucket by one that hides all rows below.
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
