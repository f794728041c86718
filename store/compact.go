package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"sync"
	"time"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// A compaction copies what there is into a new file while commits go on,
// remembers the change sets of these commits, applies them to the copy, and puts
// it in the place of the file between two commits. A change set gives the same
// rows wherever it is applied, so the copy is the file, without its free pages.

const (
	// maxDelta bounds the memory for what is committed meanwhile.
	maxDelta = 128 << 20
	// maxLast bounds what is applied while commits wait: a few milliseconds' worth.
	maxLast = 1 << 20
	// maxRounds of catching up, after which commits are faster than the copy.
	maxRounds = 64
	// slack is left behind the last page, so that the commit right after, which
	// tells of the compaction, does not make the file grow by bbolt's 16 MiB.
	slack = 64 << 10
)

// compacting is the new file until it takes its place.
const compacting = FileName + ".compacting"

// Compaction is what a compaction did.
type Compaction struct {
	// Before and After are [Size].Bytes: the pages that the file has come to. What
	// is reserved behind them takes no room on disk.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	// Pause is how long commits waited; they went on during all the rest.
	Pause time.Duration `json:"pause"`
	Took  time.Duration `json:"took"`
}

// Compact gives the file's free space back while the committer runs, until ctx
// ends. It tells now and then how many rows it has copied.
func (d *DB) Compact(ctx context.Context, tell func(rows int)) (c Compaction, err error) {
	if !d.compaction.TryLock() {
		return c, edda.Classify(edda.Temporary, "the store is being compacted or checked already")
	}
	defer d.compaction.Unlock()
	began := time.Now()
	x := &compactor{db: d, progress: progress{ctx: ctx, tell: tell}, temp: filepath.Join(filepath.Dir(d.path), compacting)}
	d.delta.begin()
	defer d.delta.end()
	if err := x.open(); err != nil {
		return c, fmt.Errorf("compact: %w", err)
	}
	if err := d.sound(x.run); err != nil {
		return c, errors.Join(fmt.Errorf("compact: nothing has changed: %w", err), x.abandon())
	}
	c.Before, c.After, c.Pause = x.before, x.after, x.pause
	err = x.old.Close() // it waits for those who still read
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
	progress
	temp  string
	raw   *boltFile // the new one
	file  *wal.DB   // the same, once it was copied
	old   *wal.DB   // set once it is replaced
	index *index    // of the new one
	pause time.Duration

	before, after int64 // where the pages end, of the old file and the new
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
	o.noSync, o.openFile = true, nil // it is synced as a whole, before it takes its place
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
	select {
	case x.db.safe <- func() { done <- x.replace() }:
		return <-done
	case <-x.ctx.Done():
		return context.Cause(x.ctx)
	}
}

// copy copies a snapshot, and reads the copy again to compare.
func (x *compactor) copy() error {
	sum := sha256.New()
	err := x.db.view(func(tx *wal.Tx) error {
		w := &copier{file: x.raw, packer: wal.Packer{Plain: x.db.options.plain}}
		defer w.rollback()
		return errors.Join(x.walk(tx, sum, w.put), w.commit())
	})
	if err != nil {
		return err
	}
	o := x.db.options
	o.unlogged = true
	if x.file, err = withWAL(x.raw, o); err != nil {
		return err
	}
	again := sha256.New()
	err = x.file.View(func(tx *wal.Tx) (err error) {
		if x.index, err = x.db.loadIndex(tx); err != nil {
			return err
		}
		return x.walk(tx, again, func([]byte, []byte, []byte, []byte) error { return nil })
	})
	if err == nil && string(sum.Sum(nil)) != string(again.Sum(nil)) {
		err = errors.New("the copy differs from the store")
	}
	return err
}

// walk passes every bucket and row, as eachRow does, and sums them up.
func (x *compactor) walk(tx *wal.Tx, sum hash.Hash, fn func(space, part, k, v []byte) error) error {
	return eachRow(tx, func(space, part, k, v []byte) error {
		if err := x.progress.row(); err != nil {
			return err
		}
		for _, b := range [][]byte{space, part, k, v} {
			sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
			sum.Write(b)
		}
		return fn(space, part, k, v)
	})
}

