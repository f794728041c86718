package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"edda"
	"edda/store/wal"
)

// A backup is the pages of the file, and behind them a line that bbolt never
// looks at: this name, a space, the SHA-256 of the pages in hex, a line end. So a
// copy that was cut off or changed on its way is told from a whole one.
const (
	footerName = "edda-backup-1"
	footerSize = len(footerName) + 1 + 2*sha256.Size + 1
)

// copyBuffer is what is copied between two looks whether to go on.
const copyBuffer = 1 << 20

// ErrNoChecksum says that a file is a plain copy of a store, not a backup of
// Edda's: whether it is whole only its rows can tell.
var ErrNoChecksum = errors.New("it has no checksum: it was not made by edda backup")

// Backup is a consistent copy.
type Backup struct {
	Meta
	Bytes int64  `json:"bytes"` // with the checksum's line
	Sum   string `json:"sha256"`
}

// Snapshot is a consistent view of the whole file, to be copied. While it is
// open the file cannot use the pages again that commits set free: Close it soon.
type Snapshot struct {
	tx   *wal.Tx
	done func() // gives the file up, where it was made for this alone
	Backup
}

// Snapshot opens one.
func (d *DB) Snapshot() (*Snapshot, error) {
	d.swap.RLock()
	defer d.swap.RUnlock()
	tx, err := d.file.Snapshot() // what it says of itself is what its copy will say
	if err != nil {
		return nil, fmt.Errorf("open a snapshot: %w", err)
	}
	return snapshotOf(tx), nil
}

func snapshotOf(tx *wal.Tx) *Snapshot {
	return &Snapshot{tx: tx, Backup: Backup{Meta: metaOf(tx), Bytes: tx.Size() + int64(footerSize)}}
}

// Close gives the pages back. A second call does nothing.
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
		return fmt.Errorf("copy the store: %w", cmp.Or(context.Cause(ctx), err)) // bbolt wraps no cause
	}
	s.Sum = hex.EncodeToString(sum.Sum(nil))
	_, err := io.WriteString(w, footer(sum))
	return err
}

// contextWriter writes as long as its context lasts.
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

// CheckBackup reads a backup through and compares its checksum; pages is where
// the store in it ends. A file without one is [ErrNoChecksum].
func CheckBackup(ctx context.Context, path string) (sum string, pages int64, err error) {
	// Before it is opened: a pipe would wait for somebody to write into it.
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

// Restored is what a restore put in place.
type Restored struct {
	Meta
	Rows int    `json:"rows"` // all of them sound
	Path string `json:"path"`
	// Aside is where the store that was there before is now.
	Aside string `json:"aside,omitempty"`
	// Sum is the backup's checksum; empty where it has none.
	Sum string `json:"sha256,omitempty"`
	// Positions are where reading of the streams goes on.
	Positions []edda.Checkpoint `json:"positions"`
}

// restoring is the file that a restore checks before it takes its place.
const restoring = FileName + ".restoring"

// Restore checks a backup, whole, and puts it into a folder. A store that is
// there is an error, unless it may be moved aside. The values of a backup that is
// encrypted are opened with secret, which is nil for others.
// The folder is made where there is none, and taken away again where it fails.
// The store is [DB.Restored] from then on.
func Restore(ctx context.Context, backup, dir string, replace bool, secret AEAD, tell func(rows int)) (r Restored, err error) {
	missing := missingFolders(dir)
	defer func() {
		if err != nil {
			removeEmpty(missing)
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return r, explain(dir, err)
	}
	return restore(ctx, backup, dir, replace, secret, tell)
}

// missingFolders are those to make for dir, the innermost first.
func missingFolders(dir string) (out []string) {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return out
		}
		out = append(out, dir)
	}
}

// removeEmpty leaves a folder that somebody has put something into.
func removeEmpty(folders []string) {
	for _, dir := range folders {
		_ = os.Remove(dir)
	}
}

func restore(ctx context.Context, backup, dir string, replace bool, secret AEAD, tell func(rows int)) (r Restored, err error) {
	r.Path = filepath.Join(dir, FileName)
	_, statErr := os.Stat(r.Path)
	there := statErr == nil
	if there && !replace {
		return r, edda.Classify(edda.Permanent, "%s is a store already: name another --data, or move it aside with --force", r.Path)
	}
	if !there {
		if err := noWAL(r.Path); err != nil {
			return r, err
		}
	}
	var pages int64
	if r.Sum, pages, err = CheckBackup(ctx, backup); err != nil && !errors.Is(err, ErrNoChecksum) {
		return r, err
	}
	temp := filepath.Join(dir, restoring)
	defer func() { _ = os.Remove(temp) }() // gone already where all went well
	if err := copyPages(ctx, backup, temp, pages); err != nil {
		return r, fmt.Errorf("copy %s: %w", backup, err)
	}
	// gofail: var restoreCopied struct{}
	if err := whole(backup, temp); err != nil {
		return r, err
	}
	// A copy of a store that was not stopped has a log beside it; and one that a killed
	// restore left is of another.
	if err := wal.RemoveWAL(temp); err != nil {
		return r, err
	}
	defer func() { _ = wal.RemoveWAL(temp) }() // gone already where all went well
	if err := wal.EachWAL(backup, temp, func(from, to string) error { return copyPages(ctx, from, to, math.MaxInt64) }); err != nil {
		return r, fmt.Errorf("copy the log of %s: %w", backup, err)
	}
	if err := r.examine(ctx, backup, temp, secret, tell); err != nil {
		return r, err
	}
	// gofail: var restoreExamined struct{}
	if err := markRestored(dir); err != nil {
		return r, err
	}
	if there {
		r.Aside, err = replaceStore(dir, temp)
		return r, err
	}
	return r, errors.Join(putInPlace(temp, r.Path), SyncDir(dir))
}

