package store

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.uber.org/zap"

	"edda"
	"edda/internal/logthrottle"
	"edda/store/format"
	"edda/store/wal"
)

// FileName is the store's file within the data folder.
const FileName = "edda.db"

// lockWait is how long Open waits for another process to unlock the file: long enough for one that
// is exiting.
const lockWait = time.Second

// initialMap is the address space that the file reserves, which is neither memory nor disk. Once
// the file outgrows it, a commit waits for all readers to map it again, and a backup reads for as
// long as its client takes. 64 GiB where addresses have 64 bits, else 1 GiB.
const initialMap = 1 << (30 + 6*(^uint(0)>>63))

// Open opens or creates the store in a folder and checks its format.
func Open(dir string, o Options) (*DB, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, explain(dir, err)
	}
	d, err := openFile(filepath.Join(dir, FileName), o)
	if err != nil {
		return nil, err
	}
	for _, left := range []string{compacting, checking, restoring, extracting} {
		// A process that was killed may have left these.
		_ = errors.Join(os.Remove(filepath.Join(dir, left)), wal.RemoveWAL(filepath.Join(dir, left)))
	}
	return d, nil
}

// OpenToCheck opens a store that is only to be read. It is opened read-only where the file system
// is, or where this user may not write it. One of several copies is opened also where its WAL lacks what
// its node reads from the log again; see [DB.CutCopy]. No transaction is written to it.
func OpenToCheck(dir string, o Options) (d *DB, readOnly bool, err error) {
	of, err := ReplicatedOf(dir)
	if err != nil {
		return nil, false, err
	}
	o.copied = of != nil
	d, err = Open(dir, o)
	if !errors.Is(err, syscall.EROFS) && !errors.Is(err, fs.ErrPermission) {
		return d, false, err
	}
	o.ReadOnly = true
	d, err = openFile(filepath.Join(dir, FileName), o)
	return d, true, err
}

// noWAL refuses a WAL without its file. No new store may begin beside it, because its transactions
// are nowhere else.
func noWAL(path string) error {
	return wal.EachWAL(path, path, func(log, _ string) error {
		return edda.Classify(edda.Permanent, "%s is the log of a store that is not beside it: move it to where that is, or put that back", log)
	})
}

// openFile opens or creates the store in a file.
func openFile(path string, o Options) (*DB, error) {
	o.validate()
	o.called = cmp.Or(o.called, path)
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		if err := noWAL(path); err != nil {
			return nil, err
		}
		if err := wal.RemoveKept(path); err != nil { // of a file that was removed
			return nil, err
		}
	}
	var d *DB
	err := guarded(o.called, func() error {
		file, err := openBolt(path, o)
		if err != nil {
			return err
		}
		if d, err = load(path, file, o); err != nil {
			return errors.Join(err, file.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if cut := d.CutWAL(); cut != "" {
		o.Log.Warn(cut)
	}
	return d, nil
}

// openBolt opens and locks the file at path. It refuses a file that another process replaced by a
// compacted one while this one waited for the lock.
func openBolt(path string, o Options) (*boltFile, error) {
	opened := &openedFile{open: o.openFile}
	file, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout:         lockWait,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: o.initialMap,
		OpenFile:        opened.file,
		NoSync:          o.noSync,
		ReadOnly:        o.ReadOnly,
	})
	if err != nil {
		return nil, explain(path, err)
	}
	if !opened.isAt(path) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was opened: start again", path), file.Close())
	}
	return &boltFile{DB: file, file: opened.first}, nil
}

// boltFile is a bbolt database and its file.
type boltFile struct {
	*bolt.DB
	file *os.File // closed with it
}

// openedFile remembers the file that was opened first, which bbolt locks.
type openedFile struct {
	open  func(string, int, os.FileMode) (*os.File, error)
	first *os.File
	info  os.FileInfo
}

func (o *openedFile) file(name string, flag int, mode os.FileMode) (*os.File, error) {
	open := o.open
	if open == nil {
		open = os.OpenFile
	}
	f, err := open(name, flag, mode)
	if err == nil && o.first == nil {
		o.first = f
		o.info, err = f.Stat()
	}
	return f, err
}

func (o *openedFile) isAt(path string) bool {
	there, err := os.Stat(path)
	return err == nil && o.info != nil && os.SameFile(there, o.info)
}

