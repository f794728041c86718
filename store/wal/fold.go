package wal

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

// A frozen table is folded into its buckets in chunks, each a bbolt transaction of its
// own, by a goroutine that lives as long as there is one. Commits go on meanwhile, in
// the next table.

const (
	// chunkBytes and chunkRows bound a chunk: the pages that it holds in memory and
	// syncs at once, while a commit may wait for the same disk.
	chunkBytes = 512 << 10
	chunkRows  = 512
	// leastChunks a table is folded in, however small it may be: for tests, and for
	// the torture.
	leastChunks = 4
	// refold is when a chunk that failed is tried again: as often as a disk is asked
	// whether it has room.
	refold = time.Second
	// rest is the longest pause between two chunks, and restUntil the share of the next
	// table, in thousandths, that may fill meanwhile: see [DB.rest].
	rest      = 40 * time.Millisecond
	restUntil = 750
)

// pace is how much is folded at once: the bounds above.
type pace struct{ bytes, rows int }

// folding is how far a frozen table was folded.
type folding struct {
	froze  uint64   // which table
	layers []*layer // those not folded yet; of the first, the rows behind after
	after  []byte
	weight int // of the rows that were folded
}

// done is how much of a table was folded, in thousandths.
func (f *folding) done(t *table) int { return f.weight * 1000 / max(t.weight, 1) }

// startFolding folds the frozen table beside those who write, who hold the lock. Where a
// goroutine does already, also one that waits for the disk, that goes on.
func (db *DB) startFolding() {
	if db.options.byHand || db.options.Unlogged || !db.folder.CompareAndSwap(false, true) {
		return
	}
	db.folders.Go(func() {
		for again := true; again; {
			db.foldAll()
			db.folder.Store(false)
			// A table that was frozen since found that one folds.
			again = db.state.Load().frozen != nil && db.broken() == nil && db.goOn(false) && db.folder.CompareAndSwap(false, true)
		}
	})
}

// foldAll folds what is frozen, as often as it takes, unless nothing can be written any
// more: then it says so once.
func (db *DB) foldAll() {
	for failed := false; ; {
		more, err := db.foldChunk()
		if failed && err == nil {
			failed = false
			db.options.Folds(nil)
		}
		if err == nil && !more || !db.goOn(false) {
			return
		}
		if err == nil {
			db.rest()
			continue
		}
		failed = true
		db.options.Folds(fmt.Errorf("fold the log: %w", err))
		if db.broken() != nil || !db.goOn(true) {
			return
		}
	}
}

// rest leaves the processors and the disk to those who write. What is to be folded could
// be all at once, many milliseconds of work that commits would wait for; but there is
// as much time for it as the next table takes to fill. So a chunk begins once that is as
// full as this one is folded; and soon, where little is written. One that is full of
// deleted rows is folded at once: whoever reads what is due passes them all.
func (db *DB) rest() {
	db.folds.Lock()
	s, until := db.state.Load(), 0
	if s.frozen != nil && db.folding.froze == s.froze && s.frozen.tombstones < tombstoneBound {
		until = db.folding.done(s.frozen) * restUntil / 1000
	}
	db.folds.Unlock()
	db.pauses.begin(until)
	defer db.pauses.until.Store(math.MaxInt64)
	if db.fill(db.state.Load().active) >= until {
		return
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-db.pauses.over:
	case <-timer.C:
	case <-db.quit:
	}
}

// pauses are those of who folds.
type pauses struct {
	until atomic.Int64  // how full the active table is to be, in thousandths
	over  chan struct{} // capacity 1: it is
}

func newPauses() *pauses {
	p := &pauses{over: make(chan struct{}, 1)}
	p.until.Store(math.MaxInt64)
	return p
}

func (p *pauses) begin(until int) {
	select {
	case <-p.over: // what ended one before
	default:
	}
	p.until.Store(int64(until))
}

// end ends a pause, where there is one, once the table is as full as it says.
func (p *pauses) end(full int) {
	if int64(full) < p.until.Load() {
		return
	}
	select {
	case p.over <- struct{}{}:
	default:
	}
}

