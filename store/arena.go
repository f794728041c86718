package store

const (
	// leastRoom is what an encoder has free at least before it writes: as much as a
	// small value takes. Where there is less, it begins another piece.
	leastRoom = 256
	// leastPiece is the smallest piece of an arena of which nobody said how large it gets.
	leastPiece = 1 << 10
	// keptBytes bounds the memory that an arena keeps for its next use: what a large
	// batch of small instances takes.
	keptBytes = 2 << 20
)

// arena is the memory that rows are encoded into, in pieces. The memtables copy what they
// keep, so that it can be used again once its changes are committed.
type arena struct {
	size int    // about, of all that is to come; 0: not known
	free []byte // the last piece, from where it is free
	used int    // bytes of all pieces
	last []byte // the last piece, for reset
}

// begin returns where to write, with room for n bytes at least.
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

// keep takes what was written where begin said. What did not fit there has moved to
// a larger piece.
func (a *arena) keep(b []byte) []byte {
	if cap(b) > cap(a.free) {
		a.open(b[:0])
	}
	a.free = b[len(b):]
	return b[:len(b):len(b)]
}

// reset frees the memory for the next use, in one piece. Nobody may read what is in it
// any more: with the race detector it is overwritten.
func (a *arena) reset() {
	if spoil != nil {
		spoil(a.last[:cap(a.last)])
	}
	piece := a.last[:0]
	if a.used > cap(piece) && cap(piece) < keptBytes {
		piece = make([]byte, 0, min(a.used, keptBytes))
	} else if cap(piece) > keptBytes {
		piece = nil
	}
	*a = arena{last: piece, free: piece, used: cap(piece)}
}
