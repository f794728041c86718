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

// Space configures a top-level bucket.
type Space struct {
	// Fill is bbolt's FillPercent for the bucket and its inner buckets; zero means bbolt's default.
	Fill float64
	// Nested allows inner buckets.
	Nested bool
}

// Options of a file. The zero value works.
type Options struct {
	// Spaces has the settings of top-level buckets by name. They must be the same for every writer
	// of the file.
	Spaces map[string]Space
	// Bound is the size of a memtable in bytes at which it is flushed. Zero means the measured
	// optimum.
	Bound int
	// Plain disables the compression of values in their buckets.
	Plain bool
	// Unlogged creates no WAL. It is for a file that counts only once it was settled; see
	// [DB.TakeOver].
	Unlogged bool
	// From is the last transaction of the file that this one is a copy of, if the copy has no
	// transactions yet: its numbers go on from there.
	From Point
	// Ship is called with the entry of each transaction before its record is written; nil ships
	// nothing.
	Ship Ship
	// Standby is for a file that [DB.Apply] alone writes. Apply does not sync then, so a power cut may
	// take any record after the last [DB.Sync]. Opening cuts the WAL off there, where it otherwise
	// refuses to open the file; the missing transactions are to be applied again.
	Standby bool
	// ReadStandby is for such a file that is only read. It is opened as with Standby, and Close leaves its WAL as it is.
	ReadStandby bool
	// File is the open bbolt file for [DB.CheckPages]. Nil opens it by its path.
	File *os.File
	// OpenFile opens the files of the WAL; nil means os.OpenFile.
	OpenFile func(name string, flag int, mode os.FileMode) (*os.File, error)
	// Flushes is called with each error of a flush, which is retried once a second, and with nil
	// when flushes work again. It may be nil.
	Flushes func(error)
	// Keep returns the time before which flushed files of the WAL are removed, by their last
	// transaction. The zero time removes none. A time in the future removes all, and so
	// does a nil Keep.
	Keep func() time.Time
	// Kept is called with each error of keeping a file, and with nil when it works again.
	Kept func(error)

	// For tests.
	chunkLimit chunkLimit
	byHand     bool               // flush only on request, or when writers wait
	passed     func(point string) // called at each failpoint; may be nil
	// keptBytes overrides maxKept.
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
	spaces  map[string][]byte // top-level buckets when the file was opened
	version atomic.Pointer[version]
	did     counters
	cut     atomic.Pointer[Cut]
	failure atomic.Pointer[error] // why nothing can be written
	durable atomic.Uint64         // the last transaction whose record is synced

	writer   sync.Mutex // held by the writing transaction; guards the fields below
	path     string     // prefix of the names of the WAL's files
	wal      *walFiles  // nil before the first WAL
	scratch  encoder
	follower func(seq uint64, entry []byte) // see [DB.Follow]; may be nil
	expected int                            // rows of the last transaction, as a guess for the next
	retired  bool                           // another file has replaced this one

	switching sync.Mutex // held while a version is installed

	keeping sync.Mutex // held while kept files are created, removed or listed; guards pinned
	pinned  int        // readers of kept files; none is removed meanwhile

	flushes  sync.Mutex // held while the bbolt file is written; guards flushing and packer
	flushing flushing
	packer   Packer

	pauses   *pauses
	flusher  atomic.Bool    // a flusher runs
	flushers sync.WaitGroup // waits for the flusher
	quit     chan struct{}  // closed to stop the flusher
	quits    sync.Once
}