// catchUp applies what was committed meanwhile until little is left. It syncs
// each time, so that little is left to sync either while commits wait.
func (x *compactor) catchUp() error {
	for range maxRounds {
		applied, err := x.drain()
		if err != nil {
			return err
		}
		if err := x.raw.Sync(); err != nil {
			return err
		}
		if applied <= maxLast/2 {
			return nil
		}
	}
	return errBusy
}

var errBusy = edda.Classify(edda.Temporary, "more is committed than the copy can take: compact at a quieter time")

// drain applies what there is now, and says how many bytes that was.
func (x *compactor) drain() (applied int, err error) {
	for left := 1; left > 0; {
		if err := context.Cause(x.ctx); err != nil {
			return applied, err
		}
		var done []committed
		if done, left, err = x.db.delta.take(maxGroupBytes); err != nil {
			return applied, err
		}
		if err := x.apply(done); err != nil {
			return applied, err
		}
		for _, c := range done {
			applied += c.size
		}
		if applied > maxDelta {
			return applied, errBusy
		}
	}
	return applied, nil
}

func (x *compactor) apply(done []committed) error {
	if len(done) == 0 {
		return nil
	}
	tx, err := x.file.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	for _, c := range done {
		// The copy was made of a commit that its committer had not noted yet.
		if c.stamp.Commit <= stampOf(tx).Commit {
			continue
		}
		s := newStaged(x.index)
		if err := x.db.fill(tx, c.stamp, s, c.group); err != nil {
			return err
		}
		x.index.apply(s)
	}
	return tx.Commit()
}

// replace runs between two commits.
func (x *compactor) replace() error {
	began := time.Now()
	rest, left, err := x.db.delta.take(maxLast)
	switch {
	case err != nil:
		return err
	case left > 0:
		return errBusy
	}
	if err := x.apply(rest); err != nil {
		return err
	}
	s, err := readStamp(x.file)
	if err != nil || s != x.db.stamp {
		return errors.Join(fmt.Errorf("the copy is at commit %d, the store at %d", s.Commit, x.db.stamp.Commit), err)
	}
	if err := errors.Join(x.file.Replaces(x.db.path), x.shorten(), x.raw.Sync()); err != nil {
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

// shorten cuts off what bbolt reserved behind the last page while the copy grew.
// Nothing is there; a power cut that undoes it only leaves the file longer.
func (x *compactor) shorten() error {
	if err := x.file.View(func(tx *wal.Tx) error {
		x.after = tx.Size()
		return nil
	}); err != nil {
		return err
	}
	return os.Truncate(x.temp, x.after+slack)
}

// take makes the new file the store's.
func (d *DB) take(x *compactor) {
	x.raw.NoSync = d.options.noSync
	x.file.TakeOver(d.path)
	d.swap.Lock()
	d.before = d.before.and(d.file)
	d.file.Retire() // before the new one makes a log in the place of its
	x.old, d.file = d.file, x.file
	d.swap.Unlock()
	if err := SyncDir(filepath.Dir(d.path)); err != nil {
		// After a power cut the old file could be back, without what comes now.
		d.broken = fmt.Errorf("nobody knows whether the compacted file is in its place on disk; restart to read what is: %w", err)
	}
}

// committed is one transaction of the committer.
type committed struct {
	stamp format.Stamp
	group []*job
	size  int
}

// delta are the transactions since a compaction began; empty where none runs.
type delta struct {
	mu   sync.Mutex // guards all below
	on   bool
	done []committed
	size int
	err  error
}

func (l *delta) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on, l.done, l.size, l.err = true, nil, 0, nil
}

func (l *delta) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on, l.done, l.size = false, nil, 0
}

// add notes one transaction, and tells whether it keeps it.
func (l *delta) add(s format.Stamp, group []*job) (kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on || l.err != nil {
		return false
	}
	c := committed{stamp: s, group: group, size: sizeOf(group)}
	if l.size += c.size; l.size > maxDelta {
		l.err = errBusy
		l.done = nil
		return false
	}
	l.done = append(l.done, c)
	return true
}

// take removes the first transactions, as many as go together, and says how
// many bytes are left.
func (l *delta) take(most int) (out []committed, left int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := 0; len(l.done) > 0 && (len(out) == 0 || n+l.done[0].size <= most); l.done = l.done[1:] {
		n += l.done[0].size
		l.size -= l.done[0].size
		out = append(out, l.done[0])
	}
	return out, len(l.done), l.err
}
