//go:build !linux

package changelog

import "os"

func fdatasync(f *os.File) error { return f.Sync() }
