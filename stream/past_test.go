package stream

import (
	"context"
	"errors"
	"slices"
	"testing"

	"edda"
	"edda/stream/wire"
)

// past reads all events of a tenant up to the positions.
func past(ctx context.Context, w *world, tenant string, upto ...edda.Checkpoint) ([]uint64, map[string]uint64) {
	w.T.Helper()
	var got []uint64
	first, err := NewPast(w.JS, wire.Codec{}).Each(ctx, tenant, upto, func(ev edda.Event) error {
		if ev.Tenant != tenant || ev.Malformed != "" || ev.Kind != edda.KindEvent {
			w.T.Errorf("event %+v", ev)
		}
		got = append(got, ev.Seq)
		return nil
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return got, first
}

func TestPastReadsATenantUpToThePosition(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, stop := w.open(ctx, nil, SourceOptions{}) // makes the streams
		defer stop()
		for i := range 5 {
			w.send("acme", "O1", i)
			w.send("other", "O1", i)
		}
		at := func(seq uint64) edda.Checkpoint { return edda.Checkpoint{Stream: wire.AggregateEvents, Seq: seq} }
		if got, first := past(ctx, w, "acme", at(7)); !slices.Equal(got, []uint64{1, 3, 5, 7}) || first[wire.AggregateEvents] != 1 {
			t.Errorf("%v, %v", got, first)
		}
		if got, _ := past(ctx, w, "acme", at(100)); !slices.Equal(got, []uint64{1, 3, 5, 7, 9}) {
			t.Errorf("the position is behind the end: %v", got)
		}
		if got, _ := past(ctx, w, "nobody", at(10), edda.Checkpoint{Stream: wire.WorkflowEvents, Seq: 9}); len(got) != 0 {
			t.Errorf("nothing is there: %v", got)
		}
		if got, _ := past(ctx, w, "acme"); len(got) != 0 {
			t.Errorf("no position: %v", got)
		}
		s, err := w.JS.Stream(ctx, wire.AggregateEvents)
		if err == nil {
			err = s.DeleteMsg(ctx, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, first := past(ctx, w, "acme", at(4)); !slices.Equal(got, []uint64{3}) || first[wire.AggregateEvents] != 2 {
			t.Errorf("the beginning is gone: %v, %v", got, first)
		}
		stopIt := errors.New("enough")
		n := 0
		_, err = NewPast(w.JS, wire.Codec{}).Each(ctx, "acme", []edda.Checkpoint{at(9)}, func(edda.Event) error { n++; return stopIt })
		if !errors.Is(err, stopIt) || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
	})
}