// whole tells whether a file has all the pages that it says it has; what lies
// beyond its end must not be looked at. It reads bbolt's two meta pages: magic,
// version and page size as u32, and at byte 40 the number of pages as u64.
func whole(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var meta [16 + 48]byte
	if _, err := f.ReadAt(meta[:], 0); err != nil {
		return fmt.Errorf("%s is not a store", name)
	}
	magic, page, pages := binary.NativeEndian.Uint32(meta[16:]), binary.NativeEndian.Uint32(meta[24:]), binary.NativeEndian.Uint64(meta[56:])
	if magic != boltMagic {
		return fmt.Errorf("%s is not a store", name)
	}
	if size := fileSize(path); size < int64(page)*int64(pages) {
		return fmt.Errorf("%s is cut off: it has %d bytes of %d", name, size, int64(page)*int64(pages))
	}
	return nil
}

// boltMagic begins bbolt's meta pages, behind the page's own header.
const boltMagic = 0xED0CDAED

// examine opens the copy and checks all that a store promises.
func (r *Restored) examine(ctx context.Context, backup, path string, secret AEAD, tell func(rows int)) error {
	d, err := openFile(path, Options{Seal: secret, called: backup})
	if err != nil {
		return err
	}
	health := d.examine(ctx, tell, true)
	r.Meta, r.Rows = health.Meta, health.Rows
	r.Positions, err = d.Checkpoints()
	if len(health.Findings) > 0 { // nothing is written to a file that is damaged
		return errors.Join(fmt.Errorf("this backup is not put in place, it is not sound: %w", errors.Join(health.Findings...)), d.Close())
	}
	// It goes on as one file, and the log of the one that it may take the place of is not its.
	return errors.Join(err, d.file.Settle(), d.file.Replaces(r.Path), d.Close())
}

func copyPages(ctx context.Context, from, to string, n int64) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(&contextWriter{ctx: ctx, w: out}, io.LimitReader(in, n), make([]byte, copyBuffer))
	return errors.Join(err, out.Sync(), out.Close())
}

// replaceStore puts a file in the place of the store that is in a folder, which
// keeps a second name, unless a process holds it. At every moment there is one
// store or the other: a start that found none would begin a new one.
func replaceStore(dir, with string) (aside string, err error) {
	path := filepath.Join(dir, FileName)
	file, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockWait})
	if err != nil && Held(err) {
		return "", explain(path, err)
	}
	if err == nil {
		defer func() { _ = file.Close() }() // nothing was written; nobody opens it meanwhile
	}
	aside = path + ".before-" + time.Now().UTC().Format("20060102T150405Z")
	// Its log goes with it.
	switch err := errors.Join(wal.EachWAL(path, aside, os.Link), os.Link(path, aside)); {
	case errors.Is(err, os.ErrExist):
		return "", fmt.Errorf("%s is there already: try again in a second", aside)
	case err != nil:
		return "", fmt.Errorf("keep the store that is there: %w", err)
	}
	if err := SyncDir(dir); err != nil {
		return aside, err
	}
	// So that no process opens the new one, and begins its WAL, before the old log is gone.
	mine, err := bolt.Open(with, 0o600, &bolt.Options{Timeout: lockWait, OpenFile: openExisting})
	if err != nil {
		return aside, explain(with, err)
	}
	defer func() { _ = mine.Close() }() // nothing was written
	// What the old store has sent is none of the new one's.
	if err := wal.RemoveKept(path); err != nil {
		return aside, err
	}
	// gofail: var restoreKept struct{}
	if err := errors.Join(putInPlace(with, path), SyncDir(dir)); err != nil {
		return aside, err
	}
	return aside, wal.RemoveWAL(path) // the next start does, too
}

// openExisting opens a file that is there, and makes none.
func openExisting(name string, flag int, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag&^os.O_CREATE, mode)
}

// putInPlace gives a checked file its name; what is in its way has another one.
func putInPlace(temp, path string) error {
	err := os.Rename(temp, path)
	// gofail: var restoreRenamed struct{}
	return err
}

// SyncDir makes a rename in a folder durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
