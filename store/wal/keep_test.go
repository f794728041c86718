package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// keeping is a file that keeps its WAL until a moment, and what complained.
type keeping struct {
	*DB
	t     *testing.T
	set   func(i int, value string)
	until time.Time
	said  []error
}

func newKeeping(t *testing.T, change func(*Options)) *keeping {
	t.Helper()
	k := &keeping{t: t}
	o := Options{Bound: 2 << 10, Keep: func() time.Time { return k.until }, Kept: func(err error) {
		if err != nil {
			k.said = append(k.said, err)
		}
	}}
	if change != nil {
		change(&o)
	}
	k.DB, k.set = testDB(t, o)
	return k
}

// turn fills a memtable, and flushes it.
func (k *keeping) turn(i int) {
	k.t.Helper()
	k.set(i, strings.Repeat("x", 2<<10))
	if more, err := k.flushChunk(); more || err != nil {
		k.t.Fatal(more, err)
	}
}

func (k *keeping) files() []string {
	k.t.Helper()
	paths, err := Kept(k.path)
	if err != nil {
		k.t.Fatal(err)
	}
	return paths
}

// found are the keys that the WAL and what is kept of it have values of.
func (k *keeping) found() (keys []string) {
	k.t.Helper()
	if err := k.Past(func(_ uint64, v Values) error {
		return v(func(space, key, _ []byte) error {
			keys = append(keys, string(key))
			return nil
		})
	}); err != nil {
		k.t.Fatal(err)
	}
	return keys
}

func (k *keeping) want(what string, from, to int) {
	k.t.Helper()
	var want []string
	for i := from; i <= to; i++ {
		want = append(want, fmt.Sprintf("%06d", i))
	}
	if got := k.found(); !slices.Equal(got, want) {
		k.t.Errorf("%s: found %v, want %v", what, got, want)
	}
}