// Held reports whether opening failed because another process holds the store.
func Held(err error) bool { return errors.Is(err, berrors.ErrTimeout) }

func (o *Options) validate() {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxDeadBytes <= 0 {
		o.MaxDeadBytes = DefaultMaxDeadBytes
	}
	if o.initialMap == 0 {
		o.initialMap = initialMap
	}
}

// explain adds what to do to an error of opening a file.
func explain(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("cannot write %s: %w: choose another --data or change its owner", path, cause(err))
	case errors.Is(err, berrors.ErrTimeout):
		return &heldError{path}
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return fmt.Errorf("%s is not a store, or is damaged (%w): choose another --data or restore a backup", path, err)
	}
	return fmt.Errorf("open the store %s: %w", path, cause(err))
}

// heldError says that another process has the store open.
type heldError struct{ path string }

func (e *heldError) Error() string {
	return fmt.Sprintf("another process holds %s: stop it, or choose another --data", e.path)
}
func (e *heldError) Unwrap() error { return berrors.ErrTimeout }

// cause strips the operation and the path, which the message has already.
func cause(err error) error {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err
	}
	return err
}

func load(path string, raw *boltFile, o Options) (*DB, error) {
	d := newDB(path, o)
	if err := d.prepare(raw.DB); err != nil {
		return nil, err
	}
	var err error
	if d.file, err = wal.Load(raw.DB, walOptions(raw.file, o)); err != nil {
		return nil, fmt.Errorf("%s: %w", o.called, err)
	}
	return d, d.remember()
}

func newDB(path string, o Options) *DB {
	return &DB{
		path: path, options: o, queue: newQueue(),
		committed: make(chan struct{}, 1), added: make(chan Added, addedCommits), armed: make(chan struct{}, 1),
		safe: make(chan func()),
	}
}

// remember reads what the store keeps in memory.
func (d *DB) remember() error {
	if err := d.file.View(func(tx *wal.Tx) (err error) {
		meta := tx.Bucket([]byte(format.Meta))
		d.id, d.tenant, d.origins, d.stamp = string(meta.Get(format.MetaID)), string(meta.Get(format.MetaTenant)), string(meta.Get(format.MetaOrigins)), stampOf(tx)
		d.share, err = shareOf(meta)
		return err
	}); err != nil {
		return err
	}
	if d.options.standby { // it reads no rows
		return nil
	}
	d.seal = format.Seal{AEAD: d.options.Seal, Store: d.id}
	if err := d.unlock(); err != nil {
		return err
	}
	return d.file.View(func(tx *wal.Tx) (err error) {
		if d.index, err = d.loadIndex(tx); err != nil {
			return err
		}
		return d.hours.begin(tx)
	})
}

// walOptions are those of a file's WAL. Failed flushes are logged now and then, because they are tried again. Commits
// fail once the WAL is full.
func walOptions(file *os.File, o Options) wal.Options {
	return wal.Options{File: file, Bound: o.flushAt, Plain: o.plain, Unlogged: o.unlogged, From: o.from, Ship: o.Ship, Standby: o.standby, ReadStandby: o.copied, OpenFile: o.openFile, Keep: o.KeepSent, Kept: logthrottle.New(o.Log, "keep what was sent").Note, Flushes: logthrottle.New(o.Log, "flush the store's WAL").Note, Spaces: map[string]wal.Space{
		string(format.Outbox):  {Fill: appendFill},
		string(format.Audit):   {Fill: appendFill},
		string(format.History): {Fill: appendFill, Nested: true},
		string(format.Ended):   {Fill: appendFill},
		string(format.Saga):    {Fill: instanceFill},
		string(format.Claim):   {Fill: appendFill, Nested: true},
	}}
}

// prepare checks the format and creates what is missing. It writes the buckets themselves, because
// an older edda, which knows no WAL, reads the format there.
func (d *DB) prepare(raw *bolt.DB) error {
	complete := true
	err := raw.View(func(tx *bolt.Tx) error {
		for _, name := range format.Keyspaces {
			complete = complete && tx.Bucket([]byte(name)) != nil
		}
		return checkFormat(d.options.called, tx)
	})
	if err != nil || complete {
		return err
	}
	if d.options.ReadOnly {
		return fmt.Errorf("%s was never begun, or lacks a keyspace, and cannot be written: check a copy of it, with the two files of its log, elsewhere", d.options.called)
	}
	if err := raw.Update(d.create); err != nil {
		return explain(d.path, err)
	}
	return nil
}

