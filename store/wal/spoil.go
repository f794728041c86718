//go:build !race

package wal

// spoil is for tests: it overwrites a row that nobody is to see any more, so that who
// does all the same is found out. With the race detector it always does.
var spoil func([]byte)
