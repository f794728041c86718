package kv

import (
	"context"
	"testing"

	"edda"
	"edda/internal/testkit"
)

// part returns options for the store of a shard. It adopts nothing.
func part(store, cluster string, shard, of int) LeaseOptions {
	o := process(store, "h-"+store, "acme")
	o.Share = edda.Share{Cluster: cluster, Shard: edda.Shard{Index: shard, Of: of}}
	return o
}

// TestShardsShareTheirTenants: the stores of one cluster do, and no others.
func TestShardsShareTheirTenants(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		for i, store := range []string{"s0", "s1"} {
			l, err := AcquireLease(ctx, w.JS, part(store, "shop", i, 2))
			if err != nil {
				t.Fatalf("shard %d: %v", i, err)
			}
			worker := part(store, "shop", i, 2)
			worker.Worker = &WorkerLease{Effects: []string{"charge"}}
			if _, err := AcquireLease(ctx, w.JS, worker); err != nil {
				t.Errorf("the worker of shard %d: %v", i, err)
			}
			defer func() { _ = l.Release(ctx) }()
		}
		for name, o := range map[string]LeaseOptions{
			"the same shard":          part("s2", "shop", 1, 2),
			"half of a shard":         part("s2", "shop", 3, 4),
			"another cluster":         part("s2", "other", 1, 2),
			"a store without a shard": process("s2", "h-s2", "acme"),
		} {
			_, err := AcquireLease(ctx, w.JS, o)
			testkit.WantError(t, err, edda.Permanent, "serves these tenants")
			if err := Unowned(ctx, w.JS, o.Store, o.Tenants, o.Share); err == nil {
				t.Errorf("%s: no store owns its tenants", name)
			}
		}
		if err := Unowned(ctx, w.JS, "s0", []string{"acme"}, edda.Share{Cluster: "shop", Shard: edda.Shard{Index: 0, Of: 2}}); err != nil {
			t.Errorf("the stores beside it: %v", err)
		}
	})
}

// TestAStoreWithoutAShardDoesNotLoseItsTenants: once its lease has gone, shards are refused all the same.
func TestAStoreWithoutAShardDoesNotLoseItsTenants(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.serves(ctx, process("s1", "h1", "acme")); err != nil {
			t.Fatal(err)
		}
		testkit.WantError(t, w.serves(ctx, part("s2", "shop", 0, 2)), edda.Permanent, "store s1 on host h1", "--adopt-empty")
	})
}
