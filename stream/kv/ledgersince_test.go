package kv

import (
	"context"
	"sync"
	"testing"
)

// TestALookAtTheLedgerBeginsAfterItIsAskedFor, and many who ask at once share one.
func TestALookAtTheLedgerBeginsAfterItIsAskedFor(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l := w.ledgerOf("s1", "r1")
		asked, err := w.nc.SubscribeSync("$JS.API.STREAM.INFO." + "KV_" + LedgerBucket)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { _, _ = l.Since(ctx) })
		}
		all.Wait()
		if n, _, err := asked.Pending(); err != nil || n == 0 || n > 32 {
			t.Errorf("%d looks: %v", n, err)
		}
		if err := w.js.DeleteStream(ctx, "KV_"+LedgerBucket); err != nil {
			t.Fatal(err)
		}
		if since, err := l.Since(ctx); err == nil {
			t.Errorf("an old look is believed: %v", since)
		}
	})
}
