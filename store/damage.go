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

// spareRoom is what a copy of the store leaves free on the disk, for commits.
const spareRoom = 64 << 20

// checking is the name of the copy that a check reads while the committer runs.
const checking = FileName + ".checking"

// guarded turns the panic or the fault of a damaged page into an error that names the file.
func guarded(path string, fn func() error) error { return wal.Guard(path, fn) }

// sound is guarded while the store is open: reads of sound pages work, others fail. It logs the first
// damage, and keeps it for [DB.Damaged].
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

// Damaged is the first damage that was met since the store was opened.
func (d *DB) Damaged() error {
	if err := d.damage.Load(); err != nil {
		return *err
	}
	return nil
}

// CutWAL explains that the WAL ended too early when the store was opened. It is empty if there was
// no sign of that.
func (d *DB) CutWAL() string {
	d.swap.RLock()
	defer d.swap.RUnlock()
	cut := d.file.Cut()
	if cut == nil {
		return ""
	}
	if d.options.standby || d.options.copied {
		return fmt.Sprintf("%s lacks transactions after number %d, which were applied and not synced: its node reads them from the log of the cluster again", cut.Path, cut.After)
	}
	return fmt.Sprintf("%s ends in the middle of what was written: transactions after number %d of the log may be gone, which had been committed. "+
		"The store goes on without them: events are read again, effects may be called again under the same idempotency keys, and at_most_once effects, too. "+
		"If the power failed at the moment at which the log was growing, nothing is lost; else the disk or a copy lost its end: look after the disk, and restore a newer backup if there is one", cut.Path, cut.After)
}

// CutCopy is [DB.CutWAL] of a copy that [OpenToCheck] has opened, and empty for any other store. It is no finding of
// [DB.Doctor], because the node of the copy mends it when it starts.
func (d *DB) CutCopy() string {
	if !d.options.copied {
		return ""
	}
	return d.CutWAL()
}

// Doctor checks all that FORMAT.md promises, and finds idle instances. It calls tell now and then
// with the rows it has read.
//
// While the committer runs it reads a copy that it makes beside the store, because the free pages
// cannot be compared while commits change them.
func (d *DB) Doctor(ctx context.Context, tell func(rows int)) (Health, error) {
	if !d.running.Load() {
		h := d.examine(ctx, tell, true)
		if cut := d.CutWAL(); cut != "" && !d.options.copied {
			h.Findings = append(h.Findings, errors.New(cut))
		}
		return h, context.Cause(ctx)
	}
	if !d.compaction.TryLock() {
		return Health{}, edda.Classify(edda.Temporary, "the store is being compacted or checked already")
	}
	defer d.compaction.Unlock()
	path := filepath.Join(filepath.Dir(d.path), checking)
	defer func() { _ = os.Remove(path) }() // else the next start does
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

// room refuses a copy that would leave commits too little of the disk.
func room(path string, bytes int64) error {
	dir := filepath.Dir(path)
	free, err := freeBytes(dir)
	if err != nil {
		return err
	}
	if free < bytes+spareRoom {
		return edda.Classify(edda.Permanent, "%d bytes are needed for a copy in %s, and %d are free: make room first", bytes+spareRoom, dir, free)
	}
	return nil
}

// DiskFree returns how many bytes of the disk of the store's file are free for this process.
func (d *DB) DiskFree() (int64, error) { return freeBytes(filepath.Dir(d.path)) }

func freeBytes(dir string) (int64, error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return 0, fmt.Errorf("ask how much of %s is free: %w", dir, err)
	}
	return int64(disk.Bavail) * int64(disk.Bsize), nil
}

// Check reports contradictions without a copy. It compares the pages only if the committer does not
// run.
func (d *DB) Check(ctx context.Context) []error {
	return d.examine(ctx, nil, !d.running.Load()).Findings
}
