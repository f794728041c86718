package kv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/stream/wire"
)

// serves runs a process of a store for a moment, and stops it in order.
func (w *world) serves(ctx context.Context, o LeaseOptions) error {
	w.T.Helper()
	l, err := AcquireLease(ctx, w.JS, o)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

// process returns options for the lease of a store that adopts nothing.
func process(store, host string, tenants ...string) LeaseOptions {
	o := lease(store, host, store+"@"+host, tenants...)
	o.AdoptEmpty = false
	return o
}

// TestAnEmptyStoreIsRefusedTheTenantsOfAnother: however long the other has not run.
func TestAnEmptyStoreIsRefusedTheTenantsOfAnother(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.serves(ctx, process("s1", "h1", "acme", "beta")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		testkit.WantError(t, w.serves(ctx, process("s2", "h2", "acme")), edda.Permanent, "store s1 on host h1", "the tenants acme", "edda restore", "--adopt-empty")
		testkit.WantError(t, w.serves(ctx, process("s2", "h2")), edda.Permanent, "the tenants acme, beta")
		if err := w.serves(ctx, process("s1", "h3", "acme", "beta")); err != nil { // at once, because a refused process has no lease
			t.Fatalf("the store itself is refused: %v", err)
		}
		adopts := process("s2", "h2", "acme")
		adopts.AdoptEmpty = true
		l, err := AcquireLease(ctx, w.JS, adopts)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Adopted(); len(got) != 1 {
			t.Errorf("adopted %q", got)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		testkit.WantError(t, w.serves(ctx, process("s1", "h1", "acme", "beta")), edda.Permanent, "store s2 on host h2", "the tenants acme")
		for _, o := range []LeaseOptions{process("s2", "h2", "acme"), process("s1", "h1", "beta")} {
			if err := w.serves(ctx, o); err != nil {
				t.Errorf("store %s for %s: %v", o.Store, o.Tenants, err)
			}
		}
	})
}

func TestTenantsMoveBetweenStoresOnPurpose(t *testing.T) {
	child := process("s2", "h", "acme")
	child.MadeOf = func(id string) bool { return id == "s1" }
	grandchild := process("s3", "h", "acme")
	grandchild.MadeOf = func(id string) bool { return id == "s2" || id == "s1" }
	tests := map[string]struct {
		before  []LeaseOptions
		then    LeaseOptions
		refused bool
	}{
		"the first store of all":             {nil, process("s1", "h"), false},
		"other tenants":                      {[]LeaseOptions{process("s1", "h", "acme")}, process("s2", "h", "beta"), false},
		"other patterns":                     {[]LeaseOptions{process("s1", "h", "eu-*")}, process("s2", "h", "us-*"), false},
		"patterns that meet":                 {[]LeaseOptions{process("s1", "h", "eu-*")}, process("s2", "h", "eu-1"), true},
		"one of all":                         {[]LeaseOptions{process("s1", "h")}, process("s2", "h", "acme"), true},
		"all, of which one is another's":     {[]LeaseOptions{process("s1", "h", "acme")}, process("s2", "h"), true},
		"given up":                           {[]LeaseOptions{process("s1", "h", "acme", "beta"), process("s1", "h", "beta")}, process("s2", "h", "acme"), false},
		"fewer tenants":                      {[]LeaseOptions{process("s1", "h")}, process("s1", "h", "acme"), false},
		"more tenants":                       {[]LeaseOptions{process("s1", "h", "acme")}, process("s1", "h"), false},
		"a backup of one tenant":             {[]LeaseOptions{process("s1", "h")}, child, false},
		"that one again":                     {[]LeaseOptions{process("s1", "h"), child}, child, false},
		"a backup of a backup":               {[]LeaseOptions{process("s1", "h"), child}, grandchild, false},
		"what it was taken from":             {[]LeaseOptions{process("s1", "h"), child}, process("s1", "h"), true},
		"the others of what it was taken of": {[]LeaseOptions{process("s1", "h", "acme", "beta"), child}, process("s1", "h", "beta"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				for _, o := range test.before {
					if err := w.serves(ctx, o); err != nil {
						t.Fatal(err)
					}
				}
				err := w.serves(ctx, test.then)
				if test.refused {
					testkit.WantError(t, err, edda.Permanent, "--adopt-empty")
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestMoveRefusesTenantsOfAnotherStore: and changes nothing.
func TestMoveRefusesTenantsOfAnotherStore(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.serves(ctx, process("s1", "h1", "acme")); err != nil {
			t.Fatal(err)
		}
		l, stop := w.hold(ctx, process("s2", "h2", "beta"))
		testkit.WantError(t, l.Move(ctx, wire.Tenants{"beta", "acme"}), edda.Permanent, "store s1")
		if err := l.Move(ctx, wire.Tenants{"gamma"}); err != nil {
			t.Fatal(err)
		}
		if err := w.serves(ctx, process("s1", "h1", "acme", "beta")); err != nil { // beta was given up
			t.Error(err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestAnExpiredLeaseIsNotReacquiredAfterAnotherStoreServed: also if the lease of the other store
// has expired.
func TestAnExpiredLeaseIsNotReacquiredAfterAnotherStoreServed(t *testing.T) {
	adopts := process("s2", "h2")
	adopts.AdoptEmpty = true
	for name, o := range map[string]LeaseOptions{"a copied store": process("s1", "h2"), "another store": adopts} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				l, err := AcquireLease(ctx, w.JS, process("s1", "h1"))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(leaseTTL + leaseRenew)
				if err := w.serves(ctx, o); err != nil {
					t.Fatal(err)
				}
				if err := l.Fence().Pass(ctx); !errors.Is(err, ErrLeaseLost) {
					t.Errorf("it goes on: %v", err)
				}
			})
		})
	}
}

// TestTheOwnerIsRecordedAgainInARecreatedBucket: with the time when the store was last seen.
func TestTheOwnerIsRecordedAgainInARecreatedBucket(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, stop := w.hold(ctx, process("s1", "h1"))
		if err := w.JS.DeleteKeyValue(ctx, OwnersBucket); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ownerSeen + 2*leaseRenew)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		last := time.Now()
		time.Sleep(24 * time.Hour)
		testkit.WantError(t, w.serves(ctx, process("s2", "h2")), edda.Permanent, "store s1 on host h1", "all tenants", last.UTC().Format("2006-01-02"))
		if _, err := w.JS.KeyValue(ctx, OwnersBucket); errors.Is(err, jetstream.ErrBucketNotFound) {
			t.Error("the bucket is gone")
		}
	})
}
