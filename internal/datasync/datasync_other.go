//go:build !linux

package datasync

import "os"

// Sync makes the written data of a file durable.
func Sync(f *os.File) error { return f.Sync() }
