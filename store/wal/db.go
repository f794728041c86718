package wal

import (
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/bbolt/errors"
)

// Space says what is special about a top-level bucket.
type Space struct {
	// Fill is bbolt's FillPercent for it and the buckets within; zero: bbolt's own.
	Fill float64
	// Nested says that there may be buckets within.
	Nested bool
}

// Options of a file. The zero value works.
type Options struct {
	// Spaces has the settings of top-level buckets by name. They must be the same whenever
	// the file is written.
	Spaces map[string]Space
	// Bound is how many bytes of rows a memtable holds until it is flushed; zero: as
	// much as is measured to be good.
	Bound int
	// Plain leaves values as they are where they come to their buckets.
	Plain bool
	// Unlogged flushes every transaction at once and makes no WAL, for a file that counts
	// only once it is done; see [DB.TakeOver].
	Unlogged bool
	// File is the open file of the bbolt database, for [DB.CheckPages]. Nil: it is opened
	// by its path.
	File *os.File
	// OpenFile opens the files of the WAL; nil: os.OpenFile.
	OpenFile func(name string, flag int, mode os.FileMode) (*os.File, error)
	// Flushes is told each time that flushing fails, which is tried again once a second, and
	// of no error once it works again; nil: nobody is.
	Flushes func(error)
	// Keep returns the time before which flushed files of the WAL are removed, by their last
	// transaction. The zero time removes none. A time in the future removes all, and so
	// does a nil Keep.
	Keep func() time.Time
	// Kept is told each time that keeping a file fails, and of no error once it works again.
	Kept func(error)

	// For tests.
	chunkLimit chunkLimit
	byHand     bool               // nothing is flushed but what is asked for, or must be
	passed     func(point string) // is called at each failpoint; nil: nothing is
	// keptBytes takes the place of maxKept.
	keptBytes int64
}

func (o *Options) validate() {
	if o.Bound == 0 {
		o.Bound = bound
	}
	// gofail: var foldBound int
	// o.Bound = foldBound
	if o.chunkLimit == (chunkLimit{}) {
		o.chunkLimit = chunkLimit{bytes: min(chunkBytes, max(o.Bound/leastChunks, 1)), rows: chunkRows}
	}
	if o.OpenFile == nil {
		o.OpenFile = os.OpenFile
	}
	if o.Flushes == nil {
		o.Flushes = func(error) {}
	}
	if o.Kept == nil {
		o.Kept = func(error) {}
	}
	if o.passed == nil {
		o.passed = func(string) {}
	}
}

const (
	// bound is what a memtable weighs at most: the more, the more often a row is written
	// before it is flushed, and the more of them share a page. The arenas of two memtables of
	// this weight stay below 32 MiB, and one more while a reader has it.
	bound = 8 << 20
	// walBound is how much of the WAL one memtable may take: it is what opening reads,
	// also where the same few rows were written again and again.
	walBound = 8 << 20
	// tombstoneBound is how many deleted rows a memtable has until it is flushed: a reader
	// that begins at the first, as the one of what is due, passes them all, each in
	// some 50 ns.
	tombstoneBound = 2048
)

// DB is a bbolt file with a WAL. Its methods may be called concurrently.
type DB struct {
	raw     *bolt.DB
	options Options
	spaces  map[string][]byte // the top-level buckets that there were when it was opened
	version atomic.Pointer[version]
	did     counters
	cut     atomic.Pointer[Cut]
	failure atomic.Pointer[error] // after which nothing can be written

	writer   sync.Mutex // held by the transaction that writes; guards all below
	path     string     // that the names of the WAL's files begin with
	wal      *walFiles  // nil: none yet
	scratch  encoder
	expected int  // rows of the next transaction: as many as the last one wrote
	retired  bool // another file took the place of this one

	switching sync.Mutex // held while a version is installed

	keeping sync.Mutex // held while kept files are made, removed or listed; guards all below
	pinned  int        // who reads them: none is removed meanwhile

	flushes  sync.Mutex // held while the bbolt file is written; guards all below
	flushing flushing
	packer   Packer

	pauses   *pauses
	flusher  atomic.Bool    // one flushes
	flushers sync.WaitGroup // for that one
	quit     chan struct{}  // closed to end it
	quits    sync.Once
}

