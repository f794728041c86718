package wal

import (
	"bytes"
	"maps"

	"github.com/tidwall/btree"
)

// kind is what a row in a memtable says of its key. They are bytes of the format.
type kind byte

const (
	put       kind = 1 // it has this value
	tombstone kind = 2 // there is none
	made      kind = 3 // it is a bucket
	dropped   kind = 4 // it was a bucket, which went with all that was in it
)

// row is never changed once its transaction was installed, while anybody may see it.
type row struct {
	buf  []byte // the key, then the value
	cut  int    // where the value begins
	kind kind
	// seq is the transaction that wrote it; stale says that the same one wrote the
	// key again.
	seq   uint64
	stale bool
}

func (r *row) key() []byte { return r.buf[:r.cut:r.cut] }

// value is nil for a bucket, as bbolt has it, and never for a row.
func (r *row) value() []byte {
	if r.kind != put {
		return nil
	}
	return r.buf[r.cut:len(r.buf):len(r.buf)]
}

// rowWeight is about what a row takes in memory beside its key and its value.
const rowWeight = 96

func (r *row) weight() int { return rowWeight + len(r.buf) }

// degree keeps the copy of a node small: every transaction copies those that it
// changes.
const degree = 16

func newRows() *btree.BTreeG[*row] {
	less := func(a, b *row) bool { return bytes.Compare(a.buf[:a.cut], b.buf[:b.cut]) < 0 }
	return btree.NewBTreeGOptions(less, btree.Options{Degree: degree, NoLocks: true})
}

// layer is what one memtable has of one bucket.
type layer struct {
	path         string
	space, inner []byte // inner is nil for a top-level bucket
	rows         *btree.BTreeG[*row]
	// wiped says that the bucket was dropped: what lies below counts no more.
	wiped bool
}

// copy shares what is not changed later, on either side: readers of an installed
// layer go on beside it.
func (l *layer) copy() *layer {
	return &layer{path: l.path, space: l.space, inner: l.inner, rows: l.rows.Copy(), wiped: l.wiped}
}

// appendPath names a bucket: no name of a top-level one has a zero byte.
func appendPath(b, space, inner []byte) []byte {
	b = append(b, space...)
	if inner == nil {
		return b
	}
	return append(append(b, 0), inner...)
}

// memtable is what transactions have changed since another memtable was made immutable. One
// that was installed is never changed.
type memtable struct {
	layers map[string]*layer // by path
	arena  *arena            // of its rows, and of those that were written again
	// last is the last transaction in it. Weight is what its rows take in memory, allocated
	// what its arena has, with the rows that were written again, tombstones how many of them say that there is none, logged what its
	// transactions take in the WAL.
	last       uint64
	weight     int
	allocated  int
	tombstones int
	walBytes   int
	// slot and end say where its transactions lie, once it is made immutable: in which file of the
	// WAL, and how far. An end of zero: in none.
	slot int
	end  int64
}

func newMemtable() *memtable { return &memtable{layers: map[string]*layer{}, arena: newArena()} }

// layer is what it has of a bucket; nil: nothing. A memtable that is not there has none.
func (t *memtable) layer(space, inner []byte) *layer {
	if t == nil {
		return nil
	}
	var room [64]byte // the usual name needs no memory of its own
	return t.layers[string(appendPath(room[:0], space, inner))]
}

// copy shares the layers: who changes one copies it first.
func (t *memtable) copy() *memtable {
	c := *t
	c.layers = maps.Clone(t.layers)
	return &c
}

// count adds a row that came, or with -1 takes one away that went.
func (t *memtable) count(r *row, n int) {
	t.weight += n * r.weight()
	if r.kind == tombstone {
		t.tombstones += n
	}
}
