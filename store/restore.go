package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"edda"
	"edda/store/wal"
)

// Restored is what a restore put in place.
type Restored struct {
	Meta
	Rows int    `json:"rows"` // all of them sound
	Path string `json:"path"`
	// Aside is the new name of the store that was there before.
	Aside string `json:"aside,omitempty"`
	// Sum is the backup's checksum; empty where it has none.
	Sum string `json:"sha256,omitempty"`
	// Positions are the positions from which the streams are read on.
	Positions []edda.Checkpoint `json:"positions"`
}

const (
	// restoring is the name of the new file until it was checked.
	restoring = FileName + ".restoring"
	// removing is the name of a store that a replica has replaced, until it is removed.
	removing = FileName + ".removing"
)

// Restore checks all of a backup and puts it into a folder, which it creates, and removes again if
// it fails. An existing store is an error, unless replace moves it aside. secret decrypts an
// encrypted backup; it is nil for others. Afterwards the store is [DB.Restored].
func Restore(ctx context.Context, backup, dir string, replace bool, secret AEAD, tell func(rows int)) (Restored, error) {
	return restoreStore(ctx, backup, dir, replace, secret, tell, func(edda.Share) error { return nil })
}

// RestoreShard is [Restore] for the store of a shard. A backup of another one is refused, and nothing is put in place.
func RestoreShard(ctx context.Context, backup, dir string, shard edda.Shard, replace bool, secret AEAD, tell func(rows int)) (Restored, error) {
	return restoreStore(ctx, backup, dir, replace, secret, tell, func(is edda.Share) error {
		if is.Shard != shard {
			return edda.Classify(edda.Permanent, "%s has %s, and not shard %d of %d", backup, is, shard.Index, shard.Of)
		}
		return nil
	})
}

// restoreStore is [Restore] of a backup whose share is accepted.
func restoreStore(ctx context.Context, backup, dir string, replace bool, secret AEAD, tell func(rows int), accept func(edda.Share) error) (Restored, error) {
	r, err := restoreInto(ctx, backup, dir, asideNow(), replace, func(r *Restored, path string) error {
		if err := r.examine(ctx, backup, path, secret, tell); err != nil {
			return err
		}
		if err := accept(r.Share); err != nil {
			return err
		}
		// gofail: var restoreExamined struct{}
		return markRestored(dir)
	})
	if err == nil {
		err = UnmarkReplicated(dir) // the store that was there
	}
	return r, err
}

// RestoreReplica puts a backup into a folder for [OpenReplica]: the replica goes on with the
// transaction after the last one in the backup. It is not [DB.Restored], because it gets what happened
// since from the store. The backup needs its checksum, and its rows are not decoded. id is the id of the
// store; a backup of another one is refused, and nothing is put in place.
func RestoreReplica(ctx context.Context, backup, dir, id string, replace Replace) (Restored, error) {
	aside := replace.aside()
	r, err := restoreInto(ctx, backup, dir, aside, replace != ReplaceNone, func(r *Restored, path string) error {
		if r.Sum == "" {
			return fmt.Errorf("%s cannot become a replica: %w", backup, ErrNoChecksum)
		}
		if err := r.examineReplica(backup, path, id); err != nil {
			return err
		}
		if replace != ReplaceForGood {
			return nil
		}
		return removeStore(filepath.Join(dir, aside)) // of a time that was cut off
	})
	if err == nil {
		err = unmarkRestored(dir) // of a store that was there
	}
	if err == nil && replace == ReplaceForGood && r.Aside != "" {
		err, r.Aside = removeStore(r.Aside), ""
	}
	return r, err
}

// Replace says what becomes of the store that [RestoreReplica] finds in the folder.
type Replace int

const (
	ReplaceNone    Replace = iota // it stays, and the replica is refused
	ReplaceAside                  // it is moved aside, as [Restore] does
	ReplaceForGood                // it is removed
)

// aside is the name of the store that is replaced.
func (r Replace) aside() string {
	if r == ReplaceForGood {
		return removing
	}
	return asideNow()
}

// asideNow names a store that is moved aside now.
func asideNow() string { return FileName + ".before-" + time.Now().UTC().Format("20060102T150405Z") }

func restoreInto(ctx context.Context, backup, dir, aside string, replace bool, examine func(r *Restored, path string) error) (r Restored, err error) {
	missing := missingFolders(dir)
	defer func() {
		if err != nil {
			removeEmpty(missing)
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return r, explain(dir, err)
	}
	return restore(ctx, backup, dir, aside, replace, examine)
}

// missingFolders are the folders to create for dir, the innermost first.
func missingFolders(dir string) (out []string) {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return out
		}
		out = append(out, dir)
	}
}

// removeEmpty removes the folders that are empty.
func removeEmpty(folders []string) {
	for _, dir := range folders {
		_ = os.Remove(dir)
	}
}

func restore(ctx context.Context, backup, dir, aside string, replace bool, examine func(r *Restored, path string) error) (r Restored, err error) {
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
	defer func() { _ = os.Remove(temp) }() // after a success it is gone
	if err := copyPages(ctx, backup, temp, pages); err != nil {
		return r, fmt.Errorf("copy %s: %w", backup, err)
	}
	// gofail: var restoreCopied struct{}
	if err := whole(backup, temp); err != nil {
		return r, err
	}
	// A copy of a store that was not stopped has a WAL beside it. A WAL that a killed restore left is
	// another's.
	if err := wal.RemoveWAL(temp); err != nil {
		return r, err
	}
	defer func() { _ = wal.RemoveWAL(temp) }() // after a success it is gone
	if err := wal.EachWAL(backup, temp, func(from, to string) error { return copyPages(ctx, from, to, math.MaxInt64) }); err != nil {
		return r, fmt.Errorf("copy the log of %s: %w", backup, err)
	}
	if err := examine(&r, temp); err != nil {
		return r, err
	}
	if there {
		r.Aside, err = replaceStore(dir, aside, temp)
		return r, err
	}
	return r, errors.Join(putInPlace(temp, r.Path), SyncDir(dir))
}

