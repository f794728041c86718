package kv

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
)

// node returns options for the lease of a cluster's node that owns the store s1 in an epoch.
func node(host string, epoch uint64) LeaseOptions {
	o := process("s1", host)
	o.Process, o.Epoch = fmt.Sprint(host, "-", epoch), epoch
	return o
}

func TestAHigherEpochReplacesTheLeaseAtOnce(t *testing.T) {
	ofWorker := func(o LeaseOptions) LeaseOptions {
		o.Worker = &WorkerLease{Effects: []string{"pay"}, Shared: true}
		return o
	}
	other := node("h2", 7)
	other.Store = "s2"
	tests := map[string]struct {
		holder, next LeaseOptions
		says         string // empty: it replaces the holder
	}{
		"a higher epoch":                {node("h1", 6), node("h2", 7), ""},
		"a much higher epoch":           {node("h1", 1), node("h2", 7), ""},
		"on the same host":              {node("h1", 6), node("h1", 7), ""},
		"a worker, a higher epoch":      {ofWorker(node("h1", 6)), ofWorker(node("h2", 7)), ""},
		"the same epoch":                {node("h1", 7), node("h2", 7), "in use on host h1"},
		"a lower epoch":                 {node("h1", 7), node("h2", 6), "in use on host h1"},
		"over none":                     {node("h1", 0), node("h2", 7), "in use on host h1"},
		"none over one":                 {node("h1", 7), node("h2", 0), "in use on host h1"},
		"a worker, a lower epoch":       {ofWorker(node("h1", 7)), ofWorker(node("h2", 6)), "in use on host h1"},
		"another store, a higher epoch": {node("h1", 6), other, "store s1 on host h1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				former, stopFormer := w.hold(ctx, test.holder)
				time.Sleep(time.Minute)
				began := time.Now()
				l, err := AcquireLease(ctx, w.JS, test.next)
				if test.says != "" {
					testkit.WantError(t, err, edda.Permanent, test.says)
					if err := stopFormer(); err != nil {
						t.Errorf("the holder hears %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it waited %s", took)
				}
				time.Sleep(leaseRenew + time.Second) // virtual: the former process has surely renewed
				if err := stopFormer(); !errors.Is(err, ErrLeaseLost) {
					t.Errorf("the replaced process hears %v", err)
				}
				if err := former.Fence().Pass(ctx); !errors.Is(err, ErrLeaseLost) {
					t.Errorf("the replaced process may act: %v", err)
				}
				if err := l.Renew(ctx); err != nil {
					t.Errorf("its successor hears %v", err)
				}
			})
		})
	}
}

// TestTheHigherOfTwoEpochsHasTheLease: two nodes take over from a third at the same time. Outside a
// bubble, as fast as possible.
func TestTheHigherOfTwoEpochsHasTheLease(t *testing.T) {
	js := serve(t, EmbeddedOptions{})
	for epoch := uint64(1); epoch < 150; epoch += 3 {
		first, err := AcquireLease(t.Context(), js, node("h1", epoch))
		if err != nil {
			t.Fatal(err)
		}
		type result struct {
			lease *Lease
			err   error
		}
		lower := make(chan result, 1)
		go func() {
			l, err := AcquireLease(t.Context(), js, node("h2", epoch+1))
			lower <- result{l, err}
		}()
		higher, err := AcquireLease(t.Context(), js, node("h3", epoch+2))
		if err != nil {
			t.Fatalf("the higher epoch is refused: %v", err)
		}
		got := <-lower
		if err = got.err; err == nil { // it was faster, and is replaced
			err = got.lease.Renew(t.Context())
		}
		testkit.WantError(t, err, edda.Permanent)
		testkit.WantError(t, first.Renew(t.Context()), edda.Permanent, "taken over")
		for range 2 { // the other claims on the tenants do not stop it
			if err := higher.claimTenants(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := higher.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnExpiredLeaseComesBackToTheHigherEpoch: during an outage a former owner, which has yet to
// notice its successor, was faster.
func TestAnExpiredLeaseComesBackToTheHigherEpoch(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		owner, err := AcquireLease(ctx, w.JS, node("h2", 7))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaseTTL + leaseRenew)
		former, err := AcquireLease(ctx, w.JS, node("h1", 6))
		if err != nil {
			t.Fatal(err)
		}
		if err := owner.Fence().Pass(ctx); err != nil {
			t.Errorf("the owner is stopped: %v", err)
		}
		if err := former.Renew(ctx); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("the former owner hears %v", err)
		}
		if err := owner.Renew(ctx); err != nil {
			t.Errorf("the owner hears %v", err)
		}
	})
}

// TestAFormerOwnerNoticesItsSuccessorInTheRecord: also when the successor has gone.
func TestAFormerOwnerNoticesItsSuccessorInTheRecord(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		former, err := AcquireLease(ctx, w.JS, node("h1", 6))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.serves(ctx, node("h2", 7)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaseTTL) // its fence is closed
		if err := former.Fence().Pass(ctx); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("it goes on: %v", err)
		}
	})
}

// TestAFrozenOwnerDoesNotOverwriteTheRecordOfItsSuccessor: it had read its own record before.
func TestAFrozenOwnerDoesNotOverwriteTheRecordOfItsSuccessor(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		former, err := AcquireLease(ctx, w.JS, node("h1", 6))
		if err != nil {
			t.Fatal(err)
		}
		kv := testkit.Value[jetstream.KeyValue](t)(w.JS.KeyValue(ctx, OwnersBucket))
		read := testkit.Value[map[string]owner](t)(everyOwner(ctx, former.js, kv))
		successor, err := AcquireLease(ctx, w.JS, node("h2", 7))
		if err != nil {
			t.Fatal(err)
		}
		if err := putOwner(ctx, kv, read["s1"]); !Overtaken(err) {
			t.Errorf("the former owner's write ended with %v", err)
		}
		testkit.WantError(t, former.claimTenants(ctx, nil), edda.Permanent, "process h2-7 on host h2")
		if err := successor.claimTenants(ctx, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestAnOwnerClaimsItsTenantsBesideAFormerOne: outside a bubble, as fast as possible.
func TestAnOwnerClaimsItsTenantsBesideAFormerOne(t *testing.T) {
	js := serve(t, EmbeddedOptions{})
	for epoch := uint64(1); epoch < 60; epoch += 2 {
		former := testkit.Value[*Lease](t)(AcquireLease(t.Context(), js, node("h1", epoch)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		noticed := make(chan error, 1)
		go func() {
			for {
				if err := former.claimTenants(ctx, nil); err != nil {
					noticed <- err
					return
				}
			}
		}()
		successor, err := AcquireLease(ctx, js, node("h2", epoch+1))
		if err != nil {
			t.Fatal(err)
		}
		if err := successor.claimTenants(ctx, nil); err != nil {
			t.Fatal(err)
		}
		testkit.WantError(t, <-noticed, edda.Permanent, "has worked with store s1 since")
	}
}
