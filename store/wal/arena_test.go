package wal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// TestMain enables the overwriting of memtables that nothing refers to, so that a test which still
// reads one fails.
func TestMain(m *testing.M) {
	Poison = func(b []byte) {
		spoiling.Lock()
		defer spoiling.Unlock()
		for i := range b {
			b[i] = 0xA5
		}
	}
	os.Exit(m.Run())
}

// spoiling is held while a row is overwritten.
var spoiling sync.Mutex

// testDB is a file whose memtables are flushed where a test says so, and a put of its row i.
func testDB(t *testing.T, o Options) (db *DB, set func(i int, value string)) {
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

// TestARowIsNotReusedDuringARead: that began before the row was written again or flushed, whatever
// other transactions do.
func TestARowIsNotReusedDuringARead(t *testing.T) {
	for _, by := range []string{"a write", "a delete", "a fold"} {
		t.Run(by, func(t *testing.T) {
			db, set := testDB(t, Options{})
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
				err = db.Flush()
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				set(2, "other")
				if err := db.Flush(); err != nil {
					t.Fatal(err)
				}
				runtime.GC()
			}
			if string(value) != "first" {
				t.Errorf("its value became %q", value)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			tx = nil
			for range 1000 {
				runtime.GC()
				spoiling.Lock()
				spoilt := bytes.Equal(value, bytes.Repeat([]byte{0xA5}, 5))
				spoiling.Unlock()
				if spoilt {
					return
				}
			}
			t.Errorf("its memtable was flushed and no reader has it, and it is kept as %q", value)
		})
	}
}

// TestARowIsNotReusedDuringAFlush: a flush asks the memtable that was active at its start whether a
// value was written again.
func TestARowIsNotReusedDuringAFlush(t *testing.T) {
	var during func()
	db, set := testDB(t, Options{passed: func(point string) {
		if point == "foldDropping" && during != nil {
			during()
		}
	}})
	set(1, "first")
	db.writer.Lock()
	db.rotateNow()
	db.writer.Unlock()
	set(1, "again")
	r, _ := db.version.Load().active.layer([]byte(flat), nil).rows.Min()
	value := r.value()
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
	if _, err := db.flushChunk(); err != nil || !asked {
		t.Fatal(asked, err)
	}
}

func TestAFailedTransactionKeepsTheOldRows(t *testing.T) {
	db, set := testDB(t, Options{})
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

// TestAFailedTransactionUsesNoArena: however often it is retried, because a disk may be full for
// hours.
func TestAFailedTransactionUsesNoArena(t *testing.T) {
	db, set := testDB(t, Options{})
	set(1, "first")
	before := db.version.Load().active.arena.size
	failed := errors.New("failed")
	for range 100 {
		if err := db.Update(func(tx *Tx) error {
			return errors.Join(tx.Bucket([]byte(flat)).Put([]byte("k"), make([]byte, 100<<10)), failed)
		}); !errors.Is(err, failed) {
			t.Fatal(err)
		}
	}
	if now := db.version.Load().active.arena.size; now != before {
		t.Errorf("%d bytes, and %d before", now, before)
	}
}

// TestRewrittenRowsFillAMemtable: the memory of each row is used until the flush.
func TestRewrittenRowsFillAMemtable(t *testing.T) {
	db, set := testDB(t, Options{Bound: 16 << 10})
	writes := 0
	for ; db.version.Load().immutable == nil; writes++ {
		set(1, string(make([]byte, 100)))
	}
	if each := rowWeight + 106; writes*each < arenaFactor*db.options.Bound || (writes-1)*each >= arenaFactor*db.options.Bound {
		t.Errorf("%d writes of %d bytes fill it", writes, each)
	}
}

// newRow is one that no transaction wrote.
func newRow(k kind, key, value []byte, seq uint64) *row {
	return &row{buf: append(bytes.Clone(key), value...), cut: len(key), kind: k, seq: seq}
}
