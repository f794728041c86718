package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// restoredName is a file beside a store that was restored, until what its streams
// have since then was applied. A store that was put back in another way may be given
// one by hand: what is in it does not matter.
const restoredName = FileName + ".restored"

// markRestored makes the file, before the restored store gets its name: one too many
// only makes a start wait.
func markRestored(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, restoredName), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("mark the store as restored: %w", err)
	}
	return errors.Join(f.Sync(), f.Close(), SyncDir(dir))
}

// Restored tells whether the store is a backup that has still to catch up: what its
// streams have of the time after it may be what its own work came to, so nothing
// should be sent out before that was applied.
func (d *DB) Restored() (bool, error) {
	switch _, err := os.Stat(d.restoredMark()); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look whether the store was restored: %w", err)
	}
	return true, nil
}

// CaughtUp says that it has caught up, for good.
func (d *DB) CaughtUp() error {
	if err := os.Remove(d.restoredMark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note that the restored store has caught up: %w", err)
	}
	return SyncDir(filepath.Dir(d.path))
}

func (d *DB) restoredMark() string { return filepath.Join(filepath.Dir(d.path), restoredName) }
