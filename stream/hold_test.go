package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// A stream that expires its messages while they wait behind a full buffer stops the reader, as it
// would stop the next start. Nobody would notice it once the position has passed them.
func TestMessagesThatExpireUnreadWhileItRunsAreALoss(t *testing.T) {
	for _, c := range []struct {
		name    string
		o       SourceOptions
		purged  uint64
		late    bool // it begins to read after that
		noticed bool
	}{
		{"unread", SourceOptions{}, bufferEvents + pullMessages + 500, false, true},
		{"read", SourceOptions{}, 1000, false, false},
		{"before the first", SourceOptions{}, 1000, true, false},
		{"a filter", SourceOptions{Tenants: wire.Tenants{"acme"}}, bufferEvents + pullMessages + 500, false, false},
		{"a saga that catches up", SourceOptions{CatchUp: "order"}, bufferEvents + pullMessages + 500, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				const events = 2*bufferEvents + pullMessages
				src, err := OpenSource(ctx, w.JS, nil, withFrom(c.o, FromAll))
				if err != nil {
					t.Fatal(err)
				}
				running, cancel := context.WithCancel(ctx)
				ended := make(chan error, 1)
				run := func() { ended <- src.Run(running) }
				if !c.late {
					go run()
				}
				for i := range events {
					if err := w.NC.Publish(orders, fmt.Appendf(nil, `{"event_type":"X","event_id":"e%d"}`, i)); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute) // of the bubble: the buffer is full
				if err := w.Stream(ctx, wire.AggregateEvents).Purge(ctx, jetstream.WithPurgeSequence(c.purged)); err != nil {
					t.Fatal(err)
				}
				if _ = ends(ctx, t, src, wire.AggregateEvents); c.late {
					go run()
				}
				last := uint64(0)
				for n := 1; n > 0; {
					got, err := src.Fetch(ctx, 1024, 10*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					if n = len(got.Events); n > 0 {
						last = got.Events[n-1].Seq
					}
				}
				if !c.noticed {
					cancel()
					if err := <-ended; !errors.Is(err, context.Canceled) || last != events {
						t.Fatalf("read up to %d: %v", last, err)
					}
					return
				}
				stuck := time.AfterFunc(time.Minute, cancel)
				defer stuck.Stop()
				err = <-ended
				want := fmt.Sprintf("begins at %d, but only messages up to %d were read", c.purged, last)
				if err == nil || !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--accept-stream-loss") {
					t.Errorf("%v, want %s", err, want)
				}
				if last >= c.purged-1 {
					t.Errorf("it read up to %d, and the stream begins at %d", last, c.purged)
				}
				if _, err := OpenSource(ctx, w.JS, []edda.Checkpoint{{Stream: wire.AggregateEvents, Seq: last}}, SourceOptions{}); !errors.Is(err, edda.Permanent) {
					t.Errorf("the next start: %v", err)
				}
			})
		})
	}
}

func withFrom(o SourceOptions, from From) SourceOptions {
	o.From = from
	return o
}
