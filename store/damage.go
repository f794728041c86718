package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"go.uber.org/zap"

	"edda"
	"edda/store/wal"
)

// spareRoom is what stays free on the disk beside a second copy of the store:
// commits must not stop for want of it.
const spareRoom = 64 << 20

// checking is the copy that a check of a store in use reads.
const checking = FileName + ".checking"

// guarded turns what bbolt does on meeting a damaged page into an error, which names the
// file as people know it.
func guarded(path string, fn func() error) error { return wal.Guard(path, fn) }

// sound is guarded for a process that goes on: reads of what is whole work, and the
// others fail. The first damage stays in [DB.Damaged], and is logged with its place.
func (d *DB) sound(fn func() error) error {
	err := guarded(d.options.called, fn)
	if err == nil {
		return nil
	}
	if damage, is := errors.AsType[*wal.DamageError](err); is && d.damage.CompareAndSwap(nil, &err) {
		d.options.Log.Error("the store's file is damaged: what lies on sound pages goes on; stop, check it with edda doctor, and restore a backup",
			zap.Error(err), zap.ByteString("stack", damage.Stack))
	}
	return err
}

// Damaged is the first damage that a read or a commit met since the store was opened.
func (d *DB) Damaged() error {
	if err := d.damage.Load(); err != nil {
		return *err
	}
	return nil
}

// CutWAL says what it means that the WAL ended too early when the store was opened; empty
// where no sign of that was found.
func (d *DB) CutWAL() string {
	d.swap.RLock()
	defer d.swap.RUnlock()
	cut := d.file.Cut()
	if cut == nil {
		return ""
	}
	return fmt.Sprintf("%s ends in the middle of what was written: transactions after number %d of the log may be gone, which had been committed. "+
		"The store goes on without them: events are read again, effects may be called again under the same idempotency keys, and at_most_once effects, too. "+
		"If the power failed at the moment at which the log was growing, nothing is lost; else the disk or a copy lost its end: look after the disk, and restore a newer backup if there is one", cut.Path, cut.After)
}

// Doctor checks everything that FORMAT.md promises, and looks for instances that
// wait for nothing. It tells now and then how many rows it has read.
//
// Where the committer runs, it reads a copy that it makes beside the store: which
// pages are free cannot be compared while commits change it.
func (d *DB) Doctor(ctx context.Context, tell func(rows int)) (Health, error) {
	if !d.running.Load() {
		h := d.examine(ctx, tell, true)
		if cut := d.CutWAL(); cut != "" {
			h.Findings = append(h.Findings, errors.New(cut))
		}
		return h, context.Cause(ctx)
	}
	if !d.compaction.TryLock() {
		return Health{}, edda.Classify(edda.Temporary, "the store is being compacted or checked already")
	}
	defer d.compaction.Unlock()
	path := filepath.Join(filepath.Dir(d.path), checking)
	defer func() { _ = os.Remove(path) }() // the next start removes it, too
	if err := d.sound(func() error { return d.copyTo(ctx, path) }); err != nil {
		if _, is := errors.AsType[*wal.DamageError](err); is {
			return Health{Findings: []error{err}}, nil
		}
		return Health{}, fmt.Errorf("copy the store to check it: %w", err)
	}
	c, err := openFile(path, Options{Seal: d.seal.AEAD, noSync: true, initialMap: d.options.initialMap})
	if err != nil {
		return Health{Findings: []error{err}}, nil
	}
	h := c.examine(ctx, tell, true)
	return h, errors.Join(guarded(d.options.called, c.Close), context.Cause(ctx))
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
