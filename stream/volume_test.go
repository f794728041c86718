//go:build !race && !quick

package stream

import (
	"context"
	"testing"

	"edda/stream/wire"
)

func TestAFloodOfOtherTenantsIsSkipped(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{Name: "s", Tenants: wire.Tenants{"eu-*"}})
		defer stop()
		for i := range 2*pullMessages + bufferEvents {
			w.send("beta", "O1", i)
		}
		w.send("eu-1", "O1", 1)
		fetch(ctx, t, src, 1)
	})
}
