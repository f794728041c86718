package wal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestMain has every row overwritten that is taken for one that nobody sees, so that a
// test which does see it fails.
func TestMain(m *testing.M) {
	spoil = func(b []byte) {
		for i := range b {
			b[i] = 0xA5
		}
	}
	os.Exit(m.Run())
}

// TestSizesOfRows have room, are an eighth too large at most, and grow.
func TestSizesOfRows(t *testing.T) {
	before := -1
	for n := range 1<<largestSize + 1 {
		which, size := sizeOfRow(n)
		if again, same := sizeOfRow(size); size < n || n > 1<<leastSize && (size-n)*8 > n || again != which || same != size {
			t.Fatalf("%d bytes have the size %d of %d; that has %d of %d", n, which, size, again, same)
		}
		if which != before && which != before+1 {
			t.Fatalf("%d bytes have the size %d after %d", n, which, before)
		}
		before = which
	}
	if before != sizes-1 {
		t.Errorf("the largest is %d of %d", before, sizes)
	}
}

// spareDB is a file whose tables are folded where a test says so, and a put of its row i.
func spareDB(t *testing.T, o Options) (db *DB, set func(i int, value string)) {
	t.Helper()
	o.byHand = true
	db, err := openFile(filepath.Join(t.TempDir(), "x.db"), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, func(i int, value string) {
		t.Helper()
		if err := db.Update(func(tx *Tx) error {
			return tx.Bucket([]byte(flat)).Put(fmt.Appendf(nil, "%06d", i), []byte(value))
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestARowStaysWhileAReaderMaySeeIt that began before it was written again, or folded,
// whatever others write and however many of them end.
func TestARowStaysWhileAReaderMaySeeIt(t *testing.T) {
	for _, by := range []string{"a write", "a delete", "a fold"} {
		t.Run(by, func(t *testing.T) {
			db, set := spareDB(t, Options{})
			set(1, "first")
			tx, err := db.Begin(false)
			if err != nil {
				t.Fatal(err)
			}
			value := tx.Bucket([]byte(flat)).Get([]byte("000001"))
			switch by {
			case "a write":
				set(1, "again")
			case "a delete":
				err = db.Update(func(tx *Tx) error { return tx.Bucket([]byte(flat)).Delete([]byte("000001")) })
			default:
				err = db.Fold()
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				set(2, fmt.Sprint("other", i))
			}
			if string(value) != "first" {
				t.Errorf("its value became %q", value)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			set(2, "the last")
			if !bytes.Equal(value, bytes.Repeat([]byte{0xA5}, 5)) && string(value) != "the l" {
				t.Errorf("nobody sees it any more, and it is kept as %q", value)
			}
		})
	}
}

// TestARowStaysWhileAFoldMaySeeIt, which asks the table that was written when it began
// whether a value was written again.
func TestARowStaysWhileAFoldMaySeeIt(t *testing.T) {
	var during func()
	db, set := spareDB(t, Options{passed: func(point string) {
		if point == "foldDropping" && during != nil {
			during()
		}
	}})
	set(1, "first")
	db.writer.Lock()
	db.freezeNow()
	db.writer.Unlock()
	set(1, "again")
	value := db.state.Load().active.rows()[0].value()
	asked := false
	during = func() {
		during, asked = nil, true
		for range 5 {
			set(1, "later")
		}
		if string(value) != "again" {
			t.Errorf("its value became %q", value)
		}
	}
	if _, err := db.foldChunk(); err != nil || !asked {
		t.Fatal(asked, err)
	}
}

// TestWhatATransactionThatFailedWroteAgainStays.
func TestWhatATransactionThatFailedWroteAgainStays(t *testing.T) {
	db, set := spareDB(t, Options{})
	set(1, "first")
	tx, err := db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Bucket([]byte(flat)).Put([]byte("000001"), []byte("never")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		set(2, fmt.Sprint("other", i))
	}
	if err := db.View(func(tx *Tx) error {
		if got := tx.Bucket([]byte(flat)).Get([]byte("000001")); string(got) != "first" {
			t.Errorf("it is %q", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestATransactionThatEndsIsNoReader, however it ends: one that stayed would keep all rows
// that come from being used again.
func TestATransactionThatEndsIsNoReader(t *testing.T) {
	failed := errors.New("failed")
	fails := func(*Tx) error { return failed }
	panics := func(*Tx) error { panic(failed) }
	put := func(tx *Tx) error { return tx.Bucket([]byte(flat)).Put([]byte("k"), []byte("v")) }
	for what, use := range map[string]func(db *DB) error{
		"a reader that fails":   func(db *DB) error { return db.View(fails) },
		"a reader that panics":  func(db *DB) error { return db.View(panics) },
		"a writer that fails":   func(db *DB) error { return db.Update(fails) },
		"a writer that panics":  func(db *DB) error { return db.Update(panics) },
		"a commit":              func(db *DB) error { return db.Update(put) },
		"a commit of nothing":   func(db *DB) error { return db.Update(func(*Tx) error { return nil }) },
		"a commit that fails":   func(db *DB) error { db.log.close(); return db.Update(put) },
		"a fold":                func(db *DB) error { return db.Fold() },
		"a fold that panics":    func(db *DB) error { db.options.passed = func(string) { panic(failed) }; return db.Fold() },
		"a second end":          func(db *DB) error { return db.View((*Tx).Rollback) },
		"a reader that commits": func(db *DB) error { return db.View((*Tx).Commit) },
		"one of a closed file":  func(db *DB) error { return errors.Join(db.raw.Close(), db.View(put)) },
	} {
		db, set := spareDB(t, Options{})
		set(1, "first")
		func() {
			defer func() { _ = recover() }()
			t.Log(what, use(db))
		}()
		if len(db.readers) > 0 {
			t.Errorf("after %s there are readers: %v", what, db.readers)
		}
		db.options.passed = func(string) {}
	}
}

// TestRowsAreUsedAgain of those that were written again and of tables that were folded:
// writing as much as before takes no new ones.
func TestRowsAreUsedAgain(t *testing.T) {
	db, set := spareDB(t, Options{})
	const rows = 300
	known := map[*row]bool{}
	for round := range 3 {
		for i := range rows {
			set(i, "before")
			set(i, "after1")
		}
		news := 0
		for _, r := range db.state.Load().active.rows() {
			if !known[r] {
				known[r] = true
				news++
			}
		}
		if news != rows && round == 0 || news > 2 && round > 0 {
			t.Errorf("in round %d %d of %d rows are new", round, news, rows)
		}
		if err := db.Fold(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatWaitsForReadersIsBounded: one that takes for ever holds what it sees, and not
// all that is written meanwhile.
func TestWhatWaitsForReadersIsBounded(t *testing.T) {
	db, set := spareDB(t, Options{Bound: 16 << 10})
	tx, err := db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		set(i%10, string(make([]byte, 100)))
	}
	if most := spareTables * db.options.Bound; db.departedWeight > most || db.departedWeight < most/2 {
		t.Errorf("%d bytes wait, of at most %d", db.departedWeight, most)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		set(1, "x")
	}
	if len(db.departed) > 1 || db.departedWeight > 1000 || db.spare.weight > db.spare.bound || db.spare.weight == 0 {
		t.Errorf("%d lists with %d bytes wait, %d bytes are spare", len(db.departed), db.departedWeight, db.spare.weight)
	}
}

// TestSpareRowsThatNobodyNeedsGo, with the second table that did not need them.
func TestSpareRowsThatNobodyNeedsGo(t *testing.T) {
	s := spareRows{bound: 1 << 20}
	var rows []*row
	for range 10 {
		rows = append(rows, taken(&s))
	}
	s.give(rows)
	s.trim()
	s.give([]*row{taken(&s), taken(&s)})
	s.trim()
	which, size := sizeOfRow(100)
	if n := len(s.of[which].rows); n != 2 {
		t.Errorf("%d rows are kept", n)
	}
	if want := len(s.of[which].rows) * (rowWeight + size); s.weight != want {
		t.Errorf("it says that it has %d bytes, and has %d", s.weight, want)
	}
}

// TestSpareRowsWeighAsInATable: of small ones most is what a row takes beside its text.
func TestSpareRowsWeighAsInATable(t *testing.T) {
	s := spareRows{bound: spareTables * 1 << 10}
	small := &row{buf: make([]byte, 0, 1<<leastSize), kind: put}
	for range 1000 {
		again := *small
		s.give([]*row{&again})
	}
	if n, most := len(s.of[0].rows), s.bound/small.weight(); n == 0 || n > most {
		t.Errorf("%d rows are kept, of which %d fill %d tables", n, most, spareTables)
	}
}

func taken(s *spareRows) *row {
	r := s.take(100)
	r.kind = put
	return r
}

// newRow is one that no transaction wrote.
func newRow(k kind, key, value []byte, seq uint64) *row {
	return &row{buf: append(bytes.Clone(key), value...), cut: len(key), kind: k, seq: seq}
}
