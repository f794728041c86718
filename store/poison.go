//go:build !race

package store

// spoil is for tests: it overwrites encoded rows that nothing may read any more. Builds
// with the race detector always do.
var spoil func([]byte)
