package wal

import "runtime"

const (
	// slabBytes and slabRows are how much an arena allocates at once: enough for some hundred rows, and
	// little for an idle store.
	slabBytes = 256 << 10
	slabRows  = 1024
	// maxSlabbed bounds a row in a slab. A larger row has memory of its own, so that it wastes no slab.
	maxSlabbed = slabBytes / 16
	// arenaFactor bounds an arena, as a multiple of the bound of its memtable: half of the bytes in a
	// memtable are written again before it is flushed.
	arenaFactor = 2
)

// arena is the memory of one memtable's rows. No row is freed alone: the collector frees
// the slabs once no version and no transaction has the memtable. Only the transaction that
// writes allocates from it.
type arena struct {
	size  int    // memory of all rows so far
	bytes []byte // the free end of the last slab
	rows  []row
	slabs *[][]byte // all slabs, for poison; nil without it
}

func newArena() *arena {
	a := &arena{}
	if Poison != nil {
		a.slabs = new([][]byte)
		runtime.AddCleanup(a, poison, a.slabs)
	}
	return a
}

// poison overwrites the rows of a memtable that nothing refers to, so that a slice that was kept
// after its transaction is found.
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

// room returns an empty slice with a capacity of n.
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