// goOn tells whether to fold on, after a pause if so.
func (db *DB) goOn(pause bool) bool {
	if !pause {
		select {
		case <-db.quit:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(refold)
	defer timer.Stop()
	select {
	case <-db.quit:
		return false
	case <-timer.C:
		return true
	}
}

// foldChunk folds the next rows of the frozen table, and says whether there are more.
// When it fails they are still to be folded: to do it again changes nothing.
func (db *DB) foldChunk() (more bool, err error) {
	db.folds.Lock()
	defer db.folds.Unlock()
	s := db.enter()
	defer db.leave(s)
	if s.frozen == nil {
		return false, nil
	}
	if err := db.broken(); err != nil {
		return true, err
	}
	next := db.folding
	if next.froze != s.froze {
		next = folding{froze: s.froze, layers: layersOf(s.frozen)}
	}
	if err := db.updateHeld(func(raw *bolt.Tx) error {
		err := db.chunk(raw, &next, s)
		// gofail: var foldChunked struct{}
		db.pass("foldChunked")
		return err
	}); err != nil {
		return true, err
	}
	// gofail: var foldCommitted struct{}
	db.pass("foldCommitted")
	db.folding = next
	if len(next.layers) > 0 {
		return true, nil
	}
	// gofail: var foldFinished struct{}
	db.pass("foldFinished")
	db.did.tables.Add(1)
	db.keepFrozen(s.frozen)
	db.thaw(s.frozen)
	return false, nil
}

// update is a bbolt transaction beside those that fold.
func (db *DB) update(fn func(raw *bolt.Tx) error) error {
	db.folds.Lock()
	defer db.folds.Unlock()
	return db.updateHeld(fn)
}

// updateHeld is a bbolt transaction. One that failed and can be seen all the same leaves
// nothing that may be relied on: nobody knows what is on disk.
func (db *DB) updateHeld(fn func(raw *bolt.Tx) error) error {
	return Guard(db.raw.Path(), func() error { return db.updateGuarded(fn) })
}

func (db *DB) updateGuarded(fn func(raw *bolt.Tx) error) error {
	raw, err := db.raw.Begin(true)
	if err != nil {
		return err
	}
	id := raw.ID()
	defer func() { _ = raw.Rollback() }() // after a commit it does nothing
	if err := fn(raw); err != nil {
		return err
	}
	db.pass("bbolt")
	if !db.raw.NoSync {
		db.did.syncs.Add(syncsPerFold)
	}
	if err := raw.Commit(); err != nil {
		return db.doubt(id, err)
	}
	db.did.folds.Add(1)
	return nil
}

// syncsPerFold are bbolt's: the pages, then the meta page.
const syncsPerFold = 2

// doubt looks whether a bbolt transaction that failed can be seen.
func (db *DB) doubt(id int, cause error) error {
	err := db.raw.View(func(raw *bolt.Tx) error {
		if raw.ID() >= id {
			return cause
		}
		return nil
	})
	if err != nil {
		db.breaks(cause)
	}
	return cause
}

// thaw takes the frozen table away, of which all is in its buckets.
func (db *DB) thaw(frozen *table) {
	db.change(frozen.rows(), func(s *state) bool {
		s.frozen = nil
		return false
	})
}

// chunk puts the next rows into their buckets, but for those that the active table
// has anew. With the last of them it says so.
func (db *DB) chunk(raw *bolt.Tx, f *folding, s *state) error {
	room := db.options.pace
	db.packer.Reset() // the transaction before has ended
	for len(f.layers) > 0 {
		l := f.layers[0]
		b, err := db.target(raw, l)
		if err != nil {
			return err
		}
		newer := s.active.layer(l.space, l.inner)
		it := l.rows.Iter()
		more := it.First()
		if f.after != nil {
			pivot := &row{buf: f.after, cut: len(f.after)}
			if more = it.Seek(pivot); more && string(it.Item().key()) == string(f.after) {
				more = it.Next()
			}
		}
		for ; more; more = it.Next() {
			if room.bytes <= 0 || room.rows <= 0 {
				return nil
			}
			r := it.Item()
			f.after, f.weight, room.bytes = r.key(), f.weight+r.weight(), room.bytes-r.weight()
			if superseded(newer, r) {
				continue
			}
			if err := db.place(raw, s.frozen, l, b, r); err != nil {
				return fmt.Errorf("%s, row %x: %w", l.space, r.key(), err)
			}
			room.rows--
		}
		f.layers, f.after = f.layers[1:], nil
	}
	// gofail: var foldDropping struct{}
	db.pass("foldDropping")
	return folded(raw, s.frozen.last)
}

// folded notes that all up to a transaction is in the buckets.
func folded(raw *bolt.Tx, last uint64) error {
	return raw.Bucket(logName).Put(rowFolded, binary.BigEndian.AppendUint64(nil, last))
}

// superseded tells whether a value need not come to its page: the active table, which
// was published and so is in the log, has a row for the key, and the log is not dropped
// with this table. Whoever reads finds that row first; and should it be deleted, what is
// below of it, here or in the file, keeps its mark in the table (see [Bucket.Delete]).
// That there is no value must always come there: it hides an older one that a newer
// row, deleted in turn, would let be seen.
func superseded(newer *layer, r *row) bool {
	if newer == nil || r.kind != put {
		return false
	}
	_, ok := newer.rows.Get(r)
	return ok
}

// target is the bucket of the file that a layer is folded into; nil for one that
// was dropped, of which there are no rows.
func (db *DB) target(raw *bolt.Tx, l *layer) (*bolt.Bucket, error) {
	b := raw.Bucket(l.space)
	if b == nil {
		return nil, fmt.Errorf("there is no bucket %q", l.space)
	}
	if l.inner != nil {
		b = b.Bucket(l.inner)
	}
	if fill := db.options.Spaces[string(l.space)].Fill; b != nil && fill > 0 {
		b.FillPercent = fill
	}
	return b, nil
}

// place puts one row into its bucket. To delete a key that is not there changes no page.
func (db *DB) place(raw *bolt.Tx, frozen *table, l *layer, b *bolt.Bucket, r *row) error {
	if b == nil {
		return fmt.Errorf("there is no bucket %x", l.inner)
	}
	if err := db.wipe(frozen, l, b, r.key()); err != nil {
		return err
	}
	if r.kind == put {
		return b.Put(r.key(), db.packer.Pack(r.value()))
	}
	if b.Get(r.key()) != nil { // also where a bucket came in its place
		if err := b.Delete(r.key()); err != nil {
			return err
		}
	}
	if r.kind == made {
		_, err := b.CreateBucketIfNotExists(r.key())
		return err
	}
	return nil
}

// wipe drops a bucket within that the table says was dropped, whatever is there now.
func (db *DB) wipe(frozen *table, l *layer, b *bolt.Bucket, name []byte) error {
	if l.inner != nil || !db.options.Spaces[string(l.space)].Nested {
		return nil
	}
	inner := frozen.layer(l.space, name)
	if inner == nil || !inner.wiped || b.Bucket(name) == nil {
		return nil
	}
	return b.DeleteBucket(name)
}
