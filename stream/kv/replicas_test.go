package kv

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
)

// TestBucketsBelowTheLeastReplicasAreRefused: before the process has a lease.
func TestBucketsBelowTheLeastReplicasAreRefused(t *testing.T) {
	ofWorker := worker("s2", "h2", true, "pay")
	tests := map[string]struct {
		bucket string
		open   func(ctx context.Context, js jetstream.JetStream, least int) error
	}{
		"leases": {LeaseBucket, func(ctx context.Context, js jetstream.JetStream, least int) error {
			return acquires(ctx, js, lease("s2", "h2", "p2"), least)
		}},
		"leases of workers": {LeaseBucket, func(ctx context.Context, js jetstream.JetStream, least int) error {
			return acquires(ctx, js, ofWorker, least)
		}},
		"owners": {OwnersBucket, func(ctx context.Context, js jetstream.JetStream, least int) error {
			return acquires(ctx, js, lease("s2", "h2", "p2"), least)
		}},
		"ledger": {LedgerBucket, func(ctx context.Context, js jetstream.JetStream, least int) error {
			_, err := OpenLedger(ctx, js, LedgerOptions{Memory: true, MinReplicas: least})
			return err
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				w.Must(w.serves(ctx, lease("s1", "h1", "p1")))
				testkit.Value[*Ledger](t)(OpenLedger(ctx, w.JS, LedgerOptions{Memory: true}))
				for _, other := range []string{LeaseBucket, OwnersBucket, LedgerBucket} {
					if other != test.bucket {
						w.Must(w.JS.DeleteKeyValue(ctx, other))
					}
				}
				err := test.open(ctx, w.JS, 3)
				testkit.WantError(t, err, edda.Permanent, "bucket "+test.bucket+" has 1 of the 3 replicas", "nats kv edit "+test.bucket+" --replicas=3")
				if leases, err := w.JS.KeyValue(ctx, LeaseBucket); err == nil {
					if _, err := leases.Get(ctx, "s2"); !errors.Is(err, jetstream.ErrKeyNotFound) {
						t.Errorf("a refused process has a lease: %v", err)
					}
				}
				for _, least := range []int{0, 1} {
					if err := test.open(ctx, w.JS, least); err != nil {
						t.Errorf("at least %d: %v", least, err)
					}
				}
			})
		})
	}
}

// TestNewBucketsHaveTheLeastReplicas: the only server cannot create them, and says so.
func TestNewBucketsHaveTheLeastReplicas(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := acquires(ctx, w.JS, lease("s1", "h1", "p1"), 3); err == nil {
			t.Error("the bucket of leases was created")
		}
		_, err := OpenLedger(ctx, w.JS, LedgerOptions{MinReplicas: 3})
		testkit.WantError(t, err, edda.Permanent, "(3 replicas")
	})
}

// acquires acquires a lease from buckets with at least so many replicas, and gives it up.
func acquires(ctx context.Context, js jetstream.JetStream, o LeaseOptions, least int) error {
	o.MinReplicas = least
	l, err := AcquireLease(ctx, js, o)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}
