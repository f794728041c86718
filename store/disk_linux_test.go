package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"edda"
)

// disk stands between the store and its files: they can be swapped for a device that
// fails every write, while they stay open, mapped and locked.
type disk struct {
	t     testing.TB
	files []*os.File
	good  []int
}

func (d *disk) open(name string, flag int, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	good, err := unix.Dup(int(f.Fd()))
	d.files, d.good = append(d.files, f), append(d.good, good)
	d.t.Cleanup(func() { _ = unix.Close(good) })
	return f, err
}

// become puts a device in the files' place: /dev/full fails writes with ENOSPC,
// /dev/null swallows them and fails the sync.
func (d *disk) become(device string) {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	d.swap(func(int) int { return int(f.Fd()) })
}

func (d *disk) heal() { d.swap(func(i int) int { return d.good[i] }) }

func (d *disk) swap(with func(i int) int) {
	for i, f := range d.files {
		if fd := f.Fd(); fd != ^uintptr(0) { // closed
			if err := unix.Dup3(with(i), int(fd), 0); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

// spare leaves free pages in the file, so that the next commits write into it
// without growing it first: a device cannot grow.
func spare(t testing.TB, db *opened) {
	t.Helper()
	claim := edda.Claim{CommandID: "c", Claimed: noon, Result: json.RawMessage(`"` + strings.Repeat("x", 1<<18) + `"`)}
	db.commit(t, Change{Claims: []edda.Claim{claim}})
	db.flush(t)
	db.commit(t, Change{Remove: Removal{Claims: ClaimPlace{Hour: noon.Add(time.Hour)}}})
	db.flush(t)
	db.commit(t, Change{})
}

func TestFailedDiskChangesNothingAndHeals(t *testing.T) {
	dir, d := t.TempDir(), &disk{t: t}
	db := open(t, dir, Options{openFile: d.open})
	spare(t, db)
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 1, "c1")}})
	before := dump(t, db.DB)

	d.become("/dev/full")
	bad := Change{Transitions: []edda.Transition{working("1", 2, "c2"), working("2", 1, "c3")}}
	bad.Transitions[0].Settled = []string{"c1"}
	err := db.Commit(context.Background(), bad)
	if !errors.Is(err, edda.Temporary) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("commit to a full disk: %v, want a temporary %v", err, syscall.ENOSPC)
	}
	if err := db.Healthy(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("healthy: %v", err)
	}
	same(t, "after a failed commit", dump(t, db.DB), before)

	d.heal()
	db.check(t)
	checkIndex(t, db.DB)
	db.commit(t, bad)
	if err := db.Healthy(); err != nil {
		t.Errorf("healthy after healing: %v", err)
	}
	after := dump(t, db.DB)
	db.check(t)
	checkIndex(t, db.DB)
	db.stop()
	db = open(t, dir, Options{})
	same(t, "after reopening", dump(t, db.DB), after)
	db.check(t)
}

// TestAFailedFlushIsLoggedOnce: although it is retried every second. Recovery is logged, too.
func TestAFailedFlushIsLoggedOnce(t *testing.T) {
	t.Parallel() // it waits
	core, logs := observer.New(zapcore.InfoLevel)
	d := &disk{t: t}
	db := open(t, t.TempDir(), Options{openFile: d.open, flushAt: 4 << 10, Log: zap.New(core)})
	db.begun(t, key("1"), 1)
	all := d.files
	d.files = all[:1] // the log goes on
	d.become("/dev/full")
	said := func(want ...string) {
		t.Helper()
		var got []string
		for until := time.Now().Add(10 * time.Second); time.Now().Before(until) && !slices.Equal(got, want); time.Sleep(time.Millisecond) {
			got = nil
			for _, e := range logs.All() {
				if strings.HasPrefix(e.Message, "flush") {
					got = append(got, e.Level.String()+" "+e.Message)
				}
			}
		}
		same(t, "what is said", got, want)
	}
	for i := range 200 {
		if db.Commit(t.Context(), Change{Transitions: []edda.Transition{step(key(fmt.Sprint("k", i)), 1)}}) != nil {
			break
		}
	}
	said("warn flush the store's WAL")
	d.heal()
	d.files = all
	said("warn flush the store's WAL", "info flush the store's WAL: works again")
	db.check(t)
}

// TestAFailedSyncEndsCommitting until a restart reads what is on disk, though the disk
// works again: the system has forgotten what it could not write.
func TestAFailedSyncEndsCommitting(t *testing.T) {
	dir, d := t.TempDir(), &disk{t: t}
	db := open(t, dir, Options{openFile: d.open})
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 1, "c1")}})
	before := dump(t, db.DB)
	d.become("/dev/null")
	err := db.Commit(context.Background(), Change{Transitions: []edda.Transition{working("1", 2, "c2")}})
	if !errors.Is(err, edda.Temporary) || !errors.Is(err, syscall.EINVAL) || !errors.Is(err, ErrBroken) {
		t.Fatalf("a sync that fails: %v", err)
	}
	same(t, "after a failed sync", dump(t, db.DB), before)
	d.heal()
	if err := db.Commit(context.Background(), Change{}); !errors.Is(err, ErrBroken) {
		t.Errorf("the next commit: %v", err)
	}
	same(t, "after the next", dump(t, db.DB), before)
	db.stop()
	db = open(t, dir, Options{})
	same(t, "after a restart", dump(t, db.DB), before) // the device had swallowed it
	db.check(t)
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 2, "c2")}})
}

