package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"edda"
)

// spareRoom is what stays free on the disk beside a second copy of the store:
// commits must not stop for want of it.
const spareRoom = 64 << 20

// checking is the copy that a check of a store in use reads.
const checking = FileName + ".checking"

// guarded turns what bbolt does on meeting a damaged page, a panic or a look
// beyond the end of the file, into an error. What fn had open stays open.
func guarded(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s is damaged (%v): restore a backup", path, v)
		}
	}()
	return fn()
}

// Doctor checks everything that FORMAT.md promises, and looks for instances that
// wait for nothing. It tells now and then how many rows it has read.
//
// Where the committer runs, it reads a copy that it makes beside the store: which
// pages are free cannot be compared while commits change it.
func (d *DB) Doctor(ctx context.Context, tell func(rows int)) (Health, error) {
	if !d.running.Load() {
		return d.examine(ctx, tell, true), context.Cause(ctx)
	}
	if !d.compaction.TryLock() {
		return Health{}, edda.Classify(edda.Temporary, "the store is being compacted or checked already")
	}
	defer d.compaction.Unlock()
	path := filepath.Join(filepath.Dir(d.path), checking)
	defer func() { _ = os.Remove(path) }() // the next start removes it, too
	if err := d.copyTo(ctx, path); err != nil {
		return Health{}, fmt.Errorf("copy the store to check it: %w", err)
	}
	c, err := openFile(path, Options{Seal: d.seal.aead, noSync: true, initialMap: d.options.initialMap})
	if err != nil {
		return Health{Findings: []error{err}}, nil
	}
	h := c.examine(ctx, tell, true)
	return h, errors.Join(c.Close(), context.Cause(ctx))
}

func (d *DB) copyTo(ctx context.Context, path string) error {
	s, err := d.Snapshot()
	if err != nil {
		return err
	}
	defer s.Close()
	if err := room(path, s.Bytes); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(s.WriteTo(ctx, f), f.Close())
}

// room refuses to write what would leave commits too little of the disk.
func room(path string, bytes int64) error {
	var disk syscall.Statfs_t
	dir := filepath.Dir(path)
	if err := syscall.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("ask how much of %s is free: %w", dir, err)
	}
	if free := int64(disk.Bavail) * int64(disk.Bsize); free < bytes+spareRoom {
		return edda.Classify(edda.Permanent, "%d bytes are needed for a copy in %s, and %d are free: make room first", bytes+spareRoom, dir, free)
	}
	return nil
}

// Check reports what contradicts itself, beside the committer and without a copy:
// the pages below the rows are looked at only where it does not run.
func (d *DB) Check(ctx context.Context) []error {
	return d.examine(ctx, nil, !d.running.Load()).Findings
}
