package wal

import (
	"math/bits"
	"slices"
)

// What the tables hold is most of what a commit would allocate: so rows that went become
// rows of later transactions.
//
// A row goes when a state is published that has it no more: it was written again, or
// deleted, or its table was folded. A transaction that began with that state or with a later one
// cannot come to it. Once all that began before have ended nobody can, since what a
// [Bucket] returns is valid until then and no longer. A fold reads the tables, too, and is
// a reader as any other.

const (
	// spareTables is how many full tables' worth of rows is kept for transactions to come,
	// and as much again of those that wait for readers to end: a table that was folded is
	// what the next one needs. What is beyond is left to the collector.
	spareTables = 2
	// departedRows go together, and departedAtOnce of these lists are taken over by one
	// transaction, which seldom adds more than one: a whole table would take it a millisecond.
	departedRows   = 1024
	departedAtOnce = 4
)

// Rows have one of some sizes, eight for each power of two, so that one is an eighth too large
// at most. Larger ones than the largest are rare, and not kept.
const (
	leastSize   = 4 // as powers of two
	largestSize = 16
	sizeSteps   = 3
	sizes       = (largestSize-leastSize)<<sizeSteps + 1
)

// sizeOfRow is the size of a row that has room for n bytes, and which of them it is.
func sizeOfRow(n int) (which, size int) {
	if n <= 1<<leastSize {
		return 0, 1 << leastSize
	}
	power := bits.Len(uint(n - 1))
	shift := power - 1 - sizeSteps
	step := (n - 1) >> shift // of the eight of that power, from eight on
	return (power-1-leastSize)<<sizeSteps + step - (1<<sizeSteps - 1), (step + 1) << shift
}

// spareRows are rows that nobody sees. They are the writer's.
type spareRows struct {
	bound, weight int
	of            [sizes]struct {
		rows []*row
		// unused is how many were there all the time since the last trim.
		unused int
	}
}

// take is a row with room for n bytes, and nothing in it.
func (s *spareRows) take(n int) *row {
	which, size := sizeOfRow(n)
	if which >= sizes {
		return &row{buf: make([]byte, 0, n)}
	}
	of := &s.of[which]
	last := len(of.rows) - 1
	if last < 0 {
		return &row{buf: make([]byte, 0, size)}
	}
	r := of.rows[last]
	of.rows[last] = nil
	of.rows = of.rows[:last]
	of.unused = min(of.unused, last)
	s.weight -= rowWeight + size
	return r
}

// give takes rows over for those to come.
func (s *spareRows) give(rows []*row) {
	for _, r := range rows {
		which, size := sizeOfRow(cap(r.buf))
		if which >= sizes || s.weight+rowWeight+size > s.bound {
			continue
		}
		if spoil != nil {
			if r.kind == 0 {
				panic("a row became spare twice")
			}
			spoil(r.buf[:size])
		}
		*r = row{buf: r.buf[:0]}
		s.of[which].rows = append(s.of[which].rows, r)
		s.weight += rowWeight + size
	}
}

// trim lets go of what was not needed since the last time.
func (s *spareRows) trim() {
	for i := range s.of {
		of := &s.of[i]
		kept := len(of.rows) - of.unused
		for _, r := range of.rows[kept:] {
			s.weight -= rowWeight + cap(r.buf)
		}
		clear(of.rows[kept:])
		of.rows, of.unused = of.rows[:kept], kept
	}
}

// readers are how many there are of each state, in the order of the states.
type readers []readersOf

type readersOf struct {
	state uint64
	n     int
}

func (r *readers) enter(state uint64) {
	last := len(*r) - 1
	if last < 0 || (*r)[last].state != state { // it is the newest
		*r = append(*r, readersOf{state: state})
		last++
	}
	(*r)[last].n++
}

func (r *readers) leave(state uint64) {
	i := slices.IndexFunc(*r, func(of readersOf) bool { return of.state == state })
	if (*r)[i].n--; (*r)[i].n == 0 {
		*r = slices.Delete(*r, i, i+1)
	}
}

// enter is the state that there is. Its rows stay until [DB.leave].
func (db *DB) enter() *state {
	db.switching.Lock()
	defer db.switching.Unlock()
	s := db.state.Load()
	db.readers.enter(s.number)
	return s
}

func (db *DB) leave(s *state) {
	db.switching.Lock()
	defer db.switching.Unlock()
	db.readers.leave(s.number)
}

// departed are rows that are in no state from one on.
type departed struct {
	state  uint64
	rows   []*row
	weight int
}

// departing makes lists of rows that will be in no state.
func departing(rows []*row) (lists []departed) {
	for part := range slices.Chunk(rows, departedRows) {
		d := departed{rows: part}
		for _, r := range part {
			d.weight += r.weight()
		}
		lists = append(lists, d)
	}
	return lists
}

// depart notes what the state that is published has no more.
func (db *DB) depart(state uint64, lists []departed) {
	for _, d := range lists {
		if db.departedWeight+d.weight > spareTables*db.options.Bound {
			continue
		}
		d.state = state
		db.departed = append(db.departed, d)
		db.departedWeight += d.weight
	}
}

// reclaim takes rows over that nobody sees any more.
func (db *DB) reclaim() {
	for range departedAtOnce {
		db.spare.give(db.unseen())
	}
}

func (db *DB) unseen() []*row {
	db.switching.Lock()
	defer db.switching.Unlock()
	if len(db.departed) == 0 || len(db.readers) > 0 && db.readers[0].state < db.departed[0].state {
		return nil
	}
	d := db.departed[0]
	db.departed[0] = departed{}
	db.departed = db.departed[1:] // after a reader that took long there are many
	db.departedWeight -= d.weight
	return d.rows
}