// version is the set of memtables that readers see beside the file. It is never changed: a
// commit and the end of a flush install the next one.
//
// A reader loads the version, begins a bbolt transaction, and then compares rotations with
// that of the installed version; if they differ it begins again. What it sees then is the
// state after the version's last transaction:
//
//   - Only flushing changes the buckets. A chunk of the n-th immutable memtable is flushed
//     after a version with rotations n was loaded. Since rotations was still n after the
//     reader's bbolt transaction had begun, that transaction has no chunk of a later memtable.
//   - Chunks of the n-th memtable that it has change nothing: where the version has that
//     memtable, the memtable lies over them and says the same of every key in them.
//   - A version lacks the immutable memtable only after its last chunk was committed, which
//     is before the reader loaded that version and so before its bbolt transaction.
//   - A chunk leaves out a value for whose key the active memtable of some version had a row
//     (see superseded). Earlier versions have the immutable memtable. Later ones have that
//     row, a tombstone, another value over it, or nothing where nothing lies below.
//   - What a transaction wrote is in a version only once its record is synced, so that no
//     chunk relies on what a crash could take away.
//
// A transaction that writes is such a reader, and the only one that installs an active
// memtable. Where the immutable one was dropped meanwhile it finds that then.
type version struct {
	active    *memtable
	immutable *memtable // nil: there is none
	// rotations is how many memtables were made immutable since the file was opened.
	rotations uint64
}

// Load takes over a bbolt file and reads its WAL. Nothing is written before the first
// transaction that writes. Closing closes the file; what fails leaves it open.
func Load(raw *bolt.DB, o Options) (*DB, error) {
	o.validate()
	db := &DB{raw: raw, path: raw.Path(), options: o, packer: Packer{Plain: o.Plain}, quit: make(chan struct{}), pauses: newPauses()}
	if err := db.load(); err != nil {
		return nil, err
	}
	return db, nil
}

// pass tells a test which failpoint was passed.
func (db *DB) pass(point string) { db.options.passed(point) }

// Raw is the bbolt file. Its buckets may be written only while nothing was written
// through this.
func (db *DB) Raw() *bolt.DB { return db.raw }

// closeWithin is how long closing flushes, at most: what is left then is in the WAL.
const closeWithin = 10 * time.Second

// Close flushes all there is, so that the file needs no WAL, and closes it. What cannot
// be flushed stays in the WAL. It waits for transactions to end.
func (db *DB) Close() error {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.endFlushing()
	if db.wal != nil {
		err := error(nil)
		if !db.retired {
			err = db.settle(time.Now().Add(closeWithin))
		}
		if db.wal != nil {
			db.wal.close()
			db.wal = nil
		}
		if err != nil {
			db.options.Flushes(fmt.Errorf("fold the log: %w", err))
		}
	}
	db.breaks(errors.ErrDatabaseNotOpen)
	return db.raw.Close()
}

func (db *DB) endFlushing() {
	db.quits.Do(func() { close(db.quit) })
	db.flushers.Wait()
}

// Retire ends writing for good: another file takes the place of this one, and of its
// WAL. Who reads goes on.
func (db *DB) Retire() {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.retired = true
	db.quits.Do(func() { close(db.quit) })
	db.breaks(errors.ErrDatabaseNotOpen)
}

// TakeOver says that an unlogged file has another name now, beside which its WAL is to
// be: it has one from the next transaction on.
func (db *DB) TakeOver(path string) {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.path, db.options.Unlogged = path, false
}

