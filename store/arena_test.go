package store

import "testing"

// TestPiecesOfMemoryAreKeptBySize: a small change does not get what a large one left, nor
// the other way round.
func TestPiecesOfMemoryAreKeptBySize(t *testing.T) {
	for n := 1; n < 3<<keptSize; n += n/3 + 1 {
		p := newPiece(n)
		if cap(*p) < n || n > 1 && n <= 1<<keptSize && cap(*p) >= 4*n {
			t.Errorf("%d bytes are given for %d", cap(*p), n)
		}
		*p = append(*p, make([]byte, n)...)
		keepPiece(p)
	}
	odd := make([]byte, 0, 700) // as append leaves one
	keepPiece(&odd)
	if p := newPiece(700); cap(*p) < 700 {
		t.Errorf("%d bytes are given for 700", cap(*p))
	}
}
