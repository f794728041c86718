package kv

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/stream/wire"
)

// lease returns options for a lease in memory, because the server's file storage computes the age
// of messages by a clock outside the bubble.
func lease(store, host, process string, tenants ...string) LeaseOptions {
	return LeaseOptions{Store: store, Host: host, Process: process, Tenants: tenants, Memory: true, AdoptEmpty: true}
}

// hold acquires a lease and renews it; the function stops that and returns what
// Run returned.
func (w *world) hold(ctx context.Context, o LeaseOptions) (*Lease, func() error) {
	w.T.Helper()
	l, err := AcquireLease(ctx, w.JS, o)
	if err != nil {
		w.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return l, func() error {
		cancel()
		return <-ended
	}
}

func TestASecondProcessIsRefused(t *testing.T) {
	tests := map[string]struct {
		o    LeaseOptions
		says string
	}{
		"another store":            {lease("s2", "h1", "p2"), "store s1 on host h1"},
		"another host, same store": {lease("s1", "h2", "p2"), "host h1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				l, stop := w.hold(ctx, lease("s1", "h1", "p1"))
				time.Sleep(10 * time.Minute)
				_, err := AcquireLease(ctx, w.JS, test.o)
				testkit.WantError(t, err, edda.Permanent, test.says)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if err := l.Release(ctx); err != nil {
					t.Fatal(err)
				}
				_, stop = w.hold(ctx, test.o) // at once after a release
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestALeaseMovesToOtherTenants(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		first, stopFirst := w.hold(ctx, lease("s1", "h1", "p1", "acme"))
		_, stopSecond := w.hold(ctx, lease("s2", "h2", "p2", "beta"))
		testkit.WantError(t, first.Move(ctx, wire.Tenants{"acme", "be*"}), edda.Permanent, "store s2 on host h2")
		if err := first.Move(ctx, wire.Tenants{"gamma"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaseTTL * 2) // the renewals keep the new tenants
		_, err := AcquireLease(ctx, w.JS, lease("s3", "h3", "p3", "gamma"))
		testkit.WantError(t, err, edda.Permanent, "store s1 on host h1")
		_, stopThird := w.hold(ctx, lease("s3", "h3", "p3", "acme")) // it was given up
		for _, stop := range []func() error{stopFirst, stopSecond, stopThird} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// worker returns options for the lease of an effect worker.
func worker(store, host string, shared bool, effects ...string) LeaseOptions {
	o := lease(store, host, store+"-"+host)
	o.Worker = &WorkerLease{Effects: effects, Shared: shared}
	return o
}

func TestWorkersWithoutASharedLedgerAreRefused(t *testing.T) {
	acme := worker("s2", "h2", false, "pay")
	acme.Tenants = wire.Tenants{"acme"}
	tests := map[string]struct {
		first, second LeaseOptions
		says          []string // none: both may work
	}{
		"both local":             {worker("s1", "h1", false, "pay"), worker("s2", "h2", false, "ship", "pay"), []string{"s1", "h1", "effects.ledger: local", "shared for both"}},
		"local beside shared":    {worker("s1", "h1", true, "pay"), worker("s2", "h2", false, "pay"), []string{"with effects.ledger: shared, this one has effects.ledger: local"}},
		"shared beside local":    {worker("s1", "h1", false, "pay"), worker("s2", "h2", true, "pay"), []string{"with effects.ledger: local, this one has effects.ledger: shared"}},
		"both shared":            {worker("s1", "h1", true, "pay"), worker("s2", "h2", true, "pay"), nil},
		"other effects":          {worker("s1", "h1", false, "pay"), worker("s2", "h2", false, "ship"), nil},
		"no effects":             {worker("s1", "h1", false), worker("s2", "h2", false), nil},
		"one of all tenants":     {worker("s1", "h1", false, "pay"), acme, []string{"s1"}},
		"a saga process":         {lease("s1", "h1", "p1"), worker("s2", "h2", false, "pay"), nil},
		"a saga process, itself": {lease("s1", "h1", "p1"), worker("s1", "h1", false, "pay"), nil},
		"a copied store":         {worker("s1", "h1", true, "pay"), worker("s1", "h2", true, "pay"), []string{"s1", "h1", "effect worker"}},
		"a restart":              {worker("s1", "h1", false, "pay"), worker("s1", "h1", false, "pay"), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				first, stop := w.hold(ctx, test.first)
				time.Sleep(2*leaseTTL + leaseRenew/2) // not at a renewal of the first, because "a restart" ends it
				second, err := AcquireLease(ctx, w.JS, test.second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if len(test.says) == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				testkit.WantError(t, err, edda.Permanent, test.says...)
				if second != nil {
					t.Error("it has a lease all the same")
				}
				if err := first.Release(ctx); err != nil {
					t.Fatal(err)
				}
				if _, err := AcquireLease(ctx, w.JS, test.second); err != nil { // at once
					t.Error(err)
				}
			})
		})
	}
}

func TestAWorkersLeaseMovesToOtherEffects(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		first, stopFirst := w.hold(ctx, worker("s1", "h1", false, "pay"))
		_, stopSecond := w.hold(ctx, worker("s2", "h2", false, "ship"))
		testkit.WantError(t, first.Move(ctx, nil, "pay", "ship"), edda.Permanent, "store s2 on host h2", "effects.ledger")
		_, err := AcquireLease(ctx, w.JS, worker("s3", "h3", false, "pay")) // it kept what it had
		testkit.WantError(t, err, edda.Permanent, "store s1")
		if err := first.Move(ctx, nil, "mail"); err != nil {
			t.Fatal(err)
		}
		_, err = AcquireLease(ctx, w.JS, worker("s3", "h3", true, "mail"))
		testkit.WantError(t, err, edda.Permanent, "store s1")
		_, stopThird := w.hold(ctx, worker("s3", "h3", false, "pay"))
		for _, stop := range []func() error{stopFirst, stopSecond, stopThird} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestALeaseExpires(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, stop := w.hold(ctx, lease("s1", "h1", "p1"))
		if err := stop(); err != nil { // without a release
			t.Error(err)
		}
		time.Sleep(leaseTTL + leaseRenew)
		_, stop = w.hold(ctx, lease("s2", "h2", "p2"))
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestARestartTakesOverItsLease(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, stopOld := w.hold(ctx, lease("s1", "h1", "p1"))
		_, stop := w.hold(ctx, lease("s1", "h1", "p2"))
		time.Sleep(2 * leaseRenew)
		if err := stopOld(); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("the old process hears %v", err)
		}
		if err := stop(); err != nil {
			t.Errorf("the new process hears %v", err)
		}
	})
}

func TestProcessesForDifferentTenantsRunTogether(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, stop1 := w.hold(ctx, lease("s1", "h", "p1", "acme", "eu-*"))
		_, stop2 := w.hold(ctx, lease("s2", "h", "p2", "beta", "us-*"))
		for _, tenants := range [][]string{{"acme"}, {"eu-1"}, {"e*"}, {"*-x"}, nil} {
			_, err := AcquireLease(ctx, w.JS, lease("s3", "h", "p3", tenants...))
			testkit.WantError(t, err, edda.Permanent, "serves these tenants")
		}
		time.Sleep(time.Minute)
		for _, stop := range []func() error{stop1, stop2} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestOneOfSeveralConcurrentRequestsGetsTheLease: outside a bubble, because its bucket is in a
// file.
func TestOneOfSeveralConcurrentRequestsGetsTheLease(t *testing.T) {
	js := serve(t, EmbeddedOptions{})
	results := make(chan error, 4)
	for _, store := range []string{"s1", "s2", "s3", "s4"} {
		go func() {
			o := lease(store, "h", store)
			o.Memory = false
			_, err := AcquireLease(t.Context(), js, o)
			results <- err
		}()
	}
	won := 0
	for range 4 {
		if err := <-results; err == nil {
			won++
		} else {
			testkit.WantError(t, err, edda.Permanent)
		}
	}
	if won != 1 {
		t.Errorf("%d processes have the lease", won)
	}
}

// TestALeaseIsFoundDuringRenewals: outside a bubble, as fast as possible.
func TestALeaseIsFoundDuringRenewals(t *testing.T) {
	for name, memory := range map[string]bool{"in memory": true, "in a file": false} {
		t.Run(name, func(t *testing.T) {
			js := serve(t, EmbeddedOptions{})
			o := lease("s1", "h1", "p1")
			o.Memory = memory
			l, err := AcquireLease(t.Context(), js, o)
			if err != nil {
				t.Fatal(err)
			}
			defer renewing(t, l)()
			for range 200 {
				_, err := AcquireLease(t.Context(), js, lease("s2", "h2", "p2"))
				testkit.WantError(t, err, edda.Permanent, "store s1 on host h1")
			}
		})
	}
}

// renewing renews the lease without a pause until stop.
func renewing(t *testing.T, l *Lease) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := l.Renew(ctx); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestRenewKeepsTheLeaseDuringAStart: it expired while the process waited for streams, and another
// process was admitted.
func TestRenewKeepsTheLeaseDuringAStart(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l, err := AcquireLease(ctx, w.JS, lease("s1", "h1", "p1"))
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			time.Sleep(leaseRenew)
			if err := l.Renew(ctx); err != nil {
				t.Fatal(err)
			}
		}
		_, err = AcquireLease(ctx, w.JS, lease("s2", "h2", "p2"))
		testkit.WantError(t, err, edda.Permanent, "store s1")
		time.Sleep(leaseTTL + leaseRenew)
		if _, err := AcquireLease(ctx, w.JS, lease("s2", "h2", "p2")); err != nil {
			t.Fatal(err)
		}
		testkit.WantError(t, l.Renew(ctx), edda.Permanent, "taken over")
	})
}

func TestALeaseSurvivesAnOutage(t *testing.T) {
	for name, away := range map[string]time.Duration{"short": leaseRenew, "beyond its time": 4 * leaseTTL} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				_, stop := w.hold(ctx, lease("s1", "h1", "p1"))
				w.Restart(func() { time.Sleep(away) })
				time.Sleep(2 * leaseTTL)
				_, err := AcquireLease(ctx, w.JS, lease("s2", "h2", "p2"))
				testkit.WantError(t, err, edda.Permanent, "s1")
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestRunEndsWhenAnotherProcessHasTheLease(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, stop := w.hold(ctx, lease("s1", "h1", "p1"))
		kv, err := w.JS.KeyValue(ctx, LeaseBucket)
		if err != nil {
			t.Fatal(err)
		}
		// The lease expired unnoticed, and another process acquired it.
		if err := kv.Purge(ctx, "s1"); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Fatal(err)
		}
		if _, err := AcquireLease(ctx, w.JS, lease("s2", "h2", "p2")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * leaseRenew)
		synctest.Wait()
		if err := stop(); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("we hear %v", err)
		}
		if _, err := kv.Get(ctx, "s1"); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("our wish stays: %v", err)
		}
	})
}