// broken is why nothing can be written any more; nil: it can.
func (db *DB) broken() error {
	if err := db.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// breaks ends writing. The first reason stays.
func (db *DB) breaks(cause error) { db.failure.CompareAndSwap(nil, &cause) }

// Ahead tells whether nobody knows what is on disk: a sync failed, and only reading
// the file anew will tell. Nothing can be written any more.
func (db *DB) Ahead() bool { return db.broken() != nil }

// Begin opens a transaction. One that writes waits for others that do.
func (db *DB) Begin(writable bool) (*Tx, error) {
	if writable {
		return db.beginWrite()
	}
	for {
		s := db.version.Load()
		raw, err := db.raw.Begin(false)
		if err != nil {
			return nil, err
		}
		if db.version.Load().rotations == s.rotations {
			return newTx(db, raw, s), nil
		}
		if err := raw.Rollback(); err != nil {
			return nil, err
		}
	}
}

func (db *DB) beginWrite() (*Tx, error) {
	db.writer.Lock()
	tx, err := db.beginHeld()
	if err != nil {
		db.writer.Unlock()
	}
	return tx, err
}

func (db *DB) beginHeld() (*Tx, error) {
	// Before a bbolt transaction is open, which flushing might wait for.
	if err := db.ready(); err != nil {
		return nil, err
	}
	tx, err := db.Begin(false)
	if err != nil {
		return nil, err
	}
	tx.writable, tx.seq, tx.wrotes = true, tx.active.last+1, make([]written, 0, db.expected)
	return tx, nil
}

// View runs fn on a snapshot.
func (db *DB) View(fn func(*Tx) error) error {
	tx, err := db.Begin(false)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	return fn(tx)
}

// Update runs fn in a transaction that is committed unless fn fails.
func (db *DB) Update(fn func(*Tx) error) error {
	tx, err := db.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// installVersion lets readers see what was committed, and rotates a memtable that is full.
func (db *DB) installVersion(active *memtable) {
	if db.change(func(s *version) bool {
		s.active = active
		return s.immutable == nil && db.full(active) && db.rotate(s)
	}) {
		db.turn()
		db.pauses.end(math.MaxInt) // of the memtable before, which somebody else has flushed
		db.startFlushing()         // then: this one's pauses are its own
	}
	db.pauses.end(db.fill(db.version.Load().active))
}

// change installs a version that fn makes of the last one, and returns what fn does. The
// writer and the flusher both call it.
func (db *DB) change(fn func(s *version) (immutable bool)) (immutable bool) {
	db.switching.Lock()
	defer db.switching.Unlock()
	s := *db.version.Load()
	immutable = fn(&s)
	db.version.Store(&s)
	return immutable
}

// full tells whether a memtable is to become immutable.
func (db *DB) full(t *memtable) bool { return db.overdue(t) || t.tombstones >= tombstoneBound }

// fill is how full a memtable is, in thousandths.
func (db *DB) fill(t *memtable) int {
	return max(t.weight*1000/db.options.Bound, t.allocated*1000/(arenaFactor*db.options.Bound), t.walBytes*1000/max(db.options.Bound, walBound), t.tombstones*1000/tombstoneBound)
}

// overdue tells whether it takes as much room as it may.
func (db *DB) overdue(t *memtable) bool {
	return t.weight >= db.options.Bound || t.allocated >= arenaFactor*db.options.Bound || t.walBytes >= max(db.options.Bound, walBound)
}

// rotate makes the active memtable immutable and begins a new one. The immutable one is
// flushed once the version is installed; then the WAL turns to its other file.
func (db *DB) rotate(s *version) bool {
	s.immutable, s.active = s.active, newMemtable()
	if db.wal != nil {
		s.immutable.slot, s.immutable.end = db.wal.slot, db.wal.end
	}
	s.active.last = s.immutable.last
	s.rotations++
	return true
}

// turn goes on in the other file of the WAL, for the memtable that was begun: what that had
// was flushed before the memtable before was taken away. Those who begin and end reading do
// not wait for it, since it may take tens of milliseconds to make a large file short.
func (db *DB) turn() {
	if db.wal != nil {
		db.wal.turn()
	}
}

// Flush flushes all there is, for those who read the buckets themselves. Commits go on
// meanwhile, and what they write is flushed, too.
func (db *DB) Flush() error {
	for s := db.version.Load(); !s.empty(); s = db.version.Load() {
		if err := db.flushNow(); err != nil {
			return fmt.Errorf("fold the log: %w", err)
		}
	}
	return nil
}

// empty tells whether all is in the buckets.
func (s *version) empty() bool { return s.immutable == nil && len(s.active.layers) == 0 }

// flushNow flushes what there is now.
func (db *DB) flushNow() error {
	for range 2 { // the memtable that is made immutable, then the one that is written
		db.writer.Lock()
		if db.rotateNow() {
			db.startFlushing() // also where this ends with an error
		}
		db.writer.Unlock()
		for more := true; more; {
			var err error
			if more, err = db.flushChunk(); err != nil {
				return err
			}
		}
	}
	return nil
}

// rotateNow rotates the active memtable, full or not, unless there is an immutable one.
func (db *DB) rotateNow() (immutable bool) {
	if immutable = db.change(func(s *version) bool { return s.immutable == nil && len(s.active.layers) > 0 && db.rotate(s) }); immutable {
		db.turn()
	}
	return immutable
}

// DiskWork is what was done to disk since the file was opened.
type DiskWork struct {
	Records     uint64 // transactions in the WAL
	RecordBytes uint64 // of them
	WALBytes    uint64 // written to its files, with what makes room in them
	Flushes     uint64 // bbolt transactions
	Memtables   uint64 // that were flushed
	Syncs       uint64 // of the WAL and of the file
}

// Work looks.
func (db *DB) Work() DiskWork {
	d := &db.did
	return DiskWork{Records: d.records.Load(), RecordBytes: d.recordBytes.Load(), WALBytes: d.bytes.Load(), Flushes: d.flushes.Load(), Memtables: d.memtables.Load(), Syncs: d.syncs.Load()}
}

// Memtables says what the memtables hold.
type Memtables struct {
	Active, Immutable int // bytes, about as they take memory
	Logged            int // bytes of the WAL that opening the file would read
	Tombstones        int
	Transactions      uint64 // the number of the last
}

// Memtables looks.
func (db *DB) Memtables() Memtables {
	s := db.version.Load()
	t := Memtables{Active: s.active.weight, Logged: s.active.walBytes, Tombstones: s.active.tombstones, Transactions: s.active.last}
	if s.immutable != nil {
		t.Immutable, t.Logged, t.Tombstones = s.immutable.weight, t.Logged+s.immutable.walBytes, t.Tombstones+s.immutable.tombstones
	}
	return t
}

func sortedFunc(all iter.Seq[*layer]) []*layer {
	return slices.SortedFunc(all, (*layer).less)
}
