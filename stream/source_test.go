package stream

import (
	"context"
	"testing"
	"time"

	"edda"
)

func TestSourceReadsInStreamOrder(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		for i := range 3000 {
			w.send("acme", "O1", i)
		}
		events := fetch(ctx, t, src, 3000)
		for i, ev := range events {
			if ev.Seq != uint64(i+1) || ev.Stream != AggregateEvents || ev.Malformed != "" {
				t.Fatalf("event %d is %+v", i, ev)
			}
		}
		none(ctx, t, src, 10*time.Minute)
	})
}

func TestSourceGoesOnAfterTheCheckpoint(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		for i := range 10 {
			w.send("acme", "O1", i)
		}
		src, stop := w.open(ctx, nil, SourceOptions{})
		events := fetch(ctx, t, src, 10)
		cp := edda.Checkpoint{Stream: AggregateEvents, Seq: 4, Time: events[3].Time, Created: src.Start()[0].Created}
		if err := src.Ack(ctx, []edda.Checkpoint{cp}); err != nil {
			t.Fatal(err)
		}
		stop()
		src, stop = w.open(ctx, []edda.Checkpoint{cp}, SourceOptions{})
		defer stop()
		if events := fetch(ctx, t, src, 6); events[0].Seq != 5 {
			t.Errorf("reading went on at %d, not at 5", events[0].Seq)
		}
	})
}
