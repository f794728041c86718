//go:build race

package jsonvalue

// poison overwrites a released buffer, so that a test with the race detector finds code that kept a
// part of it.
func poison(room []byte) {
	room = room[:cap(room)]
	for i := range room {
		room[i] = 0xDB
	}
}
