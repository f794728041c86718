package stream

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/effects"
	"edda/stream/wire"
)

// tell publishes a signal and a result.
func (w *world) tell(ctx context.Context, id string) {
	w.T.Helper()
	p := NewPublisher(w.JS, w.codec)
	_, err := p.Send(ctx, edda.Event{Kind: edda.KindSignal, ID: "signal-" + id, Tenant: "acme", Type: "go",
		Key: edda.Key{Tenant: "acme", Saga: "order", Correlation: id}})
	if err != nil {
		w.T.Fatal(err)
	}
	if err := p.PublishResult(ctx, effects.Result{Tenant: "acme", CommandID: "command-" + id, Effect: "charge", Outcome: edda.Succeeded, Time: noon}); err != nil {
		w.T.Fatal(err)
	}
}

func TestHoldPausesAggregateEventsOnly(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		const events = 2*bufferEvents + 500
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		src.Hold(true)
		for i := range events {
			if err := w.NC.Publish(orders, fmt.Appendf(nil, `{"event_type":"X","event_id":"e%d"}`, i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"1", "2", "3"} {
			time.Sleep(10 * time.Minute) // of the bubble: longer than heartbeats and redeliveries
			w.tell(ctx, id)
			got := fetch(ctx, t, src, 2)
			if got[0].Stream == wire.AggregateEvents || got[1].Stream == wire.AggregateEvents {
				t.Fatalf("got %+v while events are held", got)
			}
			none(ctx, t, src, time.Second)
		}
		if n := src.readers[0].buffer.len(); n > bufferEvents {
			t.Errorf("%d events wait in memory, want at most %d", n, bufferEvents)
		}
		src.Hold(false)
		for i, ev := range fetch(ctx, t, src, events) {
			if ev.Seq != uint64(i+1) || ev.ID != fmt.Sprintf("e%d", i) {
				t.Fatalf("event %d is %s at %d", i, ev.ID, ev.Seq)
			}
		}
		none(ctx, t, src, time.Minute)
	})
}

func TestFetchIsBoundedInBytes(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		body := fmt.Appendf(nil, `{"event_type":"X","payload":{"text":%q}}`, strings.Repeat("x", 500<<10))
		for range 30 {
			if _, err := w.JS.Publish(ctx, orders, body); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // until all events are in the buffer
		if n := src.readers[0].buffer.len(); n != 30 {
			t.Fatalf("%d events in the buffer", n)
		}
		for left := 30; left > 0; {
			got, err := src.Fetch(ctx, 1024, time.Minute)
			events := got.Events
			if err != nil || len(events) == 0 || len(events) > fetchBytes/(500<<10)+1 {
				t.Fatalf("a fetch of %d events (%v) of 500 KiB", len(events), err)
			}
			left -= len(events)
		}
		if src.readers[0].buffer.bytes != 0 {
			t.Errorf("%d bytes counted in an empty buffer", src.readers[0].buffer.bytes)
		}
	})
}
