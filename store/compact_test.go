package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/oklog/ulid/v2"

	"edda"
)

// bulky leaves a store whose pages are mostly free.
func bulky(t testing.TB, db *opened, instances int) {
	t.Helper()
	for i := 0; i < instances; i += 64 {
		var c Change
		for j := range 64 {
			c.Transitions = append(c.Transitions, finished(key(fmt.Sprint("old", i+j)), 1, edda.StatusDone))
		}
		db.commit(t, c)
	}
	db.flush(t)
	db.sweep(t, KindInstances, before(noon.Add(time.Hour)))
	db.flush(t)
}

func TestCompactFreesSpaceDuringCommits(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	bulky(t, db, 2048)
	db.commit(t, Change{Transitions: []edda.Transition{step(key("seen"), 1)}})
	view, old := must(db.View()), db.file
	var commits sync.WaitGroup
	stop := make(chan struct{})
	last := make([]uint64, 3)
	for n := range last {
		commits.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				last[n]++
				tr := working(fmt.Sprint("busy", n), last[n], fmt.Sprint("c", n, "-", last[n]))
				if last[n] > 1 {
					tr.Settled = []string{fmt.Sprint("c", n, "-", last[n]-1)}
				}
				if err := db.Commit(context.Background(), Change{Transitions: []edda.Transition{tr}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	compacted := make(chan error, 1)
	var c Compaction
	go func() {
		var err error
		c, err = db.Compact(context.Background(), nil)
		compacted <- err
	}()
	// The old file is closed only when nobody reads it any more.
	for replaced := false; !replaced; {
		db.swap.RLock()
		replaced = view.tx.DB() != db.file
		db.swap.RUnlock()
		if err := db.Commit(context.Background(), Change{}); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "in the view", must(view.Cell(key("seen"))).Instance.Revision, uint64(1))
	view.Close()
	if err := <-compacted; err != nil {
		t.Fatal(err)
	}
	if old.Raw().Path() != "" {
		t.Error("the old file is still open")
	}
	if c.After >= c.Before || c.Pause <= 0 {
		t.Errorf("%+v", c)
	}
	close(stop)
	commits.Wait()
	db.check(t)
	checkIndex(t, db.DB)
	for n, revision := range last {
		same(t, "last", db.cell(t, key(fmt.Sprint("busy", n))).Instance.Revision, revision)
	}
	rows := dump(t, db.DB)
	db.stop()
	db = open(t, dir, Options{})
	same(t, "after a restart", dump(t, db.DB), rows)
	db.check(t)
}

// TestCompactedIsTheSame compares every row, with a second compaction and none
// of what was committed in between.
func TestCompactedIsTheSame(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	rows := dump(t, db.DB)
	for range 2 {
		if _, err := db.Compact(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		same(t, "rows", dump(t, db.DB), rows)
	}
	db.commit(t, Change{Transitions: []edda.Transition{step(key("1"), 1)}})
	db.check(t)
	same(t, "outbox", len(must(db.Outbox(ulid.ULID{}, 10))), 2)
}

func TestACancelledCompactionChangesNothing(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	bulky(t, db, 128)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := db.Compact(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, compacting)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was given up is still there: %v", err)
	}
	db.commit(t, Change{})
	db.check(t)
}

func TestTooManyCommitsEndACompaction(t *testing.T) {
	var l delta
	l.add(1, make([]byte, maxDelta))
	l.add(2, []byte{1})
	l.add(3, []byte{1})
	if _, left, err := l.take(1); !errors.Is(err, edda.Temporary) || left > 0 {
		t.Errorf("%v, and %d transactions are kept", err, left)
	}
}

// TestTakenTransactionsAreNotKept: else the bound counts less than what is in memory.
func TestTakenTransactionsAreNotKept(t *testing.T) {
	var l delta
	for i := range uint64(3) {
		l.add(i, make([]byte, 1<<20))
	}
	taken := weak.Make(&l.list[0].entry[0])
	if out, left, err := l.take(1); err != nil || len(out) != 1 || left != 2 {
		t.Fatalf("%d taken, %d left, %v", len(out), left, err)
	}
	runtime.GC()
	if taken.Value() != nil {
		t.Error("the entry is in memory still")
	}
	runtime.KeepAlive(&l)
}

// TestACommitThatTheSnapshotHadWasAppliedTwice: a commit can be seen, and so be copied, although its
// entry was noted.
func TestACommitThatTheSnapshotHadWasAppliedTwice(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	x := &compactor{db: db.DB, copyProgress: copyProgress{ctx: context.Background()}, temp: filepath.Join(dir, compacting)}
	db.file.Follow(x.delta.add)
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 1, "c1")}})
	if err := errors.Join(x.open(), x.copy()); err != nil {
		t.Fatal(err)
	}
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 2, "c2")}})
	same(t, "noted", len(x.delta.list), 2)
	rows, at := dump(t, db.DB), db.Point()
	replaced := make(chan error, 1)
	db.safe <- func() { replaced <- x.replace() }
	if err := errors.Join(<-replaced, x.old.Close()); err != nil {
		t.Fatal(err)
	}
	same(t, "rows", dump(t, db.DB), rows)
	same(t, "point", db.Point(), at)
	db.check(t)
}

