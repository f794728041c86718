//go:build race

package wal

// Poison overwrites memory that nothing may read any more.
var Poison = func(b []byte) {
	// The detector sees one write a copy. It would see one a byte in a loop.
	for n := copy(b, "\xA5"); n > 0 && n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