func TestHealthReturnsByItself(t *testing.T) {
	t.Parallel() // it waits
	d := &disk{t: t}
	db := open(t, t.TempDir(), Options{openFile: d.open})
	spare(t, db)
	d.become("/dev/full")
	if err := db.Commit(context.Background(), Change{Checkpoints: []edda.Checkpoint{{Stream: "S"}}}); err == nil {
		t.Fatal("committed to a full disk")
	}
	d.heal()
	eventually(t, func() bool { return db.Healthy() == nil })
}

// TestAProbeDoesNotFailLaterChanges: the probe had begun before the disk healed.
func TestAProbeDoesNotFailLaterChanges(t *testing.T) {
	d := &disk{t: t}
	idle, err := Open(t.TempDir(), Options{openFile: d.open})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	d.become("/dev/full")
	done := make(chan error, 1)
	idle.health.set(errors.New("the disk was full"))
	if err := idle.Submit(context.Background(), Change{}, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	idle.commitGroup(nil) // the probe, with something queued
	d.heal()
	idle.commitWaiting()
	if err := receive(t, done); err != nil {
		t.Error(err)
	}
}

// TestSubmitWorksAfterAReportedFailure: the new change does not count as queued behind the failed
// commit.
func TestSubmitWorksAfterAReportedFailure(t *testing.T) {
	d := &disk{t: t}
	db := open(t, t.TempDir(), Options{openFile: d.open})
	spare(t, db)
	d.become("/dev/full")
	again := make(chan error, 1)
	change := Change{Checkpoints: []edda.Checkpoint{{Stream: "S"}}}
	err := db.Submit(context.Background(), change, func(error) {
		d.heal()
		if err := db.Submit(context.Background(), change, func(err error) { again <- err }); err != nil {
			again <- err
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := receive(t, again); err != nil {
		t.Error(err)
	}
}

// TestFailureLeavesNoGap fails one commit with others queued behind it, inside
// its pipeline and outside, and more submitted after.
func TestFailureLeavesNoGap(t *testing.T) {
	d := &disk{t: t}
	var release sync.WaitGroup
	release.Add(1)
	entered := make(chan struct{}, 1)
	db := open(t, t.TempDir(), Options{openFile: d.open})
	spare(t, db)
	ctx := context.Background()

	// The committer stands in a callback while the queue fills.
	if err := db.Submit(ctx, Change{}, func(error) { entered <- struct{}{}; release.Wait() }); err != nil {
		t.Fatal(err)
	}
	<-entered
	d.become("/dev/full")
	line := db.Pipeline()
	results := make(chan string, 10)
	submit := func(name string, on func(context.Context, Change, func(error)) error) {
		t.Helper()
		c := Change{Checkpoints: []edda.Checkpoint{{Stream: name}}}
		err := on(ctx, c, func(err error) { results <- name + " " + class(err) })
		if err != nil {
			t.Fatal(err)
		}
	}
	submit("first", func(ctx context.Context, c Change, done func(error)) error {
		// The disk heals before those behind are looked at: that must not help them.
		return line.Submit(ctx, c, func(err error) { d.heal(); done(err) })
	})
	for range maxGroup { // so that the next ones are in another group
		if err := db.Submit(ctx, Change{}, func(error) {}); err != nil {
			t.Fatal(err)
		}
	}
	submit("queued", line.Submit)
	submit("beside", db.Submit)
	release.Done()
	for _, want := range []string{"first temporary", "queued temporary", "beside temporary"} {
		same(t, "answer", <-results, want)
	}

	submit("late", line.Submit) // had not heard of the failure
	submit("other", db.Submit)
	submit("renewed", db.Pipeline().Submit)
	for _, want := range []string{"late temporary", "other ok", "renewed ok"} {
		same(t, "answer", <-results, want)
	}
	var streams []string
	for _, c := range must(db.Checkpoints()) {
		streams = append(streams, c.Stream)
	}
	same(t, "what is durable", streams, []string{"other", "renewed"})
}

func class(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, edda.Temporary):
		return "temporary"
	}
	return err.Error()
}

// TestSyncFailureAfterTheLastWrite makes a commit visible in the file behind the
// committer's back, as a failed last sync does: the store must not go on as if
// nothing had happened.
func TestSyncFailureAfterTheLastWrite(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, Change{})
	// The committer is idle here, so its fields may be read and its part played.
	cause := errors.New("sync failed")
	same(t, "an invisible commit", errors.Is(db.doubt(db.stamp.Next(noon), cause), cause), true)
	same(t, "broken by it", db.broken == nil, true)
	err := db.doubt(db.stamp, cause)
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "restart") {
		t.Errorf("a visible one: %v", err)
	}
	if err := db.Commit(context.Background(), Change{}); !errors.Is(err, cause) {
		t.Errorf("the next commit: %v", err)
	}
}

func TestUnwritableFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer asNobody(t)()
	for _, path := range []string{dir, filepath.Join(dir, "data")} {
		_, err := Open(path, Options{})
		want := "cannot write " + path
		if err == nil || !strings.HasPrefix(err.Error(), want) ||
			!strings.HasSuffix(err.Error(), ": permission denied: choose another --data or change its owner") {
			t.Errorf("open %s: %v", path, err)
		}
	}
}

// asNobody takes root's rights on files from this thread, if it has them.
func asNobody(t *testing.T) (restore func()) {
	if os.Getuid() != 0 {
		return func() {}
	}
	const nobody = 65534
	runtime.LockOSThread()
	if _, err := unix.SetfsuidRetUid(nobody); err != nil {
		t.Fatal(err)
	}
	return func() {
		_, _ = unix.SetfsuidRetUid(0)
		runtime.UnlockOSThread()
	}
}

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it never came to be")
		}
	}
}
