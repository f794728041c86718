package stream

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/engine"
	"edda/internal/testkit"
	"edda/stream/wire"
)

// read returns the ids of the events that a catch-up reader gives, and how many are of the past.
func read(ctx context.Context, t *testing.T, past engine.Past) (ids []string, old int) {
	t.Helper()
	for {
		got, err := past.Fetch(ctx, 10, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Events) == 0 {
			return ids, old
		}
		for _, ev := range got.Events {
			ids = append(ids, ev.ID)
		}
		if got.Past {
			old += len(got.Events)
		}
	}
}

// TestACatchUpReadsEventsAndFactsInTheOrderOfStoreTimes: of its tenants and from its positions,
// beside the source. It deletes its consumers.
func TestACatchUpReadsEventsAndFactsInTheOrderOfStoreTimes(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		p := NewPublisher(w.JS, w.codec)
		var all, acme []string
		for i := range 40 {
			tenant := []string{"acme", "beta"}[i%2]
			id := fmt.Sprintf("%s-O%d-%d", tenant, i, i)
			if i%4 < 2 {
				w.send(tenant, fmt.Sprint("O", i), i)
			} else if errs := p.Deliver(ctx, []edda.Work{{ID: id, Kind: edda.WorkFact, From: edda.Key{Tenant: tenant, Saga: "order", Correlation: "K"}, Name: "Told", Time: time.Now(), Payload: []byte("{}")}}); len(errs) > 0 && errs[0] != nil {
				t.Fatal(errs[0])
			}
			if all = append(all, id); tenant == "acme" {
				acme = append(acme, id)
			}
			time.Sleep(time.Millisecond)
		}
		fetch(ctx, t, src, 40)
		open := func(tenant string, from ...edda.Checkpoint) *CatchUp {
			past, err := OpenCatchUp(ctx, w.JS, engine.SagaTenant{Tenant: tenant, Saga: "late"}, from, SourceOptions{Name: "store"})
			if err != nil {
				t.Fatal(err)
			}
			return past
		}
		for tenant, want := range map[string][]string{engine.AllTenants: all, "acme": acme} {
			past := open(tenant)
			if got, old := read(ctx, t, past); !slices.Equal(got, want) || old != len(want) {
				t.Errorf("%s: %d of the past of %v, want %v", tenant, old, got, want)
			}
			ends, err := past.Ends(ctx)
			if err != nil || len(ends) != 2 || ends[0].Need == 0 || ends[0].Last.Seq < ends[0].Need {
				t.Errorf("%+v, %v", ends, err)
			}
			past.Close()
		}
		past := open(engine.AllTenants, edda.Checkpoint{Stream: wire.AggregateEvents, Seq: 18, Created: src.Start()[0].Created})
		if got, _ := read(ctx, t, past); len(got) != 22 {
			t.Errorf("from the middle: %v", got)
		}
		past.Close()
		s := w.Stream(ctx, wire.AggregateEvents)
		for name := range s.ConsumerNames(ctx).Name() {
			if name != wire.ConsumerName("saga", "", "") {
				t.Errorf("the consumer %s is left", name)
			}
		}
	})
}

func TestACatchUpContinuesAtTheBeginningOfItsStream(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		for i := range 10 {
			w.send("acme", "O1", i)
		}
		s := w.Stream(ctx, wire.AggregateEvents)
		if err := s.Purge(ctx, jetstream.WithPurgeSequence(5)); err != nil {
			t.Fatal(err)
		}
		from := edda.Checkpoint{Stream: wire.AggregateEvents, Seq: 2, Created: s.CachedInfo().Created}
		past, err := OpenCatchUp(ctx, w.JS, engine.SagaTenant{Tenant: "acme", Saga: "late"}, []edda.Checkpoint{from}, SourceOptions{Name: "store"})
		if err != nil {
			t.Fatal(err)
		}
		defer past.Close()
		if got, _ := read(ctx, t, past); len(got) != 6 || got[0] != "acme-O1-4" {
			t.Errorf("read %v", got)
		}
		if said := past.Losses(); len(said) != 1 || past.Start()[0].Seq != 4 {
			t.Errorf("said %v, began at %+v", said, past.Start())
		}
	})
}

func TestCatchUpRefusesATenantThatIsNotServed(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, err := OpenCatchUp(ctx, w.JS, engine.SagaTenant{Tenant: "beta", Saga: "late"}, nil, SourceOptions{Name: "store", Tenants: wire.Tenants{"acme*"}})
		testkit.WantError(t, err, edda.Permanent, "beta", "not served")
	})
}
