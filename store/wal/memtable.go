package wal

import (
	"bytes"
	"maps"

	"github.com/tidwall/btree"
)

// kind is the kind of a row in a memtable. Kinds are bytes of the format.
type kind byte

const (
	put       kind = 1 // a value
	tombstone kind = 2 // no value
	made      kind = 3 // a bucket
	dropped   kind = 4 // a bucket that was dropped with all rows
)

// row is immutable once its transaction is installed.
type row struct {
	buf  []byte // the key, then the value
	cut  int    // where the value begins
	kind kind
	// seq is its transaction. stale says that the same transaction wrote the key again.
	seq   uint64
	stale bool
}

func (r *row) key() []byte { return r.buf[:r.cut:r.cut] }

// value is nil unless the kind is put. An empty value is not nil.
func (r *row) value() []byte {
	if r.kind != put {
		return nil
	}
	return r.buf[r.cut:len(r.buf):len(r.buf)]
}

// rowWeight is about the memory of a row without its key and its value.
const rowWeight = 96

func (r *row) weight() int { return rowWeight + len(r.buf) }

// degree is small, because every transaction copies the nodes that it changes.
const degree = 16

func newRows() *btree.BTreeG[*row] {
	less := func(a, b *row) bool { return bytes.Compare(a.buf[:a.cut], b.buf[:b.cut]) < 0 }
	return btree.NewBTreeGOptions(less, btree.Options{Degree: degree, NoLocks: true})
}

// layer has the rows of a bucket in a memtable.
type layer struct {
	path         string
	space, inner []byte // inner is nil for a top-level bucket
	rows         *btree.BTreeG[*row]
	// wiped says that the bucket was dropped: it hides all rows below.
	wiped bool
}

// copy copies on write, so that readers of an installed layer are not disturbed.
func (l *layer) copy() *layer {
	return &layer{path: l.path, space: l.space, inner: l.inner, rows: l.rows.Copy(), wiped: l.wiped}
}

// appendPath appends the path of a bucket. No name of a top-level bucket has a zero byte.
func appendPath(b, space, inner []byte) []byte {
	b = append(b, space...)
	if inner == nil {
		return b
	}
	return append(append(b, 0), inner...)
}

// memtable has the rows of the transactions since the memtable before. It is immutable once it is
// installed in a version.
type memtable struct {
	layers map[string]*layer // by path
	arena  *arena            // of its rows, with those that were written again
	// last is its last transaction, sum that of its [Point], weight the memory of its rows, allocated
	// that of its arena, and walBytes the size of its transactions in the WAL.
	last       uint64
	sum        uint32
	weight     int
	allocated  int
	tombstones int
	walBytes   int
	// slot and end are the file of the WAL with its transactions, and their end, once it is
	// immutable. An end of zero: there is no WAL.
	slot int
	end  int64
}

func newMemtable() *memtable { return &memtable{layers: map[string]*layer{}, arena: newArena()} }

// layer is the layer of a bucket; nil without rows of it, and of a nil memtable.
func (t *memtable) layer(space, inner []byte) *layer {
	if t == nil {
		return nil
	}
	var room [64]byte // on the stack, for most names
	return t.layers[string(appendPath(room[:0], space, inner))]
}

// copy shares the layers. A layer is copied before it is changed.
func (t *memtable) copy() *memtable {
	c := *t
	c.layers = maps.Clone(t.layers)
	return &c
}

// count adds a row, or with -1 subtracts it.
func (t *memtable) count(r *row, n int) {
	t.weight += n * r.weight()
	if r.kind == tombstone {
		t.tombstones += n
	}
}
