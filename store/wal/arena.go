package wal

import "runtime"

const (
	// slabBytes and slabRows are how much an arena allocates at once: one allocation for
	// some hundred rows, and little that an idle store never uses.
	slabBytes = 256 << 10
	slabRows  = 1024
	// maxSlabbed is how large a row in a slab is; a larger one has memory of its own, or
	// most of a slab could stay empty before it.
	maxSlabbed = slabBytes / 16
	// arenaFactor bounds an arena, as a multiple of what its memtable may weigh: half of
	// the bytes that come to a memtable are written again before it is flushed.
	arenaFactor = 2
)

// arena is the memory of one memtable's rows. No row is freed alone: the collector frees
// the slabs once no version and no transaction has the memtable. Only the transaction that
// writes allocates from it.
type arena struct {
	size  int    // of all rows so far, with what each takes beside its bytes
	bytes []byte // what is free of the last slab
	rows  []row
	slabs *[][]byte // all of them, for poison; nil in other builds
}

func newArena() *arena {
	a := &arena{}
	if Poison != nil {
		a.slabs = new([][]byte)
		runtime.AddCleanup(a, poison, a.slabs)
	}
	return a
}

// poison overwrites the rows of a memtable that nothing refers to any more, so that a
// slice which was kept past its transaction is found.
func poison(slabs *[][]byte) {
	for _, slab := range *slabs {
		Poison(slab)
	}
}

// row allocates a row and copies its key and its value.
func (a *arena) row(k kind, key, value []byte, seq uint64) *row {
	n := len(key) + len(value)
	a.size += rowWeight + n
	if len(a.rows) == 0 {
		a.rows = make([]row, slabRows)
	}
	r := &a.rows[0]
	a.rows = a.rows[1:]
	*r = row{buf: append(append(a.room(n), key...), value...), cut: len(key), kind: k, seq: seq}
	return r
}

// room is an empty slice with a capacity of n.
func (a *arena) room(n int) []byte {
	if n > maxSlabbed {
		return a.slab(n)[:0:n]
	}
	if len(a.bytes) < n {
		a.bytes = a.slab(slabBytes)
	}
	b := a.bytes[:0:n]
	a.bytes = a.bytes[n:]
	return b
}

func (a *arena) slab(n int) []byte {
	b := make([]byte, n)
	if a.slabs != nil {
		*a.slabs = append(*a.slabs, b)
	}
	return b
}