// whole refuses a file that lacks pages, since a read beyond its end would crash. It reads bbolt's
// meta page: magic, version and page size as u32, and at byte 40 the number of pages as u64.
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

// boltMagic begins bbolt's meta pages, after the header of the page.
const boltMagic = 0xED0CDAED

// examine opens the copy, checks it, and settles it.
func (r *Restored) examine(ctx context.Context, backup, path string, secret AEAD, tell func(rows int)) error {
	d, err := openFile(path, Options{Seal: secret, called: backup})
	if err != nil {
		return err
	}
	health := d.examine(ctx, tell, true)
	r.Meta, r.Rows = health.Meta, health.Rows
	r.Positions, err = d.Checkpoints()
	if len(health.Findings) > 0 { // a damaged file is not written
		return errors.Join(fmt.Errorf("this backup is not put in place, it is not sound: %w", errors.Join(health.Findings...)), d.Close())
	}
	// It has no WAL then, and the WAL of a file that it replaces is not its own.
	return errors.Join(err, d.file.Settle(), d.file.Replaces(r.Path), d.Close())
}

// examineReplica opens the copy as a replica and checks its pages. The rows are as they were in the store,
// as the checksum shows.
func (r *Restored) examineReplica(backup, path, id string) error {
	d, err := openFile(path, Options{standby: true, called: backup})
	if err != nil {
		return err
	}
	switch {
	case d.Tenant() != "":
		err = edda.Classify(edda.Permanent, "%s is a backup of the tenant %s alone, and cannot become a replica: take one of the whole store", backup, d.Tenant())
	case d.ID() != id:
		err = edda.Classify(edda.Permanent, "%s is a backup of the store %s, and the replica is of %s: take one of that store", backup, d.ID(), id)
	}
	if err != nil {
		return errors.Join(err, d.Close())
	}
	found, _ := d.checkFile(true)
	if len(found) > 0 { // a damaged file is not written
		return errors.Join(fmt.Errorf("this backup is not put in place, it is not sound: %w", errors.Join(found...)), d.Close())
	}
	var read error
	r.Meta, err = d.Meta()
	r.Positions, read = d.Checkpoints()
	return errors.Join(err, read, d.file.Settle(), d.file.Replaces(r.Path), d.Close())
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

// replaceStore replaces the store in a folder by a file, unless a process holds it. The old store
// keeps a second name. At every moment one of the two has the store's name, because a start that
// finds none creates a new store.
func replaceStore(dir, name, with string) (aside string, err error) {
	path, aside := filepath.Join(dir, FileName), filepath.Join(dir, name)
	file, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockWait})
	if err != nil && Held(err) {
		return "", explain(path, err)
	}
	if err == nil {
		defer func() { _ = file.Close() }() // nothing was written; no process can open it meanwhile
	}
	// Its WAL gets a second name, too.
	switch err := errors.Join(wal.EachWAL(path, aside, os.Link), os.Link(path, aside)); {
	case errors.Is(err, os.ErrExist):
		return "", fmt.Errorf("%s is there already: try again in a second", aside)
	case err != nil:
		return "", fmt.Errorf("keep the store that is there: %w", err)
	}
	if err := SyncDir(dir); err != nil {
		return aside, err
	}
	// The lock keeps a process from opening the new file, and beginning its WAL, before the old WAL
	// is removed.
	mine, err := bolt.Open(with, 0o600, &bolt.Options{Timeout: lockWait, OpenFile: openExisting})
	if err != nil {
		return aside, explain(with, err)
	}
	defer func() { _ = mine.Close() }() // nothing was written
	// What the old store sent is not of the new one.
	if err := wal.RemoveKept(path); err != nil {
		return aside, err
	}
	// gofail: var restoreKept struct{}
	if err := errors.Join(putInPlace(with, path), SyncDir(dir)); err != nil {
		return aside, err
	}
	return aside, wal.RemoveWAL(path) // else the next start does
}

// openExisting opens a file and creates none.
func openExisting(name string, flag int, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag&^os.O_CREATE, mode)
}

// putInPlace gives a checked file its name. A file of that name has another one.
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

// restoredName is a file beside a restored store, until the store has applied what its streams have
// since the backup. For a store that was put back in another way it may be created by hand: its
// content does not matter.
const restoredName = FileName + ".restored"

// markRestored creates the file before the restored store gets its name. A file too many only makes
// a start wait.
func markRestored(dir string) error {
	if err := markFile(dir, restoredName, nil); err != nil {
		return fmt.Errorf("mark the store as restored: %w", err)
	}
	return nil
}

// markFile writes a small file.
func markFile(dir, name string, text []byte) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close(), SyncDir(dir))
}

// Restored reports whether the store is a backup that has not caught up yet. Its streams may have
// the results of work that it has still in its outbox, so nothing should be sent before.
func (d *DB) Restored() (bool, error) {
	switch _, err := os.Stat(d.restoredMark()); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look whether the store was restored: %w", err)
	}
	return true, nil
}

// CaughtUp notes that the store has caught up.
func (d *DB) CaughtUp() error { return unmarkRestored(filepath.Dir(d.path)) }

func unmarkRestored(dir string) error {
	if err := os.Remove(filepath.Join(dir, restoredName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note that the restored store has caught up: %w", err)
	}
	return SyncDir(dir)
}

func (d *DB) restoredMark() string { return filepath.Join(filepath.Dir(d.path), restoredName) }
