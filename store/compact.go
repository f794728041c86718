package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"edda"
	"edda/store/wal"
)

// A compaction copies a snapshot into a new file while commits go on, applies the entries of their
// transactions to the copy, and replaces the file by it between two commits. The copy has the same
// rows and the same last transaction, so it is the file without its free pages.

const (
	// maxDelta bounds the memory of the entries.
	maxDelta = 128 << 20
	// maxLast bounds the entries that are applied while commits wait, for some milliseconds.
	maxLast = 256 << 10
	// maxRounds bounds the rounds of catching up: after so many, commits are faster than the copy.
	maxRounds = 64
	// slack is free after the last page, so that the next commit, which audits the compaction, does
	// not make the file grow by bbolt's 16 MiB.
	slack = 64 << 10
)

// compacting is the name of the new file until it replaces the old one.
const compacting = FileName + ".compacting"

// Compaction reports a compaction.
type Compaction struct {
	// Before and After are the bytes of the pages, as in [Size]. What is reserved after them takes no
	// room on disk.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	// Pause is how long commits waited.
	Pause time.Duration `json:"pause"`
	Took  time.Duration `json:"took"`
}

// Compact returns the file's free space to the file system. The committer must run. It calls tell
// now and then with the rows it has copied.
func (d *DB) Compact(ctx context.Context, tell func(rows int)) (Compaction, error) {
	return d.compact(ctx, tell, func(act func()) error {
		select {
		case d.safe <- act:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// compact is Compact. between runs act, or has it run, while no transaction is written.
func (d *DB) compact(ctx context.Context, tell func(rows int), between func(act func()) error) (c Compaction, err error) {
	if !d.compaction.TryLock() {
		return c, edda.Classify(edda.Temporary, "the store is being compacted or checked already")
	}
	defer d.compaction.Unlock()
	began := time.Now()
	x := &compactor{db: d, between: between, copyProgress: copyProgress{ctx: ctx, tell: tell}, temp: filepath.Join(filepath.Dir(d.path), compacting)}
	if err := x.open(); err != nil {
		return c, fmt.Errorf("compact: %w", err)
	}
	file := d.file // no other compaction replaces it
	file.Follow(x.delta.add)
	defer file.Follow(nil)
	if err := d.sound(x.run); err != nil {
		return c, errors.Join(fmt.Errorf("compact: nothing has changed: %w", err), x.abandon())
	}
	c.Before, c.After, c.Pause = x.before, x.after, x.pause
	err = x.old.Close() // it waits for readers
	c.Took = time.Since(began)
	return c, err
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

type compactor struct {
	db *DB
	copyProgress
	between func(act func()) error
	temp    string
	raw     *boltFile // the new file
	file    *wal.DB   // the new file, once it was copied
	old     *wal.DB   // the old file, once it was replaced
	delta   delta
	pause   time.Duration

	before, after int64 // bytes of the pages of the old file and the new
}

func (x *compactor) open() error {
	size, err := x.db.Size()
	if err == nil {
		tables := x.db.file.Memtables()
		err = room(x.temp, size.Bytes-size.Free+int64(tables.Active+tables.Immutable))
	}
	if err != nil {
		return err
	}
	x.before = size.Bytes
	if err := os.Remove(x.temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return explain(x.temp, err)
	}
	o := x.db.options
	o.noSync, o.openFile = true, nil // it is synced before it replaces the old file
	x.raw, err = openBolt(x.temp, o)
	return err
}

func (x *compactor) abandon() error { return errors.Join(x.raw.Close(), os.Remove(x.temp)) }

func (x *compactor) run() error {
	if err := x.copy(); err != nil {
		return err
	}
	// gofail: var compactCopied struct{}
	if err := x.catchUp(); err != nil {
		return err
	}
	// gofail: var compactCaughtUp struct{}
	done := make(chan error, 1)
	if err := x.between(func() { done <- x.replace() }); err != nil {
		return err
	}
	return <-done
}

// copy copies a snapshot, and compares the copy with it.
func (x *compactor) copy() error {
	sum := sha256.New()
	o := x.db.options
	o.unlogged = true
	err := x.db.view(func(tx *wal.Tx) error {
		o.from = tx.Point()
		w := &copier{file: x.raw, packer: wal.Packer{Plain: x.db.options.plain}}
		defer w.rollback()
		return errors.Join(x.walk(tx, sum, w.put), w.commit())
	})
	if err != nil {
		return err
	}
	if x.file, err = wal.Load(x.raw.DB, walOptions(x.raw.file, o)); err != nil {
		return err
	}
	again := sha256.New()
	err = x.file.View(func(tx *wal.Tx) error {
		return x.walk(tx, again, func([]byte, []byte, []byte, []byte) error { return nil })
	})
	if err == nil && string(sum.Sum(nil)) != string(again.Sum(nil)) {
		err = errors.New("the copy differs from the store")
	}
	return err
}

// catchUp applies what was committed meanwhile, and syncs, until few bytes remain to be applied and
// synced while commits wait.
func (x *compactor) catchUp() error {
	for range maxRounds {
		applied, err := x.drain()
		if err != nil {
			return err
		}
		if err := errors.Join(x.file.Settle(), x.raw.Sync()); err != nil {
			return err
		}
		if applied <= maxLast/2 {
			return nil
		}
	}
	return errBusy
}

var errAhead = edda.Classify(edda.Temporary, "nobody knows whether the last commit is on disk: restart, then compact")

var errBusy = edda.Classify(edda.Temporary, "more is committed than the copy can take: compact at a quieter time")

// drain applies the entries until none remain, and returns their bytes.
func (x *compactor) drain() (applied int, err error) {
	for left := 1; left > 0; {
		if err := context.Cause(x.ctx); err != nil {
			return applied, err
		}
		var done []logged
		if done, left, err = x.delta.take(maxLast); err != nil {
			return applied, err
		}
		if err := x.apply(done); err != nil {
			return applied, err
		}
		for _, l := range done {
			applied += len(l.entry)
		}
		if applied > maxDelta {
			return applied, errBusy
		}
	}
	return applied, nil
}

// apply applies entries. The snapshot may have the first of them already.
func (x *compactor) apply(done []logged) error {
	for _, l := range done {
		if err := x.file.Apply(l.transaction, l.entry); err != nil {
			return err
		}
	}
	return nil
}

// replace runs between two commits.
func (x *compactor) replace() error {
	began := time.Now()
	if x.db.file.Ahead() { // the copy lacks a transaction that the old WAL may have
		return errAhead
	}
	rest, left, err := x.delta.take(maxLast)
	switch {
	case err != nil:
		return err
	case left > 0:
		return errBusy
	}
	if err := x.apply(rest); err != nil {
		return err
	}
	if is, want := x.file.Point(), x.db.file.Point(); is != want {
		return fmt.Errorf("the copy is at transaction %d (%08x), the store at %d (%08x)", is.Transaction, is.Sum, want.Transaction, want.Sum)
	}
	if err := errors.Join(x.file.Settle(), x.file.Replaces(x.db.path), x.shorten(), x.raw.Sync()); err != nil {
		return err
	}
	// gofail: var compactSynced struct{}
	if err := os.Rename(x.temp, x.db.path); err != nil {
		return err
	}
	// gofail: var compactRenamed struct{}
	x.db.take(x)
	// gofail: var compactTaken struct{}
	x.pause = time.Since(began)
	return nil
}

// shorten cuts off what bbolt reserved after the last page. A power cut that undoes it only leaves
// the file longer.
func (x *compactor) shorten() error {
	if err := x.file.View(func(tx *wal.Tx) error {
		x.after = tx.Size()
		return nil
	}); err != nil {
		return err
	}
	return os.Truncate(x.temp, x.after+slack)
}

// take makes the new file the one of the store.
func (d *DB) take(x *compactor) {
	x.raw.NoSync = d.options.noSync
	x.file.TakeOver(d.path)
	d.swap.Lock()
	d.before = d.before.and(d.file)
	d.file.Retire() // before the new file begins a WAL of the same name
	x.old, d.file = d.file, x.file
	d.swap.Unlock()
	if err := SyncDir(filepath.Dir(d.path)); err != nil {
		// A power cut could bring the old file back, without later commits.
		d.broken = fmt.Errorf("nobody knows whether the compacted file is in its place on disk, and %w: %w", ErrBroken, err)
	}
}

// logged is a transaction of the WAL.
type logged struct {
	transaction uint64
	entry       []byte
}

// delta has the transactions since a compaction began.
type delta struct {
	mu   sync.Mutex // guards the fields below
	list []logged
	size int
	err  error
}

// add adds a transaction.
func (l *delta) add(transaction uint64, entry []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if l.size += len(entry); l.size > maxDelta {
		l.list, l.err = nil, errBusy
		return
	}
	l.list = append(l.list, logged{transaction, bytes.Clone(entry)})
}

// take removes the first transactions, up to some bytes but at least one, and returns how many
// remain.
func (l *delta) take(most int) (out []logged, left int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := 0; len(l.list) > 0 && (len(out) == 0 || n+len(l.list[0].entry) <= most); l.list = l.list[1:] {
		n += len(l.list[0].entry)
		l.size -= len(l.list[0].entry)
		out = append(out, l.list[0])
		l.list[0] = logged{} // else the list holds the entry until it grows
	}
	return out, len(l.list), l.err
}
