package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"edda"
	"edda/store/wal"
)

// A backup is the pages of the file, and after them a line that bbolt never reads: this name, a
// space, the SHA-256 of the pages in hex, a line end. It detects a copy that was cut off or changed.
const (
	footerName = "edda-backup-1"
	footerSize = len(footerName) + 1 + 2*sha256.Size + 1
)

// copyBuffer is how much is copied between two checks of the context.
const copyBuffer = 1 << 20

// ErrNoChecksum says that a file is a plain copy of a store and no backup. Only its rows show
// whether it is whole.
var ErrNoChecksum = errors.New("it has no checksum: it was not made by edda backup")

// Backup is a consistent copy.
type Backup struct {
	Meta
	Bytes int64  `json:"bytes"` // with the line of the checksum
	Sum   string `json:"sha256"`
	Rows  int    `json:"-"` // of the tenant; 0 for a backup of the whole store
}

// Snapshot is a consistent view of the whole file, to be copied. Close it soon: while it is open,
// pages that commits free cannot be used again.
type Snapshot struct {
	tx   *wal.Tx
	done func() // removes a file that was made for the snapshot; may be nil
	Backup
}

// Snapshot opens a snapshot.
func (d *DB) Snapshot() (*Snapshot, error) {
	d.swap.RLock()
	defer d.swap.RUnlock()
	tx, err := d.file.Snapshot() // its meta rows are those of the copy
	if err != nil {
		return nil, fmt.Errorf("open a snapshot: %w", err)
	}
	return snapshotOf(tx), nil
}

func snapshotOf(tx *wal.Tx) *Snapshot {
	return &Snapshot{tx: tx, Backup: Backup{Meta: metaOf(tx), Bytes: tx.Size() + int64(footerSize)}}
}

// Close closes the snapshot. A second call does nothing.
func (s *Snapshot) Close() {
	_ = s.tx.Rollback()
	if s.done != nil {
		s.done()
		s.done = nil
	}
}

// WriteTo copies the snapshot, with its checksum, until ctx ends.
func (s *Snapshot) WriteTo(ctx context.Context, w io.Writer) error {
	sum := sha256.New()
	if _, err := s.tx.WriteTo(&contextWriter{ctx: ctx, w: io.MultiWriter(w, sum)}); err != nil {
		return fmt.Errorf("copy the store: %w", cmp.Or(context.Cause(ctx), err)) // bbolt does not wrap the cause
	}
	s.Sum = hex.EncodeToString(sum.Sum(nil))
	_, err := io.WriteString(w, footer(sum))
	return err
}

// contextWriter fails once its context has ended.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (u *contextWriter) Write(b []byte) (int, error) {
	if err := context.Cause(u.ctx); err != nil {
		return 0, err
	}
	return u.w.Write(b)
}

func footer(sum hash.Hash) string {
	return footerName + " " + hex.EncodeToString(sum.Sum(nil)) + "\n"
}

// CheckBackup reads a backup and compares its checksum. pages is the length of the store in it. For
// a file without a checksum it returns [ErrNoChecksum].
func CheckBackup(ctx context.Context, path string) (sum string, pages int64, err error) {
	// Before it is opened, because opening a pipe waits for its writer.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", 0, edda.Classify(edda.Permanent, "%s is no file: copy it to one", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	pages = info.Size() - int64(footerSize)
	last := make([]byte, footerSize)
	if pages <= 0 {
		return "", info.Size(), ErrNoChecksum
	}
	if _, err := f.ReadAt(last, pages); err != nil {
		return "", 0, err
	}
	if !bytes.HasPrefix(last, []byte(footerName+" ")) {
		return "", info.Size(), ErrNoChecksum
	}
	h := sha256.New()
	if _, err := io.CopyBuffer(&contextWriter{ctx: ctx, w: h}, io.NewSectionReader(f, 0, pages), make([]byte, copyBuffer)); err != nil {
		return "", 0, fmt.Errorf("read %s: %w", path, err)
	}
	if want := footer(h); want != string(last) {
		return "", 0, fmt.Errorf("%s was changed or damaged since it was made: its checksum is not that of its content", path)
	}
	return hex.EncodeToString(h.Sum(nil)), pages, nil
}
