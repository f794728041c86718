//go:build race

package wal

// Poison overwrites memory that nothing may read any more.
var Poison = func(b []byte) {
	for i := range b {
		b[i] = 0xA5
	}
}
