package store

import (
	"edda/internal/jsonvalue"
	"edda/store/wal"
)

const (
	// leastRoom is how much a piece must have free for another value: the size of a small one.
	leastRoom = 256
	// leastPiece is the smallest piece of an arena whose size is not known.
	leastPiece = 1 << 10
	// keptBytes bounds the memory that an arena keeps for its next use. A large batch of small
	// instances needs as much.
	keptBytes = 2 << 20
)

// arena is the memory that rows are encoded into, in pieces. Memtables copy the rows, so it can be
// used again once its changes are committed.
type arena struct {
	size int    // about, of all values to come; 0: not known
	free []byte // the free end of the last piece
	used int    // bytes of all pieces
	last []byte // the last piece, for reset
}

// begin returns memory to append to, with room for at least n bytes.
func (a *arena) begin(n int) []byte {
	if cap(a.free) >= n {
		return a.free
	}
	size := max(a.size, n)
	if a.size == 0 {
		size = max(n, leastPiece, min(a.used, keptBytes)) // twice what there is
	}
	a.size = 0
	a.open(make([]byte, 0, size))
	return a.free
}

func (a *arena) open(piece []byte) {
	a.last, a.free = piece, piece
	a.used += cap(piece)
}

// keep keeps what was appended to the memory of begin. If that was too small, append has moved it
// to a larger piece.
func (a *arena) keep(b []byte) []byte {
	if cap(b) > cap(a.free) {
		a.open(b[:0])
	}
	a.free = b[len(b):]
	return b[:len(b):len(b)]
}

// reset frees the memory for its next use, in one piece. No reader may still have a slice of it:
// builds with the race detector overwrite it.
func (a *arena) reset() {
	if wal.Poison != nil {
		wal.Poison(a.last[:cap(a.last)])
	}
	piece := a.last[:0]
	if a.used > cap(piece) && cap(piece) < keptBytes {
		piece = make([]byte, 0, min(a.used, keptBytes))
	} else if cap(piece) > keptBytes {
		piece = nil
	}
	*a = arena{last: piece, free: piece, used: cap(piece)}
}

// valueEncoder encodes values as JSON into an arena. It does not escape HTML characters, so that
// JSON within a value stays the same to the byte.
type valueEncoder struct {
	coder jsonvalue.Coder
	arena arena
}

// encode returns *v after head empty bytes.
func (e *valueEncoder) encode(head int, v any) ([]byte, error) {
	b, err := e.coder.Append(append(e.arena.begin(leastRoom), make([]byte, head)...), v)
	if err != nil {
		return nil, err
	}
	return e.arena.keep(b), nil
}
