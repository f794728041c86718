package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

// A goroutine flushes an immutable memtable into its buckets in chunks, each a bbolt transaction.
// Commits go on meanwhile, in the next memtable.

const (
	// chunkBytes and chunkRows bound a chunk: its pages in memory, and the sync for which a commit may
	// wait at the same disk.
	chunkBytes = 512 << 10
	chunkRows  = 512
	// leastChunks is how many chunks a small memtable has, for tests and the torture.
	leastChunks = 4
	// retryFlush is when a chunk that failed is tried again, for example on a full disk.
	retryFlush = time.Second
	// maxThrottle is the longest pause between two chunks. throttleUntil is how full the next memtable
	// may be at the last chunk, in thousandths: see [DB.throttle].
	maxThrottle   = 40 * time.Millisecond
	throttleUntil = 750
)

// chunkLimit bounds a chunk.
type chunkLimit struct{ bytes, rows int }

// flushing is the progress of a flush.
type flushing struct {
	rotations uint64   // which memtable
	layers    []*layer // not flushed yet; of the first, the rows after the key after
	after     []byte
	weight    int // of the rows that were flushed
}

// done is how much of a memtable was flushed, in thousandths.
func (f *flushing) done(t *memtable) int { return f.weight * 1000 / max(t.weight, 1) }

// startFlushing starts the flusher if none runs. The caller holds the writer's lock.
func (db *DB) startFlushing() {
	if db.options.byHand || db.options.Unlogged || !db.flusher.CompareAndSwap(false, true) {
		return
	}
	db.flushers.Go(func() {
		for again := true; again; {
			db.flushAll()
			db.flusher.Store(false)
			// A memtable may have become immutable before the flusher was seen to end.
			again = db.version.Load().immutable != nil && db.broken() == nil && db.goOn(false) && db.flusher.CompareAndSwap(false, true)
		}
	})
}

// flushAll flushes until there is no immutable memtable. It tries again after an error, unless
// nothing can be written any more.
func (db *DB) flushAll() {
	for failed := false; ; {
		more, err := db.flushChunk()
		if failed && err == nil {
			failed = false
			db.options.Flushes(nil)
		}
		if err == nil && !more || !db.goOn(false) {
			return
		}
		if err == nil {
			db.throttle()
			continue
		}
		failed = true
		db.options.Flushes(fmt.Errorf("fold the log: %w", err))
		if db.broken() != nil || !db.goOn(true) {
			return
		}
	}
}

// throttle delays the next chunk of a flush, so that commits have the processors and the
// disk. A chunk begins once the active memtable is as full as the immutable one is flushed,
// and after maxThrottle at the latest. A memtable full of tombstones is flushed at once,
// because scans must step over them.
func (db *DB) throttle() {
	db.flushes.Lock()
	s, until := db.version.Load(), 0
	if s.immutable != nil && db.flushing.rotations == s.rotations && s.immutable.tombstones < tombstoneBound {
		until = db.flushing.done(s.immutable) * throttleUntil / 1000
	}
	db.flushes.Unlock()
	db.pauses.begin(until)
	defer db.pauses.until.Store(math.MaxInt64)
	if db.fill(db.version.Load().active) >= until {
		return
	}
	timer := time.NewTimer(maxThrottle)
	defer timer.Stop()
	select {
	case <-db.pauses.over:
	case <-timer.C:
	case <-db.quit:
	}
}

// pauses throttle the flusher.
type pauses struct {
	until atomic.Int64  // how full the active memtable must be, in thousandths
	over  chan struct{} // capacity 1; signalled when it is
}

func newPauses() *pauses {
	p := &pauses{over: make(chan struct{}, 1)}
	p.until.Store(math.MaxInt64)
	return p
}

func (p *pauses) begin(until int) {
	select {
	case <-p.over: // of an earlier pause
	default:
	}
	p.until.Store(int64(until))
}

// end ends a pause if the memtable is full enough.
func (p *pauses) end(full int) {
	if int64(full) < p.until.Load() {
		return
	}
	select {
	case p.over <- struct{}{}:
	default:
	}
}

