package changelog

import (
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"
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

	pace pace // for tests
}

const (
	// bound is what a table weighs at most: the more, the more often a row is written
	// before it is folded, and the more of them share a page. Two tables of this
	// weight and what the collector leaves behind of them stay below 50 MiB.
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

	writer sync.Mutex // held by the transaction that writes; guards all below

	folding folding
	tail    tail
	scratch encoder
	packer  Packer
}

// state is what readers see beside the file. It is never changed.
//
// A reader takes the state, then begins a bbolt transaction, and then looks whether
// the number of tables that were frozen is still that of its state; if not it
// begins again. Then what it sees is the state after the state's last transaction:
//
//   - The buckets change by folding alone. A chunk of the n-th frozen table is
//     committed only after a state that says n was published. Since n was still the
//     number after the bbolt transaction had begun, that has no chunk of a later one.
//   - What it has of the chunks of the n-th table changes nothing: that table, where
//     the state has it, lies over them and says of every key in them the same.
//   - A state has the frozen table no more only after its last chunk was committed,
//     which is before the reader took that state and so before its bbolt transaction.
//   - The log itself, of which the bbolt transaction may have more than the state,
//     is read when the file is opened and never by a reader.
type state struct {
	active *table
	frozen *table // nil: there is none
	// froze is how many tables were frozen since the file was opened.
	froze uint64
}

// progress is what a transaction leads to, once it is committed.
type progress struct {
	state   state
	folding folding
	tail    tail
}

// Load takes over a bbolt file and reads its log. Closing closes the file; what
// fails leaves it open.
func Load(raw *bolt.DB, o Options) (*DB, error) {
	if o.Bound == 0 {
		o.Bound = bound
	}
	// gofail: var foldBound int
	// o.Bound = foldBound
	if o.pace == (pace{}) {
		o.pace = pace{bytes: chunkBytes, rows: chunkRows, debt: maxDebt}
	}
	db := &DB{raw: raw, options: o, packer: Packer{Plain: o.Plain}}
	if err := db.load(); err != nil {
		return nil, err
	}
	return db, nil
}

// Raw is the bbolt file. Its buckets may be written only while nothing was written
// through this.
func (db *DB) Raw() *bolt.DB { return db.raw }

// Close closes the file. It waits for transactions to end.
func (db *DB) Close() error { return db.raw.Close() }

// Begin opens a transaction. One that writes waits for others that do.
func (db *DB) Begin(writable bool) (*Tx, error) {
	if writable {
		return db.beginWrite()
	}
	for {
		s := db.state.Load()
		raw, err := db.raw.Begin(false)
		if err != nil {
			return nil, err
		}
		if db.state.Load().froze == s.froze {
			return newTx(db, raw, s), nil
		}
		if err := raw.Rollback(); err != nil {
			return nil, err
		}
	}
}

func (db *DB) beginWrite() (*Tx, error) {
	db.writer.Lock()
	raw, err := db.raw.Begin(true)
	if err != nil {
		db.writer.Unlock()
		return nil, err
	}
	tx := newTx(db, raw, db.state.Load())
	tx.writable, tx.seq = true, tx.active.last+1
	return tx, nil
}

// Snapshot opens a transaction that reads, of which the file's log ends where what
// it sees does. It waits for a commit that is under way.
func (db *DB) Snapshot() (*Tx, error) {
	db.writer.Lock()
	defer db.writer.Unlock()
	return db.Begin(false)
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

// publish lets readers see what was committed, and freezes a table that is full.
func (db *DB) publish(p *progress) {
	db.folding, db.tail = p.folding, p.tail
	s := p.state
	if s.frozen == nil && db.full(s.active) {
		db.freeze(&s)
	}
	db.state.Store(&s)
}

// full tells whether a table is to be frozen.
func (db *DB) full(t *table) bool { return db.overdue(t) || t.tombstones >= tombstoneBound }

// overdue tells whether it takes as much room as it may.
func (db *DB) overdue(t *table) bool {
	return t.weight >= db.options.Bound || t.logged >= max(db.options.Bound, loggedBound)
}

// freeze begins a new table, and a new segment of the log. What was frozen is
// folded from the next transaction on: after this state was published.
func (db *DB) freeze(s *state) {
	s.frozen, s.active = s.active, newTable()
	s.active.last = s.frozen.last
	s.froze++
	db.folding = folding{until: s.frozen.last, layers: layersOf(s.frozen), weight: s.frozen.weight}
	db.tail = tail{}
}

// Fold folds all there is, so that the log is empty: for those who read the
// buckets themselves.
func (db *DB) Fold() error {
	for s := db.state.Load(); s.frozen != nil || len(s.active.layers) > 0; s = db.state.Load() {
		if err := db.foldAll(); err != nil {
			return fmt.Errorf("fold the log: %w", err)
		}
	}
	return nil
}

func (db *DB) foldAll() error {
	tx, err := db.beginWrite()
	if err != nil {
		return err
	}
	if s := *tx.state; s.frozen == nil {
		db.freeze(&s)
		db.state.Store(&s)
		tx.state, tx.active = db.state.Load(), s.active
	}
	tx.db.folding.debt = 1 << 62
	return tx.Commit()
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