// version is the set of memtables that readers see over the file. It is immutable: a commit and the
// end of a flush install the next one.
//
// A reader loads the version, begins a bbolt transaction, and then compares rotations with the
// installed version. If they differ it starts again. It then sees the state after the version's
// last transaction:
//
//   - Only flushes change the buckets. A chunk of the n-th immutable memtable is flushed after a
//     version with rotations n was loaded. rotations was still n after the reader's bbolt
//     transaction began, so that transaction has no chunk of a later memtable.
//   - The chunks of the n-th memtable that the transaction has change nothing. If the version has
//     that memtable, the memtable hides the same keys with the same values.
//   - A version lacks the immutable memtable only after its last chunk was committed. That is
//     before the reader loaded the version, and so before its bbolt transaction.
//   - A chunk omits a value if the active memtable of some version had a row for its key (see
//     superseded). Earlier versions have the immutable memtable. Later ones have that row, a
//     tombstone, a newer value, or nothing if nothing is below.
//   - A transaction is in a version only after its record is synced, so no chunk depends on what a
//     crash could lose. A standby syncs later: the records of a memtable when it becomes immutable, and
//     a chunk omits no value for a row that is not synced.
//
// A writing transaction is such a reader, and only it installs an active memtable. If the immutable
// one was dropped in the meantime, it notices that at the install.
type version struct {
	active    *memtable
	immutable *memtable // may be nil
	// rotations counts the memtables that became immutable since the file was opened.
	rotations uint64
}

// Load opens a DB on a bbolt file and reads its WAL. It writes nothing before the first writing
// transaction. Close closes the file; after an error of Load the file stays open.
func Load(raw *bolt.DB, o Options) (*DB, error) {
	o.validate()
	db := &DB{raw: raw, path: raw.Path(), options: o, packer: Packer{Plain: o.Plain}, quit: make(chan struct{}), pauses: newPauses()}
	if err := db.load(); err != nil {
		return nil, err
	}
	return db, nil
}

// pass reports a failpoint to a test.
func (db *DB) pass(point string) { db.options.passed(point) }

// Raw returns the bbolt file. Its buckets may be written only before the first write through db.
func (db *DB) Raw() *bolt.DB { return db.raw }

// closeWithin bounds the flush in Close. The rest stays in the WAL.
const closeWithin = 10 * time.Second

// Close waits for transactions, flushes all rows, so that the file needs no WAL, and closes the
// file. Rows that cannot be flushed stay in the WAL.
func (db *DB) Close() error { return db.close(true) }

// Leave closes the file at once, and leaves the rows in the WAL, as a crash does.
func (db *DB) Leave() error { return db.close(false) }

