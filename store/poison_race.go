//go:build race

package store

var spoil = func(b []byte) {
	for i := range b {
		b[i] = 0xA5
	}
}
