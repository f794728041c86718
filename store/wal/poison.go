//go:build !race

package wal

// Poison overwrites memory before it is used again, and rows that nothing refers to any more. Builds
// with the race detector and some tests have it, so that a slice which is read too late is found.
var Poison func([]byte)