func (db *DB) close(flush bool) error {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.endFlushing()
	cut := db.options.Standby && db.Cut() != nil // only a standby would open what was cut off
	if db.wal != nil || cut {
		err := error(nil)
		if !db.retired && (flush || cut) {
			err = db.settle(time.Now().Add(closeWithin))
		}
		if db.wal != nil {
			if unsynced := db.syncUpTo(db.Point().Transaction); err == nil {
				err = unsynced
			}
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

// Retire stops writing for good, because another file replaces this one and its WAL. Readers
// continue.
func (db *DB) Retire() {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.retired = true
	db.quits.Do(func() { close(db.quit) })
	db.breaks(errors.ErrDatabaseNotOpen)
}

// TakeOver sets the new path of an unlogged file. It has a WAL beside that path from the next
// transaction on.
func (db *DB) TakeOver(path string) {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.path, db.options.Unlogged = path, false
}

// broken returns why nothing can be written; nil if something can.
func (db *DB) broken() error {
	if err := db.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// breaks stops writing. The first cause stays.
func (db *DB) breaks(cause error) { db.failure.CompareAndSwap(nil, &cause) }

// Ahead reports whether the content of the disk is unknown: a sync failed, or a [Ship]. Nothing can be
// written until the file is opened again.
func (db *DB) Ahead() bool { return db.broken() != nil }

// Begin opens a transaction. A writing one waits for the others.
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
	// Wait before a bbolt transaction is open, because a flush might wait for that.
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

// installVersion makes a commit visible to readers, and rotates a full memtable.
func (db *DB) installVersion(active *memtable) {
	if db.change(func(s *version) bool {
		s.active = active
		return s.immutable == nil && db.full(active) && db.rotate(s)
	}) {
		db.turn()
		db.pauses.end(math.MaxInt) // the pauses of the memtable before
		db.startFlushing()         // begins with pauses of its own
	}
	db.pauses.end(db.fill(db.version.Load().active))
}

// change installs a version that fn derives from the last one, and returns the result of fn. The
// writer and the flusher call it.
func (db *DB) change(fn func(s *version) (immutable bool)) (immutable bool) {
	db.switching.Lock()
	defer db.switching.Unlock()
	s := *db.version.Load()
	immutable = fn(&s)
	db.version.Store(&s)
	return immutable
}

// full reports whether a memtable must become immutable.
func (db *DB) full(t *memtable) bool { return db.overdue(t) || t.tombstones >= tombstoneBound }

// fill returns how full a memtable is, in thousandths.
func (db *DB) fill(t *memtable) int {
	return max(t.weight*1000/db.options.Bound, t.allocated*1000/(arenaFactor*db.options.Bound), t.walBytes*1000/max(db.options.Bound, walBound), t.tombstones*1000/tombstoneBound)
}

// overdue reports whether a memtable has reached a bound of its memory or of the WAL.
func (db *DB) overdue(t *memtable) bool {
	return t.weight >= db.options.Bound || t.allocated >= arenaFactor*db.options.Bound || t.walBytes >= max(db.options.Bound, walBound)
}

// rotate makes the active memtable immutable and creates a new one. The flush of the immutable one
// begins after the version is installed; then the WAL switches to its other file.
func (db *DB) rotate(s *version) bool {
	if db.syncUpTo(s.active.last) != nil {
		return false
	}
	s.immutable, s.active = s.active, newMemtable()
	if db.wal != nil {
		s.immutable.slot, s.immutable.end = db.wal.slot, db.wal.end
	}
	s.active.last, s.active.sum = s.immutable.last, s.immutable.sum
	s.rotations++
	return true
}

// turn switches the WAL to its other file for the new memtable. The rows in that file were flushed
// before the last immutable memtable was dropped. Readers do not wait for it, because truncating a
// large file may take tens of milliseconds.
func (db *DB) turn() {
	if db.wal != nil {
		db.wal.turn()
	}
}

// Flush flushes all rows, for readers of the buckets. Commits continue, and it flushes their rows,
// too.
func (db *DB) Flush() error {
	for s := db.version.Load(); !s.empty(); s = db.version.Load() {
		if err := db.flushNow(); err != nil {
			return fmt.Errorf("fold the log: %w", err)
		}
	}
	return nil
}

// empty reports whether all rows are in the buckets.
func (s *version) empty() bool { return s.immutable == nil && len(s.active.layers) == 0 }

// flushNow flushes the rows of this moment.
func (db *DB) flushNow() error {
	for range 2 { // the immutable memtable, then the active one
		db.writer.Lock()
		if db.rotateNow() {
			db.startFlushing() // also after an error below
		}
		err := db.broken()
		db.writer.Unlock()
		if err != nil {
			return err // it may have been too broken to rotate
		}
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

// DiskWork counts writes to disk since the file was opened.
type DiskWork struct {
	Records     uint64 // transactions in the WAL
	RecordBytes uint64 // of these
	WALBytes    uint64 // written to its files, with reserved space
	Flushes     uint64 // bbolt transactions
	Memtables   uint64 // flushed
	Syncs       uint64 // of the WAL and of the file
}

func (db *DB) Work() DiskWork {
	d := &db.did
	return DiskWork{Records: d.records.Load(), RecordBytes: d.recordBytes.Load(), WALBytes: d.bytes.Load(), Flushes: d.flushes.Load(), Memtables: d.memtables.Load(), Syncs: d.syncs.Load()}
}

// Memtables describes the memtables.
type Memtables struct {
	Active, Immutable int // bytes of memory, approximately
	Logged            int // bytes of the WAL that an open would read
	Tombstones        int
	Transactions      uint64 // number of the last transaction
}

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
