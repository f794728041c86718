package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/keyset"
	"edda/standby"
	"edda/store"
	"edda/stream"
	"edda/stream/kv"
)

// TestASickOwnerHandsOver: the process of an owner ends for another node when its store refuses commits for long, and
// goes on when the store recovers, or nobody could take over.
func TestASickOwnerHandsOver(t *testing.T) {
	full := errors.New("no space left on device")
	for name, tt := range map[string]struct {
		sick  func(since time.Duration) error
		heir  func(since time.Duration) string
		after time.Duration // 0: the node goes on
	}{
		"well":    {func(time.Duration) error { return nil }, func(time.Duration) string { return "n2" }, 0},
		"full":    {func(time.Duration) error { return full }, func(time.Duration) string { return "n2" }, sickEvery + sickAfter},
		"no heir": {func(time.Duration) error { return full }, func(time.Duration) string { return "" }, 0},
		"an heir later": {func(time.Duration) error { return full }, func(since time.Duration) string {
			if since < time.Minute {
				return ""
			}
			return "n3"
		}, time.Minute},
		"now and then": {func(since time.Duration) error {
			if since%(4*time.Second) == 0 {
				return nil
			}
			return full
		}, func(time.Duration) string { return "n2" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				st := &stay{}
				st.shipper.Store(standby.NewShipper(t.Context(), nil, cluster.Mark{}, "n1.1", 1))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := st.keepOwning(ctx, func() error { return tt.sick(time.Since(begin)) }, func() string { return tt.heir(time.Since(begin)) })
				took := time.Since(begin)
				if tt.after == 0 && (err != nil || took != time.Hour) || tt.after > 0 && (!errors.Is(err, errSick) || !errors.Is(err, full) || took != tt.after) {
					t.Errorf("%v after %s, want one after %s", err, took, tt.after)
				}
				if tt.after > 0 && !st.stays(err) {
					t.Error("the node does not go on as a standby")
				}
			})
		})
	}
}

// TestAStopWaitsForTheLog: however long it takes, while the log answers. Then the log must take each append in time,
// also the one that was in flight when the stop began.
func TestAStopWaitsForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stops, hurry := context.WithCancel(t.Context())
		st := &stay{hurry: hurry}
		appended := func(answers time.Duration) (took time.Duration, err error) {
			log := outage{back: make(chan struct{})}
			time.AfterFunc(answers, func() { close(log.back) })
			began := time.Now()
			_, err = hurried{log, stops}.Append(t.Context(), cluster.Mark{}, cluster.Record{})
			return time.Since(began), err
		}
		if took, err := appended(10 * shipWithin); err != nil || took != 10*shipWithin {
			t.Errorf("before the stop: %v after %s", err, took)
		}
		time.AfterFunc(time.Second, st.ends)
		if took, err := appended(10 * shipWithin); !errors.Is(err, errShippingEnded) || took != time.Second+shipWithin {
			t.Errorf("in flight when the stop began: %v after %s", err, took)
		}
		for range 10 {
			if took, err := appended(shipWithin - time.Second); err != nil {
				t.Errorf("in a slow stop: %v after %s", err, took)
			}
		}
		if took, err := appended(shipWithin + time.Second); !errors.Is(err, errShippingEnded) || took != shipWithin {
			t.Errorf("in the stop: %v after %s", err, took)
		}
	})
}

// TestAnOwnerWithoutNATSIsNotSick: its store refuses commits while a lease is not confirmed, and a handover mends nothing.
func TestAnOwnerWithoutNATSIsNotSick(t *testing.T) {
	db, stop := testkit.OpenStore(t, t.TempDir(), store.Options{})
	defer stop()
	fence := kv.NewFence(time.Hour, nil, func(context.Context) error { return errors.New("NATS is away") })
	p := &process{db: db}
	p.pipeline.Store(&pipeline{fences: fences{fence}})
	db.Fence(fences{fence}.pass)
	change := store.Change{Checkpoints: []edda.Checkpoint{{Stream: "S", Seq: 1}}}
	if db.Commit(t.Context(), change) == nil || p.storage(p.pipeline.Load()) == nil {
		t.Fatal("the fence stops no commit")
	}
	testkit.Must(t, p.sick())
	full := errors.New("no space left on device")
	db.Fence(func(context.Context) error { return full })
	fence.Extend(fence.Now())
	if db.Commit(t.Context(), change) == nil {
		t.Fatal("the disk has space")
	}
	testkit.WantError(t, p.sick(), full, "no space left")
}

