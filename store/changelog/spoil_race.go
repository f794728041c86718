//go:build race

package changelog

var spoil = func(b []byte) {
	for i := range b {
		b[i] = 0xA5
	}
}
