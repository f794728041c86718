package store

const (
	// leastRoom is what an encoder has free at least before it writes: as much as a
	// small value takes. Where there is less, it begins another piece.
	leastRoom = 256
	// estimate is by how much sizes are too small at most: a 16th.
	estimate = 16
)

// arena is the memory that a change is encoded into: one allocation for most changes. The
// memtables copy what they keep, so that the collector frees it with the change.
type arena struct {
	size int    // about, of all that is to come
	free []byte // the last piece, from where it is free
}

// begin returns where to write, with room for n bytes at least.
func (a *arena) begin(n int) []byte {
	if cap(a.free) < n {
		a.free = make([]byte, 0, max(a.size+a.size/estimate, n))
		a.size = 0
	}
	return a.free
}

// keep takes what was written where begin said, or where append moved it.
func (a *arena) keep(b []byte) []byte {
	a.free = b[len(b):]
	return b[:len(b):len(b)]
}
