//go:build !race

package wal

// spoil is for tests: it overwrites the rows of a memtable that nothing refers to any
// more. With the race detector it always does.
var spoil func([]byte)