func checkFormat(path string, tx *bolt.Tx) error {
	meta := tx.Bucket([]byte(format.Meta))
	if meta == nil {
		if k, _ := tx.Cursor().First(); k != nil {
			return fmt.Errorf("%s is not a store of edda: choose another --data", path)
		}
		return nil // new, or a crash before its first transaction
	}
	text := string(meta.Get(format.MetaFormat))
	version, err := strconv.Atoi(text)
	if err != nil || version < 1 {
		return fmt.Errorf("%s is not a store of edda: its format is %q: choose another --data", path, text)
	}
	if version > format.Version {
		return fmt.Errorf("%s was written by a newer edda (format %d, this one reads %d): use that version or restore a backup", path, version, format.Version)
	}
	if version < format.Version {
		return fmt.Errorf("%s was written before the first release (format %d, this one reads %d), and no released version reads it: choose another --data, or restore a backup of format %d", path, version, format.Version, format.Version)
	}
	return nil
}

// create creates the buckets that a store lacks, and the meta rows of a new one.
func (d *DB) create(tx *bolt.Tx) error {
	for _, name := range format.Keyspaces {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	meta := tx.Bucket([]byte(format.Meta))
	if meta.Get(format.MetaID) != nil {
		return nil
	}
	if d.options.standby {
		return errors.New("a replica is restored from a backup, and this file was never a store")
	}
	now := d.options.Now().UTC()
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the store's id: %w", err)
	}
	if share := d.options.Share; !share.Whole() {
		text, err := json.Marshal(share)
		if err == nil {
			err = meta.Put(format.MetaShare, text)
		}
		if err != nil {
			return fmt.Errorf("note which keys the store has: %w", err)
		}
	}
	return errors.Join(
		meta.Put(format.MetaFormat, []byte(strconv.Itoa(format.Version))),
		meta.Put(format.MetaID, []byte(id.String())),
		meta.Put(format.MetaCreated, []byte(now.Format(time.RFC3339Nano))),
		meta.Put(format.MetaCommit, format.Stamp{}.Bytes()),
	)
}

func stampOf(tx *wal.Tx) format.Stamp {
	return format.CutStamp(tx.Bucket([]byte(format.Meta)).Get(format.MetaCommit))
}

// unlock refuses a keyset that is not this store's. With a keyset, a store that was not encrypted is
// from now on; its older values stay readable. It writes only if the newest key is another one, because a
// store that no process ships from would have a transaction that its log lacks.
func (d *DB) unlock() error {
	var locked []byte
	if err := d.file.View(func(tx *wal.Tx) error {
		locked = slices.Clone(tx.Bucket([]byte(format.Meta)).Get(format.MetaSealed))
		return nil
	}); err != nil {
		return err
	}
	if locked == nil && d.seal.AEAD == nil {
		return nil
	}
	if err := d.seal.Unlock(locked, d.options.called); err != nil {
		return err
	}
	if d.options.ReadOnly || d.options.copied {
		return nil
	}
	return d.lock(locked)
}

// keyPrefix is the length of what Tink's ciphertexts begin with: a byte, and the id of the key as u32. The
// ids of a keyset differ. Without such a prefix two ciphertexts begin with different nonces.
const keyPrefix = 5

// lock writes the row with the newest key, so that from now on a keyset without that key is refused.
func (d *DB) lock(before []byte) error {
	locked, err := d.seal.AEAD.Encrypt(nil, d.seal.Place(format.Meta, format.MetaSealed))
	if err != nil {
		return fmt.Errorf("use the keyset: %w", err)
	}
	if len(before) == len(locked) && len(locked) > keyPrefix && string(before[:keyPrefix]) == string(locked[:keyPrefix]) {
		return nil
	}
	if err := d.file.Update(func(tx *wal.Tx) error { return tx.Bucket([]byte(format.Meta)).Put(format.MetaSealed, locked) }); err != nil {
		return explain(d.path, err)
	}
	return nil
}
