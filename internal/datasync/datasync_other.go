//go:build !linux

package datasync

import "os"

// Sync makes what was written to a file durable.
func Sync(f *os.File) error { return f.Sync() }
