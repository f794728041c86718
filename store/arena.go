package store

import (
	"math/bits"
	"sync"
)

const (
	// leastRoom is what an encoder has free at least before it writes: as much as a
	// small value takes. Where there is less, it begins another piece.
	leastRoom = 256
	// estimate is by how much sizes are too small at most: a 16th.
	estimate = 16
	// keptSize is the size of the largest pieces of memory that are kept for the next
	// change, as a power of two: as large as one with many transitions takes, and what
	// its estimate misses.
	keptSize = 20
)

// pieces are pieces of memory that no change needs any more, by their size, each at least
// as long as that power of two: a claim takes a thousandth of what a batch of orders does,
// and neither is to be given what the other left.
var pieces [keptSize + 1]sync.Pool

// newPiece is one of n bytes at least.
func newPiece(n int) *[]byte {
	size := bits.Len(uint(n - 1))
	if size > keptSize {
		piece := make([]byte, 0, n)
		return &piece
	}
	if piece, ok := pieces[size].Get().(*[]byte); ok {
		return piece
	}
	piece := make([]byte, 0, 1<<size)
	return &piece
}

// keepPiece keeps one for the next change.
func keepPiece(piece *[]byte) {
	if n := cap(*piece); n > 0 && n <= 1<<keptSize {
		pieces[bits.Len(uint(n))-1].Put(piece)
	}
}

// arena is the memory that a change is encoded into, in pieces: one for most
// changes. The tables copy what they keep, so that it goes back once the change is
// committed.
type arena struct {
	size   int    // about, of all that is to come
	free   []byte // the last piece, from where it is free
	pieces []*[]byte
}

// begin returns where to write, with room for n bytes at least.
func (a *arena) begin(n int) []byte {
	if cap(a.free) >= n {
		return a.free
	}
	need := max(a.size+a.size/estimate, n)
	a.size = 0
	piece := newPiece(need)
	a.pieces = append(a.pieces, piece)
	a.free = (*piece)[:0]
	return a.free
}

// keep takes what was written where begin said. What did not fit there has moved to
// a larger piece.
func (a *arena) keep(b []byte) []byte {
	if cap(b) > cap(a.free) {
		moved := b[:0]
		a.pieces = append(a.pieces, &moved)
	}
	a.free = b[len(b):]
	return b[:len(b):len(b)]
}

// release gives the pieces back. Nobody may read what is in them any more.
func (a *arena) release() {
	for i, piece := range a.pieces {
		if spoil != nil {
			spoil((*piece)[:cap(*piece)])
		}
		keepPiece(piece)
		a.pieces[i] = nil
	}
	*a = arena{pieces: a.pieces[:0]}
}

// spoil is for tests: it overwrites what was released, so that nobody who reads it
// all the same goes unnoticed.
var spoil func([]byte)
