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
	// Spaces are the top-level buckets of which something is to be said, by name: the
	// same whenever the file is written.
	Spaces map[string]Space
	// Bound is how many bytes of rows a table holds until it is folded; zero: as
	// much as is measured to be good.
	Bound int
	// Plain leaves values as they are where they come to their buckets.
	Plain bool
	// Unlogged folds every transaction at once and makes no log, for a file that counts
	// only once it is done; see [DB.TakeOver].
	Unlogged bool
	// File is the open file of the bbolt database, for [DB.CheckPages]. Nil: it is opened
	// by its path.
	File *os.File
	// OpenFile opens the files of the log; nil: os.OpenFile.
	OpenFile func(name string, flag int, mode os.FileMode) (*os.File, error)
	// Folds is told each time that folding fails, which is tried again once a second, and
	// of no error once it works again; nil: nobody is.
	Folds func(error)
	// Keep says how long files of the log are kept once they are folded: those go of which
	// the last transaction was written before that time; none where it is zero. Where
	// it lies ahead nothing is kept, as where Keep is nil.
	Keep func() time.Time
	// Kept is told each time that keeping a file fails, and of no error once it works again.
	Kept func(error)

	// For tests.
	pace   pace
	byHand bool               // nothing is folded but what is asked for, or must be
	passed func(point string) // is called at each failpoint; nil: nothing is
	// keptBytes takes the place of maxKept.
	keptBytes int64
}

func (o *Options) validate() {
	if o.Bound == 0 {
		o.Bound = bound
	}
	// gofail: var foldBound int
	// o.Bound = foldBound
	if o.pace == (pace{}) {
		o.pace = pace{bytes: min(chunkBytes, max(o.Bound/leastChunks, 1)), rows: chunkRows}
	}
	if o.OpenFile == nil {
		o.OpenFile = os.OpenFile
	}
	if o.Folds == nil {
		o.Folds = func(error) {}
	}
	if o.Kept == nil {
		o.Kept = func(error) {}
	}
	if o.passed == nil {
		o.passed = func(string) {}
	}
}

const (
	// bound is what a table weighs at most: the more, the more often a row is written
	// before it is folded, and the more of them share a page. Two tables of this
	// weight and the rows of those before that are kept (see spareTables) stay below 50 MiB.
	bound = 8 << 20
	// loggedBound is how much of the log one table may take: it is what opening reads,
	// also where the same few rows were written again and again.
	loggedBound = 8 << 20
	// tombstoneBound is how many deleted rows a table has until it is folded: a reader
	// that begins at the first, as the one of what is due, passes them all, each in
	// some 50 ns.
	tombstoneBound = 2048
)

// DB is a bbolt file with a log. Its methods may be called concurrently.
type DB struct {
	raw     *bolt.DB
	options Options
	spaces  map[string][]byte // the top-level buckets that there were when it was opened
	state   atomic.Pointer[state]
	did     counters
	cut     atomic.Pointer[Cut]
	failure atomic.Pointer[error] // after which nothing can be written

	writer  sync.Mutex // held by the transaction that writes; guards all below
	path    string     // that the names of the log's files begin with
	log     *logFiles  // nil: none yet
	scratch encoder
	wrotes  []written // room for those of the next transaction
	retired bool      // another file took the place of this one
	spare   spareRows // for the next transactions

	switching      sync.Mutex // held while the state is changed; guards all below
	readers        readers    // that have not ended
	departed       []departed // rows that are spare once those who may see them have ended
	departedWeight int

	keeping sync.Mutex // held while kept files are made, removed or listed; guards all below
	pinned  int        // who reads them: none is removed meanwhile

	folds   sync.Mutex // held while the bbolt file is written; guards all below
	folding folding
	packer  Packer

	pauses  *pauses
	folder  atomic.Bool    // one folds
	folders sync.WaitGroup // for that one
	quit    chan struct{}  // closed to end it
	quits   sync.Once
}

