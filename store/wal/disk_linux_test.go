package wal

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// onDisk is a store whose files can be made to fail.
func onDisk(t *testing.T, o Options) (*ledger, *disk, string) {
	t.Helper()
	path, d := filepath.Join(t.TempDir(), "x.db"), &disk{}
	db, err := openFile(path, o, d.open)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(db.Close(), d.close()) })
	l := newLedger(t, db)
	if err := l.write(); err != nil {
		t.Fatal(err)
	}
	return l, d, path
}

func device(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestAFailingFlushStopsCommitsOnceTheWALIsFull: and not before. They continue when there is room
// again.
func TestAFailingFlushStopsCommitsOnceTheWALIsFull(t *testing.T) {
	l, d, path := onDisk(t, byHand)
	wal := d.files[1:]
	d.files = d.files[:1] // the bbolt file alone fails
	if err := d.become(device(t, "/dev/full")); err != nil {
		t.Fatal(err)
	}
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		err = l.write()
	}
	if s := l.db.version.Load(); !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EINVAL) || s.immutable == nil || !l.db.overdue(s.active) {
		t.Fatalf("after %d transactions: %v", n, err)
	}
	if got := read(t, l.db); !maps.Equal(got, l.now) || l.db.Ahead() {
		t.Errorf("what is read is not what was committed")
	}
	if last, err := l.opened(take(t, path)); err != nil || last != l.db.Memtables().Transactions {
		t.Errorf("after a kill: %d, %v", last, err)
	}
	if err := d.become(nil); err != nil {
		t.Fatal(err)
	}
	d.files = append(d.files, wal...)
	for range 100 {
		if err := l.write(); err != nil {
			t.Fatal(err)
		}
	}
	if last, err := l.opened(take(t, path)); err != nil || last != l.db.Memtables().Transactions {
		t.Errorf("after a kill: %d, %v", last, err)
	}
}

func TestWaitersContinueAfterAFlushRecovers(t *testing.T) {
	told := make(chan error, 100)
	l, d, _ := onDisk(t, Options{Spaces: byHand.Spaces, Bound: byHand.Bound, Flushes: func(err error) { told <- err }})
	wal := d.files[1:]
	d.files = d.files[:1] // the bbolt file alone fails
	if err := d.become(device(t, "/dev/full")); err != nil {
		t.Fatal(err)
	}
	for l.write() == nil {
	}
	for range 2 {
		if err := <-told; err == nil {
			t.Fatal("it is told that folding works")
		}
	}
	if err := d.become(nil); err != nil {
		t.Fatal(err)
	}
	d.files = append(d.files, wal...)
	for err := range told {
		if err == nil {
			break
		}
	}
	if err := l.db.Flush(); err != nil || len(told) > 0 {
		t.Errorf("%v, and it was told %d times more", err, len(told))
	}
}

// TestAFullDiskFailsBeforeTheRecordIsWritten: also if the file must grow for it.
func TestAFullDiskFailsBeforeTheRecordIsWritten(t *testing.T) {
	var l *ledger
	o := Options{byHand: true, Spaces: byHand.Spaces}
	o.passed = func(point string) {
		if point != "logWritten" || l == nil {
			return
		}
		wal := l.db.wal
		if info, err := wal.files[wal.slot].Stat(); err != nil || info.Size() != wal.sizes[wal.slot] {
			t.Errorf("the record made the file grow: %v", err)
		}
	}
	made, d, path := onDisk(t, o)
	l = made
	full := device(t, "/dev/full")
	for range 300 {
		before := l.db.Work()
		if err := d.become(full); err != nil {
			t.Fatal(err)
		}
		now := maps.Clone(l.now)
		if err := l.write(); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		l.past[l.db.Memtables().Transactions+1] = nil
		if got := read(t, l.db); !maps.Equal(got, now) || l.db.Ahead() || l.db.Work().Records != before.Records {
			t.Fatal("a transaction that failed can be seen")
		}
		if err := d.become(nil); err != nil {
			t.Fatal(err)
		}
		if err := l.write(); err != nil {
			t.Fatal(err)
		}
	}
	if last, err := l.opened(take(t, path)); err != nil || last != l.db.Memtables().Transactions {
		t.Errorf("after a kill: %d, %v", last, err)
	}
}

// TestAFailedSyncIsFinal: readers see nothing of it, nothing is written after it, and a restart
// finds out what is on disk.
func TestAFailedSyncIsFinal(t *testing.T) {
	l, d, path := onDisk(t, byHand)
	l.db.wal.sync = true // of the WAL alone; the device swallows writes and fails syncs
	if err := d.become(device(t, "/dev/null")); err != nil {
		t.Fatal(err)
	}
	now := maps.Clone(l.now)
	if err := l.write(); !errors.Is(err, syscall.EINVAL) || !l.db.Ahead() {
		t.Fatalf("%v", err)
	}
	if err := d.become(nil); err != nil {
		t.Fatal(err)
	}
	if err := l.write(); !errors.Is(err, syscall.EINVAL) || !maps.Equal(read(t, l.db), now) {
		t.Errorf("the next: %v", err)
	}
	if _, err := l.db.Snapshot(); err == nil {
		t.Error("it is copied as if that had not been")
	}
	if last, err := l.opened(take(t, path)); err != nil || last != 1 {
		t.Errorf("after a restart: %d, %v", last, err)
	}
	if err := l.db.Close(); err != nil {
		t.Fatal(err)
	}
	if last, err := l.opened(take(t, path)); err != nil || last != 1 {
		t.Errorf("after a stop: %d, %v", last, err)
	}
}

// TestOneGoroutineFlushesAlsoAfterFailures: commits and copies on a full disk start no second one.
func TestOneGoroutineFlushesAlsoAfterFailures(t *testing.T) {
	o := byHand
	o.byHand = false
	l, d, _ := onDisk(t, o)
	d.files = d.files[:1] // the bbolt file alone fails
	if err := d.become(device(t, "/dev/full")); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for range 50 {
		if err := l.db.Settle(); err == nil {
			t.Fatal("it was folded")
		}
	}
	if n := runtime.NumGoroutine() - before; n > 1 {
		t.Errorf("%d goroutines fold", n)
	}
	if err := d.become(nil); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := l.write(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.db.Flush(); err != nil || !maps.Equal(read(t, l.db), l.now) {
		t.Errorf("%v", err)
	}
}

// TestAWALIsRemovedOnlyAfterASync: a killed process may have left the settled file in the page
// cache only. If a sync fails, the WAL stays.
func TestAWALIsRemovedOnlyAfterASync(t *testing.T) {
	l, _, from := onDisk(t, byHand)
	killed := take(t, from)
	if err := l.db.Settle(); err != nil {
		t.Fatal(err)
	}
	path := with(killed, "", take(t, from)[""]).put(t)
	d := &disk{}
	raw, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, OpenFile: d.open})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(raw.Close(), d.close()) })
	if err := d.become(device(t, "/dev/full")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(raw, byHand); !errors.Is(err, syscall.ENOSPC) || len(take(t, path)) != 3 {
		t.Errorf("%v, and %d files are left", err, len(take(t, path)))
	}
	if err := d.become(nil); err != nil {
		t.Fatal(err)
	}
	if db, err := Load(raw, byHand); err != nil || len(take(t, path)) != 1 || !maps.Equal(read(t, db), l.now) {
		t.Errorf("%v, and %d files are left", err, len(take(t, path)))
	}
}