// goOn reports whether to go on flushing, after a pause if asked.
func (db *DB) goOn(pause bool) bool {
	if !pause {
		select {
		case <-db.quit:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(retryFlush)
	defer timer.Stop()
	select {
	case <-db.quit:
		return false
	case <-timer.C:
		return true
	}
}

// flushChunk flushes the next rows of the immutable memtable, and reports whether there are more. If
// it fails, the rows are flushed again, which changes nothing.
func (db *DB) flushChunk() (more bool, err error) {
	db.flushes.Lock()
	defer db.flushes.Unlock()
	s := db.version.Load()
	if s.immutable == nil {
		return false, nil
	}
	if err := db.broken(); err != nil {
		return true, err
	}
	next := db.flushing
	if next.rotations != s.rotations {
		next = flushing{rotations: s.rotations, layers: layersOf(s.immutable)}
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
	db.flushing = next
	if len(next.layers) > 0 {
		return true, nil
	}
	// gofail: var foldFinished struct{}
	db.pass("foldFinished")
	db.did.memtables.Add(1)
	db.keepFlushed(s.immutable)
	db.dropImmutable(s.immutable)
	return false, nil
}

// update runs a bbolt transaction between those that flush.
func (db *DB) update(fn func(raw *bolt.Tx) error) error {
	db.flushes.Lock()
	defer db.flushes.Unlock()
	return db.updateHeld(fn)
}

// updateHeld runs a bbolt transaction; the caller holds flushes. If it failed and is visible all the
// same, nothing can be written any more, because it is not known what is on disk.
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
		db.did.syncs.Add(syncsPerFlush)
	}
	if err := raw.Commit(); err != nil {
		return db.doubt(id, err)
	}
	db.did.flushes.Add(1)
	return nil
}

// syncsPerFlush counts bbolt's syncs: of the pages, then of the meta page.
const syncsPerFlush = 2

// doubt ends writing if a failed bbolt transaction is visible.
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

// dropImmutable installs a version without the immutable memtable, which is fully flushed.
func (db *DB) dropImmutable(immutable *memtable) {
	db.change(func(s *version) bool {
		s.immutable = nil
		return false
	})
}

// chunk puts the next rows into their buckets, without those that the active memtable supersedes.
// Before the first row it notes that the flush has begun, after the last that the memtable is flushed.
func (db *DB) chunk(raw *bolt.Tx, f *flushing, s *version) error {
	if err := beginFlush(raw, s.immutable.last); err != nil {
		return err
	}
	room, durable := db.options.chunkLimit, db.durable.Load()
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
			if superseded(newer, r, durable) {
				continue
			}
			if err := db.place(raw, s.immutable, l, b, r); err != nil {
				return fmt.Errorf("%s, row %x: %w", l.space, r.key(), err)
			}
			room.rows--
		}
		f.layers, f.after = f.layers[1:], nil
	}
	// gofail: var foldDropping struct{}
	db.pass("foldDropping")
	return flushed(raw, s.immutable.point())
}

// beginFlush notes the last transaction whose rows may be in the buckets from now on, for [DB.Rewind].
func beginFlush(raw *bolt.Tx, last uint64) error {
	head := raw.Bucket(walBucket)
	if begun, err := number(head, rowFlushing); err != nil || begun == last {
		return err
	}
	return head.Put(rowFlushing, binary.BigEndian.AppendUint64(nil, last))
}

// flushed notes the last transaction that is in the buckets.
func flushed(raw *bolt.Tx, last Point) error {
	head, number := raw.Bucket(walBucket), binary.BigEndian.AppendUint64(nil, last.Transaction)
	return errors.Join(head.Put(rowFlushed, number), head.Put(rowSum, binary.BigEndian.AppendUint32(number, last.Sum)))
}

// superseded reports whether a value need not be flushed: the active memtable has a row for the key,
// and its transaction is durable in the WAL. Readers find that row first. If it is deleted, it leaves
// a tombstone over what is below it (see [Bucket.Delete]). A tombstone is always flushed, because it
// hides an older value that would be visible once a newer row is deleted.
func superseded(newer *layer, r *row, durable uint64) bool {
	if newer == nil || r.kind != put {
		return false
	}
	by, ok := newer.rows.Get(r)
	return ok && by.seq <= durable
}

// target is the bucket of the file that a layer is flushed into; nil for a dropped one, whose layer
// has no rows.
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

// place flushes a row into its bucket. Deleting a missing key changes no page.
func (db *DB) place(raw *bolt.Tx, immutable *memtable, l *layer, b *bolt.Bucket, r *row) error {
	if b == nil {
		return fmt.Errorf("there is no bucket %x", l.inner)
	}
	if err := db.wipe(immutable, l, b, r.key()); err != nil {
		return err
	}
	if r.kind == put {
		return b.Put(r.key(), db.packer.Pack(r.value()))
	}
	if b.Get(r.key()) != nil { // also before a bucket of this name is made
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

// wipe deletes an inner bucket of the file that the memtable has dropped.
func (db *DB) wipe(immutable *memtable, l *layer, b *bolt.Bucket, name []byte) error {
	if l.inner != nil || !db.options.Spaces[string(l.space)].Nested {
		return nil
	}
	inner := immutable.layer(l.space, name)
	if inner == nil || !inner.wiped || b.Bucket(name) == nil {
		return nil
	}
	return b.DeleteBucket(name)
}