// TestNothingIsCommittedOnceAnotherHasTakenOver before a restart; an outage passes.
func TestNothingIsCommittedOnceAnotherHasTakenOver(t *testing.T) {
	away := errors.New("NATS is away")
	for err, broken := range map[error]bool{kv.ErrLeaseLost: true, cluster.ErrFenced: true, cluster.ErrMoved: true, away: false} {
		fence := kv.NewFence(time.Hour, nil, func(context.Context) error { return fmt.Errorf("ask: %w", err) })
		if got := (fences{fence}).commits(t.Context()); !errors.Is(got, err) || errors.Is(got, store.ErrBroken) != broken {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestAMoveEndsAtAnyEndOfTheProcess: also one that was asked for while the process was about to start anew.
func TestAMoveEndsAtAnyEndOfTheProcess(t *testing.T) {
	shorter, other := fmt.Errorf("source: %w", stream.ErrShorter), errors.New("the address is gone")
	for name, tt := range map[string]struct {
		moves bool
		err   error
		again bool // another process starts on this node
		stays bool // the node goes on as a standby
	}{
		"stopped":                     {false, nil, false, false},
		"moves":                       {true, nil, false, true},
		"a shorter stream":            {false, shorter, true, false},
		"a shorter stream, and moves": {true, shorter, false, true},
		"replaced":                    {false, fmt.Errorf("commit: %w", cluster.ErrFenced), false, true},
		"sick":                        {false, errSick, false, true},
		"broken, and moves":           {true, other, false, false},
	} {
		st := &stay{moves: tt.moves}
		if got := startsAgain(t.Context(), tt.err, st); got != tt.again {
			t.Errorf("%s: another process starts: %t", name, got)
		}
		if got := st.goesOn(tt.err); got != tt.stays {
			t.Errorf("%s: the node goes on: %t", name, got)
		}
	}
	if !startsAgain(t.Context(), shorter, nil) {
		t.Error("a process that is alone does not start anew")
	}
}

// TestAStopDuringATakeoverWaitsForTheLog as long as any stop: a store that gets another key commits before the process
// has started, and a log without a leader takes nothing.
func TestAStopDuringATakeoverWaitsForTheLog(t *testing.T) {
	_, release := hangups() // the goroutine of os/signal stays out of the bubble
	release()
	synctest.Test(t, func(t *testing.T) {
		st := stayWith(t, time.Unix(200, 0), time.Time{}, cluster.Last{})
		was := st.settings
		st.settings = devSettings(t, loanSaga)
		st.settings.Dev, st.settings.Data, st.settings.Cluster.Name, st.settings.Role = false, was.Data, was.Cluster.Name, was.Role
		st.settings.Encryption.Keyset = filepath.Join(t.TempDir(), "keyset.json")
		testkit.Must(t, keyset.Create(st.settings.Encryption.Keyset))
		st.metrics = newClusterMetrics(0)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		r, at, err := st.replica(ctx)
		testkit.Must(t, err)
		st.lookAtManifests(ctx, r)
		st.copy, st.owned, st.shipped = r, at, outage{back: make(chan struct{})}
		began := time.Now()
		err = st.own(ctx, quiet(), newSystemd(zap.NewNop()))
		if took := time.Since(began); took != time.Second+shipWithin {
			t.Errorf("it ends after %s", took)
		}
		testkit.WantError(t, err, errShippingEnded, "open the store")
	})
}
