package wal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// rows of a thousand bytes fill a memtable of resting after rowsOfTable.
const rowsOfTable = 64

var resting = Options{Bound: rowsOfTable * (1000 + rowWeight), chunkLimit: chunkLimit{bytes: 4 * (1000 + rowWeight), rows: 1000}}

// thousandBytes puts rows, each of a transaction of its own.
func thousandBytes(t *testing.T, db *DB, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		key := fmt.Sprintf("%04d", i)
		if err := db.Update(func(tx *Tx) error {
			return tx.Bucket([]byte(flat)).Put([]byte(key), make([]byte, 1000-len(key)))
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func flushes(t *testing.T, db *DB, want uint64) {
	t.Helper()
	synctest.Wait()
	if got := db.Work().Flushes; got != want {
		t.Errorf("%d transactions folded something, want %d", got, want)
	}
}

// A memtable may be flushed for as long as the next one takes to fill.
func TestAFlushIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := openFile(filepath.Join(t.TempDir(), "x.db"), resting, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		thousandBytes(t, db, 0, 1)
		before := db.Work().Flushes // with what begins a WAL
		thousandBytes(t, db, 1, rowsOfTable)

		flushes(t, db, before+1)
		time.Sleep(maxThrottle)
		flushes(t, db, before+2) // nobody writes: a chunk for each rest
		time.Sleep(maxThrottle - time.Nanosecond)
		flushes(t, db, before+2)
		time.Sleep(time.Nanosecond)
		flushes(t, db, before+3)

		// Once the memtable that is written is as full as throttleUntil, all of the other is flushed,
		// and no time passed.
		thousandBytes(t, db, rowsOfTable, rowsOfTable+rowsOfTable*throttleUntil/1000+1)
		flushes(t, db, before+rowsOfTable/4)
		if got := db.Memtables().Immutable; got != 0 {
			t.Errorf("%d bytes are to be folded still", got)
		}
	})
}

// TestAFlushFollowsTheFullestBound: readers pass tombstones, and an open reads the WAL, so a
// memtable is as full as the bound that it is closest to.
func TestAFlushFollowsTheFullestBound(t *testing.T) {
	const bound, few = 1 << 20, 3 * tombstoneBound / 4
	set := func(db *DB, key string, value []byte) {
		if err := db.Update(func(tx *Tx) error { return tx.Bucket([]byte(flat)).Put([]byte(key), value) }); err != nil {
			t.Fatal(err)
		}
	}
	for what, fill := range map[string]func(db *DB){
		"deleted rows": func(db *DB) {
			if err := db.Update(func(tx *Tx) (err error) {
				for i := range few + 1 {
					err = errors.Join(err, tx.Bucket([]byte(flat)).Delete(fmt.Appendf(nil, "d%d", i)))
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		},
		"one row, again and again": func(db *DB) {
			value := make([]byte, bound/16)
			for walBytes := 0; walBytes <= 3*walBound/4; walBytes += len(value) {
				_, _ = rand.Read(value) // never fails
				set(db, "one", value)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			db, err := openFile(filepath.Join(t.TempDir(), "x.db"), Options{Bound: bound, chunkLimit: chunkLimit{bytes: bound / 16, rows: chunkRows}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			for i := range few + 1 {
				set(db, fmt.Sprint("d", i), nil)
			}
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
			thousandBytes(t, db, 0, bound/(1000+rowWeight)+1)
			synctest.Wait()
			if db.Memtables().Immutable == 0 {
				t.Fatal("nothing is to be folded")
			}
			fill(db)
			synctest.Wait()
			if got := db.Memtables(); got.Immutable != 0 || got.Active > bound/2 {
				t.Errorf("after %s: %+v", what, got)
			}
		})
	}
}

// Who waits for all of a memtable to be flushed waits for no rest.
func TestAWaiterForAFlushIsNotThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := openFile(filepath.Join(t.TempDir(), "x.db"), resting, nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		thousandBytes(t, db, 0, rowsOfTable+1)
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		thousandBytes(t, db, 0, 3*rowsOfTable)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// Whoever reads from the beginning passes every row that was deleted.
func TestAMemtableOfTombstonesIsFlushedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := resting
		o.Bound = 8 << 20
		o.chunkLimit = chunkLimit{bytes: 8 << 20, rows: tombstoneBound / 16}
		db, err := openFile(filepath.Join(t.TempDir(), "x.db"), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		each := func(fn func(b *Bucket, key []byte) error) {
			if err := db.Update(func(tx *Tx) error {
				for i := range tombstoneBound {
					if err := fn(tx.Bucket([]byte(flat)), fmt.Appendf(nil, "%04d", i)); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		each(func(b *Bucket, key []byte) error { return b.Put(key, key) })
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		before := db.Work().Memtables
		each(func(b *Bucket, key []byte) error { return b.Delete(key) })
		synctest.Wait() // no time passes
		if got := db.Work().Memtables - before; got != 1 {
			t.Errorf("%d tables were folded", got)
		}
	})
}
