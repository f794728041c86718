package wal

import (
	"bytes"
	"fmt"
	"hash/crc64"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// small flushes after some few rows, in chunks of two or three.
var small = Options{Bound: 4 << 10, chunkLimit: chunkLimit{bytes: 300, rows: 4}, Spaces: map[string]Space{nested: {Nested: true}}}

// sumKey has the sum of all other rows, as the transaction that wrote it left them.
var sumKey = []byte("sum")

// sum is that of the rows of a snapshot, and what it says that it is.
func sum(tx *Tx) (got, want uint64, err error) {
	memtable := crc64.MakeTable(crc64.ECMA)
	err = tx.Bucket([]byte(flat)).ForEach(func(k, v []byte) error {
		if bytes.Equal(k, sumKey) {
			_, err := fmt.Sscan(string(v), &want)
			return err
		}
		got = crc64.Update(crc64.Update(got, memtable, k), memtable, v)
		return nil
	})
	return got, want, err
}

// TestSnapshotIsConsistent: while rows are written and flushed, every row in it is of one
// transaction.
func TestSnapshotIsConsistent(t *testing.T) {
	db, err := openFile(filepath.Join(t.TempDir(), "x.db"), small, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for !done.Load() {
				if err := db.View(func(tx *Tx) error {
					got, want, err := sum(tx)
					if err == nil && got != want {
						err = fmt.Errorf("the rows are not those of one transaction: %x, %x", got, want)
					}
					return err
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	newBook().write(t, db, 3000)
	done.Store(true)
	readers.Wait()
	if db.version.Load().rotations < 10 {
		t.Errorf("only %d tables were frozen", db.version.Load().rotations)
	}
}

// book is what was written.
type book struct {
	rnd  *rand.Rand
	rows map[string]string
}

func newBook() *book {
	return &book{rnd: rand.New(rand.NewPCG(1, 2)), rows: map[string]string{}}
}

// write commits transactions of some rows and deletes each, with the sum of all.
func (b *book) write(t *testing.T, db *DB, n int) {
	t.Helper()
	rnd, rows := b.rnd, b.rows
	for i := range n {
		if err := db.Update(func(tx *Tx) error {
			b := tx.Bucket([]byte(flat))
			for range 4 {
				k, v := fmt.Sprintf("k%02d", rnd.IntN(60)), fmt.Sprint(i)
				if rnd.IntN(3) == 0 {
					delete(rows, k)
					if err := b.Delete([]byte(k)); err != nil {
						return err
					}
					continue
				}
				rows[k] = v
				if err := b.Put([]byte(k), []byte(v)); err != nil {
					return err
				}
			}
			return b.Put(sumKey, fmt.Append(nil, sumOf(rows)))
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func sumOf(rows map[string]string) (n uint64) {
	memtable := crc64.MakeTable(crc64.ECMA)
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		n = crc64.Update(crc64.Update(n, memtable, []byte(k)), memtable, []byte(rows[k]))
	}
	return n
}

func opens(t *testing.T, from, to string, last uint64) {
	t.Helper()
	if err := copyAll(from, to); err != nil {
		t.Fatal(err)
	}
	db, err := openFile(to, small, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if got := db.Memtables().Transactions; got != last {
		t.Fatalf("the last transaction is %d, want %d", got, last)
	}
	for range 2 { // as it was left, and with all in its place
		if err := db.View(func(tx *Tx) error {
			got, want, err := sum(tx)
			if got != want {
				t.Errorf("the rows are not those of transaction %d", last)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestARecreatedBucketIsEmpty also when the WAL is read: that it was dropped is
// not forgotten because it was made again in the same transaction.
func TestARecreatedBucketIsEmpty(t *testing.T) {
	path, name := filepath.Join(t.TempDir(), "x.db"), []byte("0001")
	db, err := openFile(path, small, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(*Bucket) error{
		func(b *Bucket) error {
			inner, err := b.CreateBucket(name)
			if err != nil {
				return err
			}
			return inner.Put([]byte("k"), []byte("v"))
		},
		func(b *Bucket) error {
			if err := b.DeleteBucket(name); err != nil {
				return err
			}
			_, err := b.CreateBucket(name)
			return err
		},
	} {
		if err := db.Update(func(tx *Tx) error { return step(tx.Bucket([]byte(nested))) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = openFile(path, small, nil); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *Tx) error {
		if v := tx.Bucket([]byte(nested)).Bucket(name).Get([]byte("k")); v != nil {
			t.Errorf("it has %q", v)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestASnapshotHasTheSizeOfItsFile: also during commits.
func TestASnapshotHasTheSizeOfItsFile(t *testing.T) {
	db, err := openFile(filepath.Join(t.TempDir(), "x.db"), small, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var done atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		for !done.Load() {
			tx, err := db.Snapshot()
			if err != nil {
				t.Error(err)
				return
			}
			last, err := number(tx.raw.Bucket(walBucket), rowFlushed)
			if seen := tx.active.last; err != nil || last != seen || tx.raw.Bucket(walBucket).Get(rowID) != nil || !tx.version.empty() {
				t.Errorf("the file ends with %d, the snapshot with %d, %v", last, seen, err)
			}
			_ = tx.Rollback() // it only read
		}
	})
	newBook().write(t, db, 2000)
	done.Store(true)
	reader.Wait()
}

// TestRewrittenRowsReachNoPage: during a flush, nor do rows deleted meanwhile: the newer ones are
// in the WAL and in the active memtable.
func TestRewrittenRowsReachNoPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	byHand := small
	byHand.byHand = true
	db, err := openFile(path, byHand, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := func(fn func(b *Bucket) error) {
		t.Helper()
		if err := db.Update(func(tx *Tx) error { return fn(tx.Bucket([]byte(flat))) }); err != nil {
			t.Fatal(err)
		}
	}
	// Their memtable is made immutable with what else is in it, and then they are changed.
	in(func(b *Bucket) error {
		for _, k := range []string{"a", "again", "deleted"} {
			if err := b.Put([]byte(k), []byte("first")); err != nil {
				return err
			}
		}
		return b.Put([]byte("much"), make([]byte, small.Bound))
	})
	in(func(b *Bucket) error {
		if err := b.Put([]byte("again"), []byte("second")); err != nil {
			return err
		}
		return b.Delete([]byte("deleted"))
	})
	for more := true; more; {
		if more, err = db.flushChunk(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Raw().View(func(tx *bolt.Tx) error {
		for k, want := range map[string]string{"a": "first", "again": "", "deleted": ""} {
			if got := string(tx.Bucket([]byte(flat)).Get([]byte(k))); got != want {
				t.Errorf("the page has %q of %s, want %q", got, k, want)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time from the WAL
		if err := db.View(func(tx *Tx) error {
			b := tx.Bucket([]byte(flat))
			if got := string(b.Get([]byte("again"))); got != "second" {
				t.Errorf("what was written again is %q", got)
			}
			if b.Get([]byte("deleted")) != nil {
				t.Error("what was deleted is there")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if db, err = openFile(path, small, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
