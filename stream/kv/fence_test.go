package kv

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edda"
)

// pausedClock is a clock that a test advances, as a pause of the machine does.
type pausedClock struct{ add atomic.Int64 }

func (c *pausedClock) now() time.Duration {
	return time.Since(started) + time.Duration(c.add.Load())
}

// fenced acquires a lease without renewing it. The test controls its clock.
func (w *world) fenced(ctx context.Context, store, host, process string) (*Lease, *pausedClock) {
	w.T.Helper()
	clock := &pausedClock{}
	o := lease(store, host, process)
	o.Clock = clock.now
	l, err := AcquireLease(ctx, w.JS, o)
	if err != nil {
		w.T.Fatal(err)
	}
	return l, clock
}

func TestAFenceStaysOpenWhileTheLeaseIsRenewed(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l, stop := w.hold(ctx, lease("s1", "h1", "p1"))
		for range 600 {
			time.Sleep(time.Second)
			if !l.Fence().Open() {
				t.Fatal("it is shut")
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestAPausedHolderAsksBeforeItActs: only the clock that counts pauses shows this one. The process
// and its timers stood still.
func TestAPausedHolderAsksBeforeItActs(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l, clock := w.fenced(ctx, "s1", "h1", "p1")
		before := l.revision
		if err := l.Fence().Pass(ctx); err != nil || l.revision != before {
			t.Errorf("it asks at once: %v", err)
		}
		clock.add.Add(int64(leaseTTL - leaseTTL/fenceEdge))
		if l.Fence().Open() {
			t.Error("it is open after the pause")
		}
		if err := l.Fence().Pass(ctx); err != nil || l.revision == before {
			t.Errorf("it passes without asking, or with %v", err)
		}
		if !l.Fence().Open() {
			t.Error("it is shut after a renewal")
		}
	})
}

func TestAPausedHolderIsStoppedAfterATakeover(t *testing.T) {
	tests := map[string]LeaseOptions{
		"a copied store": lease("s1", "h2", "p2"),
		"another store":  lease("s2", "h2", "p2"),
		"a restart":      lease("s1", "h1", "p2"),
	}
	for name, o := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				l, clock := w.fenced(ctx, "s1", "h1", "p1")
				time.Sleep(leaseTTL + time.Second)
				clock.add.Store(0)
				_, stop := w.hold(ctx, o)
				for range 3 {
					if err := l.Fence().Pass(ctx); !errors.Is(err, ErrLeaseLost) {
						t.Errorf("it may pass: %v", err)
					}
				}
				if err := l.Run(ctx); !errors.Is(err, ErrLeaseLost) { // at once
					t.Errorf("the process goes on: %v", err)
				}
				if err := stop(); err != nil {
					t.Errorf("who took over hears %v", err)
				}
			})
		})
	}
}

func TestTheFenceClosesBeforeTheLeaseExpires(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l, _ := w.fenced(ctx, "s1", "h1", "p1")
		for open := true; ; time.Sleep(100 * time.Millisecond) {
			open = l.Fence().Open()
			_, err := AcquireLease(ctx, w.JS, lease("s2", "h2", "p2"))
			if err == nil && open {
				t.Fatal("another has the lease while the fence is open")
			}
			if err == nil {
				return
			}
		}
	})
}

func TestTheFenceIsClosedDuringAnOutage(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l, stop := w.hold(ctx, lease("s1", "h1", "p1"))
		w.Restart(func() {
			time.Sleep(leaseTTL - leaseRenew - time.Second)
			if err := l.Fence().Pass(ctx); err != nil {
				t.Errorf("shut too early: %v", err)
			}
			time.Sleep(leaseTTL)
			began := time.Now()
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() {
					err := l.Fence().Pass(ctx)
					if !errors.Is(err, edda.Temporary) {
						t.Errorf("without the server it hears %v", err)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took > leaseRenew {
				t.Errorf("64 callers waited for %v", took)
			}
		})
		if err := l.Fence().Pass(ctx); err != nil {
			t.Errorf("the server is back, and it hears %v", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestTheFenceIsClosedAfterRelease(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l, stop := w.hold(ctx, lease("s1", "h1", "p1"))
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if err := l.Fence().Pass(ctx); err == nil {
			t.Error("it passes")
		}
	})
}

// TestLivenessOfTheFormerHolder: by what the system says of its process, and by the lock of the
// store's file.
func TestLivenessOfTheFormerHolder(t *testing.T) {
	me := processID{Boot: "b", Space: "pid:[1]", PID: 10, Started: 5}
	dead := me
	dead.PID = 1 << 30 // beyond what any system gives
	elsewhere, before := dead, dead
	elsewhere.Space, before.Boot = "pid:[2]", "a"
	tests := map[string]struct {
		other holder
		want  int
	}{
		"another host":                       {holder{Host: "h2", Where: dead}, mayLive},
		"an older edda":                      {holder{Host: "h1"}, hasEnded},
		"this process":                       {holder{Host: "h1", Where: me}, hasEnded},
		"a dead one":                         {holder{Host: "h1", Where: dead, File: "1:1"}, hasEnded},
		"before a boot":                      {holder{Host: "h1", Where: before, File: "1:7"}, mayLive},
		"another container":                  {holder{Host: "h1", Where: elsewhere, File: "1:1"}, mayLive},
		"the container before, on this file": {holder{Host: "h1", Where: elsewhere, File: "1:7"}, hasEnded},
	}
	for name, test := range tests {
		if got := (holder{Host: "h1", Where: me, File: "1:7"}).liveness(test.other); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func BenchmarkFence(b *testing.B) {
	f := NewFence(time.Minute, nil, func(context.Context) error { return errors.New("shut") })
	f.Extend(f.Now())
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Pass(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
