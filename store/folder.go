package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"edda/store/wal"
)

// Exists reports whether a folder has a store.
func Exists(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, FileName))
	return err == nil && info.Size() > 0
}

// Remove removes the store from a folder. No process may hold it.
func Remove(dir string) error { return removeStore(filepath.Join(dir, FileName)) }

func removeStore(path string) error {
	err := os.Remove(path) // first: a WAL without its file is refused, and a file without its WAL would seem whole
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, wal.RemoveWAL(path), wal.RemoveKept(path))
}
