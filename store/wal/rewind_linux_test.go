package wal

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var errAway = errors.New("nobody answers")

// unsureAfter writes transactions up to one whose shipment fails, and flushes now and then. The file is still open.
func unsureAfter(t *testing.T, n uint64, o Options) *ledger {
	t.Helper()
	o.Ship = func(seq uint64, _ []byte) func() error {
		return func() error {
			if seq == n {
				return errAway
			}
			return nil
		}
	}
	db, err := openFile(filepath.Join(t.TempDir(), "x.db"), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // perhaps again
	l := newLedger(t, db)
	for seq := uint64(1); seq < n; seq++ {
		if err := l.write(); err != nil {
			t.Fatal(err)
		}
		if seq%3 > 0 {
			if _, err := db.flushChunk(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.write(); !errors.Is(err, errAway) {
		t.Fatalf("transaction %d: %v", n, err)
	}
	return l
}

func openStandby(t *testing.T, path string, o Options) *DB {
	t.Helper()
	o.Standby = true
	db, err := openFile(path, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // perhaps again
	return db
}

// checkAt compares a file with the ledger after a transaction.
func checkAt(t *testing.T, what string, l *ledger, db *DB, want Point) {
	t.Helper()
	if got := read(t, db); db.Point() != want || !maps.Equal(got, l.past[want.Transaction]) {
		t.Fatalf("%s: at %v it is\n%v, want at %v\n%v", what, db.Point(), got, want, l.past[want.Transaction])
	}
}

// lastRecord is the place of the last record.
func lastRecord(t *testing.T, db *DB) (path string, at, size int64) {
	t.Helper()
	for slot := range 2 {
		text, err := readWAL(walPath(db.path, slot))
		if err != nil {
			t.Fatal(err)
		}
		at := int64(headerSize)
		for _, r := range text.records {
			if r.seq == db.Point().Transaction {
				return text.path, at, int64(recordHeader + len(r.entry))
			}
			at += int64(recordHeader + len(r.entry))
		}
	}
	t.Fatal("there is no last record")
	return "", 0, 0
}

// TestALargeTransactionIsErasedWhole, which takes several writes.
func TestALargeTransactionIsErasedWhole(t *testing.T) {
	erased := 0
	o := Options{byHand: true, Ship: func(uint64, []byte) func() error { return func() error { return errAway } }}
	db, err := openFile(filepath.Join(t.TempDir(), "x.db"), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	noise := make([]byte, 5*len(zeros)/2)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	if err := db.Update(func(tx *Tx) error { return tx.Bucket([]byte(flat)).Put([]byte("k"), noise) }); !errors.Is(err, errAway) {
		t.Fatal(err)
	}
	o = Options{byHand: true, Standby: true, passed: func(point string) {
		if point == "logErased" {
			erased++
		}
	}}
	again := openStandby(t, take(t, db.path).put(t), o)
	path, at, size := lastRecord(t, again)
	if err := again.Rewind(Point{}); err != nil || erased != 3 {
		t.Errorf("%v, in %d writes", err, erased)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range data[at:] {
		if b != 0 {
			t.Fatalf("byte %d of %d is there", i, size)
		}
	}
}

// TestWhatCannotBeRewoundStays: the buckets may have rows of it, the file was written since, or it was never at that point.
func TestWhatCannotBeRewoundStays(t *testing.T) {
	o := byHand
	o.Bound = 1 << 20
	l := unsureAfter(t, 9, o)
	before, unsure := l.db.Point(), take(t, l.db.path)
	unsurePoint := openStandby(t, unsure.put(t), o).Point()
	apply := func(db *DB) error { return db.Apply(10, ofBucket(t, 10, flat)) }
	ended := func(do func(db *DB) error) func(db *DB) (*DB, error) {
		return func(db *DB) (*DB, error) { return db, do(db) }
	}
	reopened := func(do func(db *DB) error) func(db *DB) (*DB, error) {
		return func(db *DB) (*DB, error) {
			err := do(db)
			return openStandby(t, take(t, db.path).put(t), o), err
		}
	}
	rotate := func(db *DB) error {
		db.writer.Lock()
		defer db.writer.Unlock()
		if !db.rotateNow() {
			t.Error("nothing is immutable")
		}
		return nil
	}
	chunk := func(db *DB) error {
		if err := rotate(db); err != nil {
			return err
		}
		more, err := db.flushChunk()
		if !more {
			t.Error("one chunk has all")
		}
		return err
	}
	for what, test := range map[string]struct {
		do func(db *DB) (*DB, error)
		to Point
	}{
		"the sum of another":           {ended(func(*DB) error { return nil }), Point{before.Transaction, before.Sum + 1}},
		"two transactions":             {ended(func(*DB) error { return nil }), Point{before.Transaction - 1, before.Sum}},
		"none":                         {ended(func(db *DB) error { return nil }), Point{before.Transaction + 1, 0}},
		"flushed":                      {ended((*DB).Flush), before},
		"flushed, and opened again":    {reopened((*DB).Flush), before},
		"settled, and opened again":    {reopened((*DB).Settle), before},
		"flushed in part":              {ended(chunk), before},
		"flushed in part, and opened":  {reopened(chunk), before},
		"to be flushed":                {ended(rotate), before},
		"another was applied":          {ended(apply), unsurePoint},
		"another was applied, and so":  {ended(apply), before},
		"another was applied and open": {reopened(apply), before},
	} {
		db, err := test.do(openStandby(t, unsure.put(t), o))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		at, was := db.Point(), read(t, db)
		if err := db.Rewind(test.to); !errors.Is(err, ErrNoRewind) {
			t.Errorf("%s: %v", what, err)
		}
		if got := read(t, db); db.Point() != at || !maps.Equal(got, was) {
			t.Errorf("%s: it has changed: at %v it is %v", what, db.Point(), got)
		}
		if err := db.Apply(at.Transaction+1, ofBucket(t, at.Transaction+1, flat)); err != nil {
			t.Errorf("%s: it does not go on: %v", what, err)
		}
	}
	empty := openStandby(t, filepath.Join(t.TempDir(), "x.db"), o)
	if err := empty.Rewind(Point{}); !errors.Is(err, ErrNoRewind) {
		t.Errorf("an empty file: %v", err)
	}
}

// TestAFailedRewindEndsWriting: nobody knows whether the transaction is on disk. Opening the file finds out.
func TestAFailedRewindEndsWriting(t *testing.T) {
	l := unsureAfter(t, 5, byHand)
	before := l.db.Point()
	db := openStandby(t, take(t, l.db.path).put(t), byHand)
	db.options.OpenFile = func(string, int, os.FileMode) (*os.File, error) { return os.OpenFile("/dev/full", os.O_RDWR, 0) }
	if err := db.Rewind(before); err == nil || errors.Is(err, ErrNoRewind) || !db.Ahead() {
		t.Errorf("%v, ahead %t", err, db.Ahead())
	}
	if err := db.Rewind(before); err == nil || errors.Is(err, ErrNoRewind) {
		t.Errorf("again: %v", err)
	}
	again := openStandby(t, take(t, db.path).put(t), byHand)
	if err := again.Rewind(before); err != nil {
		t.Fatal(err)
	}
	checkAt(t, "opened again", l, again, before)
}

// TestARewoundTransactionIsNotOfThePast: the kept files do not have it.
func TestARewoundTransactionIsNotOfThePast(t *testing.T) {
	l := unsureAfter(t, 30, byHand)
	o := byHand
	o.Keep = func() time.Time { return time.Time{} }
	db := openStandby(t, take(t, l.db.path).put(t), o)
	if err := db.Rewind(l.db.Point()); err != nil {
		t.Fatal(err)
	}
	last := func() (last uint64) {
		if err := db.Past(func(seq uint64, _ Values) error { last = seq; return nil }); err != nil {
			t.Fatal(err)
		}
		return last
	}
	if got := last(); got != 29 {
		t.Errorf("the last is %d", got)
	}
	if err := db.Settle(); err != nil { // the files of the WAL are kept under other names
		t.Fatal(err)
	}
	if got := last(); got != 29 {
		t.Errorf("the last that is kept is %d", got)
	}
}