// TestACopyWithoutATransactionIsRefused: the store goes on in its file.
func TestACopyWithoutATransactionIsRefused(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	db.commit(t, formatChanges()[0])
	x := &compactor{db: db.DB, copyProgress: copyProgress{ctx: context.Background()}, temp: filepath.Join(dir, compacting)}
	if err := errors.Join(x.open(), x.copy()); err != nil {
		t.Fatal(err)
	}
	db.begun(t, key("missing"), 1)
	replaced := make(chan error, 1)
	db.safe <- func() { replaced <- x.replace() }
	if err := <-replaced; err == nil || !strings.Contains(err.Error(), "the copy is at transaction 1") {
		t.Errorf("%v", err)
	}
	if err := x.abandon(); err != nil {
		t.Fatal(err)
	}
	db.begun(t, key("missing"), 2)
	db.check(t)
}

// TestCompactMadeASmallFileLarger: bbolt reserves 16 MiB at a time while a file
// grows, and the copy was put in place with them.
func TestCompactMadeASmallFileLarger(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	for range 3 {
		db.flush(t)
		before := must(db.Size())
		c, err := db.Compact(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "before", c.Before, before.Bytes)
		same(t, "after", c.After, must(db.Size()).Bytes)
		if c.After > c.Before {
			t.Errorf("%d bytes of pages, %d before", c.After, c.Before)
		}
		db.commit(t, Change{Audits: []Audit{{Time: noon, By: "x", Verb: "compact"}}})
		if n := fileSize(db.path); n > c.After+slack {
			t.Errorf("the file has %d bytes, its pages %d", n, c.After)
		}
	}
	db.check(t)
}

// TestACompactedFileNeedsNoWAL: after a kill at any moment the file has its own WAL, or needs none.
func TestACompactedFileNeedsNoWAL(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	rows, before := dump(t, db.DB), crashed(t, db)
	if _, err := db.Compact(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	renamed := crashed(t, db) // with the log of the file that was there
	if _, err := os.Stat(renamed + "-log-0"); err != nil {
		t.Fatal(err)
	}
	db.commit(t, Change{Transitions: []edda.Transition{step(key("1"), 1)}})
	after, more := crashed(t, db), dump(t, db.DB)
	for path, want := range map[string]map[string]string{before: rows, renamed: rows, after: more} {
		again := open(t, filepath.Dir(path), Options{})
		same(t, "rows", dump(t, again.DB), want)
		again.commit(t, Change{Transitions: []edda.Transition{step(key("2"), 1)}})
		again.check(t)
	}
}