// state is what readers see beside the file. It is never changed.
//
// A reader takes the state, then begins a bbolt transaction, and then looks whether
// the number of tables that were frozen is still that of its state; if not it
// begins again. Then what it sees is the state after the state's last transaction:
//
//   - The buckets change by folding alone, in bbolt transactions that nobody waits for. A
//     chunk of the n-th frozen table is folded by who has loaded a state that says n. Since
//     n was still the number after the reader's bbolt transaction had begun, that has no
//     chunk of a later one.
//   - What it has of the chunks of the n-th table changes nothing: that table, where
//     the state has it, lies over them and says of every key in them the same.
//   - A state has the frozen table no more only after its last chunk was committed,
//     which is before the reader took that state and so before its bbolt transaction.
//   - A chunk leaves out a value for whose key the active table of some state had a row
//     (see superseded). The states before that one have the frozen table, and those after
//     it that row, or a mark, or another value over it, or nothing where nothing is below.
//   - What a transaction wrote is in a state only once its record is synced, so that no
//     chunk relies on what a crash could take away.
//
// A transaction that writes is such a reader, and the only one who puts an active
// table into a state. That the frozen one was taken away meanwhile it finds there.
type state struct {
	active *table
	frozen *table // nil: there is none
	// froze is how many tables were frozen since the file was opened.
	froze uint64
	// number is how many states there were before this one.
	number uint64
}