func TestOldKeptFilesAreRemoved(t *testing.T) {
	k := newKeeping(t, nil)
	for i := range 6 {
		k.turn(i)
	}
	k.want("all", 0, 5)
	old := time.Now().Add(-time.Hour)
	for _, path := range k.files()[:3] {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	k.until = old.Add(-time.Minute)
	k.turn(6)
	k.want("all are young enough", 0, 6)
	k.until = old.Add(time.Minute)
	k.turn(7)
	k.want("three are too old", 3, 7)
	k.until = time.Now().Add(time.Hour)
	k.turn(8)
	if files := k.files(); len(files) > 0 {
		t.Errorf("something is kept: %v", files)
	}
	if len(k.said) > 0 {
		t.Error(k.said)
	}
}

func TestKeptFilesAreBounded(t *testing.T) {
	k := newKeeping(t, func(o *Options) { o.keptBytes = 6000 })
	for i := range 20 {
		k.turn(i)
	}
	size := int64(0)
	for _, path := range k.files() {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size == 0 || size > 6000 {
		t.Errorf("%d bytes are kept", size)
	}
	if keys := k.found(); keys[len(keys)-1] != "000019" || len(keys) < 3 {
		t.Errorf("found %v", keys)
	}
}

// TestATruncatedKeptFileIsSkipped: its WAL file is overwritten only after there is a whole copy.
func TestATruncatedKeptFileIsSkipped(t *testing.T) {
	k := newKeeping(t, nil)
	for i := range 3 {
		k.set(i, "small")
	}
	k.turn(3)
	files := k.files()
	if err := os.Truncate(files[len(files)-1], headerSize+80); err != nil {
		t.Fatal(err)
	}
	k.want("half a copy", 0, 3)
}

func TestAFullDiskDoesNotStopFlushes(t *testing.T) {
	full := errors.New("no space left")
	k := newKeeping(t, nil)
	k.options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		if strings.Contains(name, keptSuffix) {
			return nil, full
		}
		return os.OpenFile(name, flag, mode)
	}
	for i := range 4 {
		k.turn(i)
	}
	if len(k.said) == 0 || !errors.Is(k.said[0], full) {
		t.Errorf("it said %v", k.said)
	}
	if files := k.files(); len(files) != 0 {
		t.Errorf("there is %v", files)
	}
}

func TestKeptFilesAreNotRemovedDuringARead(t *testing.T) {
	k := newKeeping(t, nil)
	for i := range 5 {
		k.turn(i)
	}
	n := 0
	if err := k.Past(func(uint64, Values) error {
		if n == 0 {
			k.until = time.Now()
			k.turn(5)
		}
		n++
		return nil
	}); err != nil || n != 5 {
		t.Errorf("%d transactions, %v", n, err)
	}
}

func TestRemoveKept(t *testing.T) {
	k := newKeeping(t, nil)
	k.turn(0)
	k.turn(1)
	if err := RemoveKept(k.path); err != nil || len(k.files()) != 0 {
		t.Errorf("%v, %v", k.files(), err)
	}
	if err := RemoveKept(filepath.Join(t.TempDir(), "none", "x.db")); err != nil {
		t.Error(err)
	}
}

// TestPastIsInTheOrderOfTransactions: also if the second file of the WAL has the older ones.
func TestPastIsInTheOrderOfTransactions(t *testing.T) {
	for turns := range 4 {
		t.Run(fmt.Sprint(turns, " turns"), func(t *testing.T) {
			k := newKeeping(t, nil)
			for i := range turns {
				k.turn(i)
			}
			k.set(turns, "small")
			k.want("while it runs", 0, turns)
			if err := k.Settle(); err != nil {
				t.Fatal(err)
			}
			k.want("once it is settled", 0, turns)
			k.set(turns+1, "small")
			k.want("with a new log", 0, turns+1)
		})
	}
}

// TestOtherFilesAreNotKeptFiles: such as a copy of an operator.
func TestOtherFilesAreNotKeptFiles(t *testing.T) {
	k := newKeeping(t, nil)
	k.turn(0)
	for _, name := range []string{k.path + keptSuffix + "0000000000000001.old", k.path + keptSuffix + "mine"} {
		if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Settle(); err != nil {
		t.Fatal(err)
	}
	k.set(1, "small") // begins a WAL
	k.turn(2)
	k.want("all the same", 0, 2)
	if len(k.said) > 0 {
		t.Error(k.said)
	}
}

// TestTellOfADeletedRowDoesNotRestoreIt: also after the WAL is read again.
func TestTellOfADeletedRowDoesNotRestoreIt(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		k := newKeeping(t, nil)
		k.set(0, "was")
		if flushed {
			if err := k.Settle(); err != nil {
				t.Fatal(err)
			}
		}
		key := []byte("000000")
		for range 2 {
			if err := k.Update(func(tx *Tx) error {
				b := tx.Bucket([]byte(flat))
				if err := b.Delete(key); err != nil {
					return err
				}
				b.Tell(key, []byte("was"))
				b.Tell(key, []byte("was"))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(t.TempDir(), "x.db")
		if err := copyLogged(k.path, path); err != nil {
			t.Fatal(err)
		}
		again, err := openFile(path, Options{byHand: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for what, db := range map[string]*DB{"the one that told": k.DB, "one that reads its log": again} {
			if err := db.View(func(tx *Tx) error {
				if got := tx.Bucket([]byte(flat)).Get(key); got != nil {
					t.Errorf("folded %t: %s has %q", flushed, what, got)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(again.CheckWAL(), again.Close()); err != nil {
			t.Error(err)
		}
		if n := len(k.found()); n != 5 {
			t.Errorf("folded %t: it was said %d times", flushed, n)
		}
	}
}

func copyLogged(from, to string) error {
	one := func(from, to string) error {
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	}
	return errors.Join(one(from, to), EachWAL(from, to, one))
}