// Load takes over a bbolt file and reads its log. Nothing is written before the first
// transaction that writes. Closing closes the file; what fails leaves it open.
func Load(raw *bolt.DB, o Options) (*DB, error) {
	o.validate()
	db := &DB{raw: raw, path: raw.Path(), options: o, packer: Packer{Plain: o.Plain}, quit: make(chan struct{}), pauses: newPauses()}
	db.spare.bound = spareTables * o.Bound
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

// closeWithin is how long closing folds, at most: what is left then is in the log.
const closeWithin = 10 * time.Second

// Close folds all there is, so that the file needs no log, and closes it. What cannot
// be folded stays in the log. It waits for transactions to end.
func (db *DB) Close() error {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.endFolding()
	if db.log != nil {
		err := error(nil)
		if !db.retired {
			err = db.settle(time.Now().Add(closeWithin))
		}
		if db.log != nil {
			db.log.close()
			db.log = nil
		}
		if err != nil {
			db.options.Folds(fmt.Errorf("fold the log: %w", err))
		}
	}
	db.breaks(errors.ErrDatabaseNotOpen)
	return db.raw.Close()
}

func (db *DB) endFolding() {
	db.quits.Do(func() { close(db.quit) })
	db.folders.Wait()
}

// Retire ends writing for good: another file takes the place of this one, and of its
// log. Who reads goes on.
func (db *DB) Retire() {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.retired = true
	db.quits.Do(func() { close(db.quit) })
	db.breaks(errors.ErrDatabaseNotOpen)
}

// TakeOver says that an unlogged file has another name now, beside which its log is to
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
		s := db.enter()
		raw, err := db.raw.Begin(false)
		if err != nil {
			db.leave(s)
			return nil, err
		}
		if db.state.Load().froze == s.froze {
			return newTx(db, raw, s), nil
		}
		db.leave(s)
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
	// Before a bbolt transaction is open, which folding might wait for.
	if err := db.ready(); err != nil {
		return nil, err
	}
	db.reclaim()
	tx, err := db.Begin(false)
	if err != nil {
		return nil, err
	}
	tx.writable, tx.seq, tx.wrotes = true, tx.active.last+1, db.wrotes
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

// publish lets readers see what was committed, which has some rows no more, and freezes
// a table that is full.
func (db *DB) publish(active *table, went []*row) {
	if db.change(went, func(s *state) bool {
		s.active = active
		return s.frozen == nil && db.full(active) && db.freeze(s)
	}) {
		db.turn()
		db.pauses.end(math.MaxInt) // of the table before, which somebody else has folded
		db.startFolding()          // then: this one's pauses are its own
	}
	db.pauses.end(db.fill(db.state.Load().active))
}

// change exchanges the state, of which the fold takes a table away by itself. The new
// one has some rows no more.
func (db *DB) change(went []*row, fn func(s *state) (frozen bool)) (frozen bool) {
	lists := departing(went)
	db.switching.Lock()
	defer db.switching.Unlock()
	s := *db.state.Load()
	frozen = fn(&s)
	s.number++
	db.state.Store(&s)
	db.depart(s.number, lists)
	return frozen
}

// full tells whether a table is to be frozen.
func (db *DB) full(t *table) bool { return db.overdue(t) || t.tombstones >= tombstoneBound }

// fill is how full a table is, in thousandths.
func (db *DB) fill(t *table) int {
	return max(t.weight*1000/db.options.Bound, t.logged*1000/max(db.options.Bound, loggedBound), t.tombstones*1000/tombstoneBound)
}

// overdue tells whether it takes as much room as it may.
func (db *DB) overdue(t *table) bool {
	return t.weight >= db.options.Bound || t.logged >= max(db.options.Bound, loggedBound)
}

// freeze begins a new table. What was frozen is folded once this state is published,
// after which the log turns.
func (db *DB) freeze(s *state) bool {
	s.frozen, s.active = s.active, newTable()
	if db.log != nil {
		s.frozen.slot, s.frozen.end = db.log.slot, db.log.end
	}
	s.active.last = s.frozen.last
	s.froze++
	db.spare.trim()
	return true
}

// turn goes on in the other file of the log, for the table that was begun: what that had
// was folded before the table before was taken away. Those who begin and end reading do
// not wait for it, since it may take tens of milliseconds to make a large file short.
func (db *DB) turn() {
	if db.log != nil {
		db.log.turn()
	}
}

// Fold folds all there is, for those who read the buckets themselves. Commits go on
// meanwhile, and what they write is folded, too.
func (db *DB) Fold() error {
	for s := db.state.Load(); !s.empty(); s = db.state.Load() {
		if err := db.foldNow(); err != nil {
			return fmt.Errorf("fold the log: %w", err)
		}
	}
	return nil
}

// empty tells whether all is in the buckets.
func (s *state) empty() bool { return s.frozen == nil && len(s.active.layers) == 0 }

// foldNow folds what there is now.
func (db *DB) foldNow() error {
	for range 2 { // the table that is frozen, then the one that is written
		db.writer.Lock()
		if db.freezeNow() {
			db.startFolding() // also where this ends with an error
		}
		db.writer.Unlock()
		for more := true; more; {
			var err error
			if more, err = db.foldChunk(); err != nil {
				return err
			}
		}
	}
	return nil
}

// freezeNow freezes the active table, full or not, unless there is a frozen one.
func (db *DB) freezeNow() (frozen bool) {
	if frozen = db.change(nil, func(s *state) bool { return s.frozen == nil && len(s.active.layers) > 0 && db.freeze(s) }); frozen {
		db.turn()
	}
	return frozen
}

// Work is what was done to disk since the file was opened.
type Work struct {
	Records     uint64 // transactions in the log
	RecordBytes uint64 // of them
	LogBytes    uint64 // written to its files, with what makes room in them
	Folds       uint64 // bbolt transactions
	Tables      uint64 // that were folded
	Syncs       uint64 // of the log and of the file
}

// Work looks.
func (db *DB) Work() Work {
	d := &db.did
	return Work{Records: d.records.Load(), RecordBytes: d.recordBytes.Load(), LogBytes: d.bytes.Load(), Folds: d.folds.Load(), Tables: d.tables.Load(), Syncs: d.syncs.Load()}
}

// Tables says what the tables hold.
type Tables struct {
	Active, Frozen int // bytes, about as they take memory
	Logged         int // bytes of the log that opening the file would read
	Tombstones     int
	Transactions   uint64 // the number of the last
}

// Tables looks.
func (db *DB) Tables() Tables {
	s := db.state.Load()
	t := Tables{Active: s.active.weight, Logged: s.active.logged, Tombstones: s.active.tombstones, Transactions: s.active.last}
	if s.frozen != nil {
		t.Frozen, t.Logged, t.Tombstones = s.frozen.weight, t.Logged+s.frozen.logged, t.Tombstones+s.frozen.tombstones
	}
	return t
}

func sortedFunc(all iter.Seq[*layer]) []*layer {
	return slices.SortedFunc(all, (*layer).less)
}
