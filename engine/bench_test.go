package engine

import (
	"fmt"
	"testing"
	"time"

	"edda"
	"edda/internal/testkit"
	"edda/saga"
	"edda/store"
)

// BenchmarkEngine measures the path from the source to the durable commit, with the real store.
// Its saga writes its state and sends one command an event. Run it with -benchtime=20000x or
// so, because the file grows with the events.
func BenchmarkEngine(b *testing.B) {
	for name, keys := range map[string]int{"keys=1000": 1000, "keys=all": 1 << 30} {
		b.Run(name, func(b *testing.B) { benchmark(b, keys) })
	}
}

func benchmark(b *testing.B, keys int) {
	db, _ := testkit.OpenStore(b, b.TempDir(), store.Options{})
	done := make(chan struct{})
	left := b.N
	source := newStreams("A")
	source.waiting = orders(b.N, keys)
	sets := 0
	e := New(source, db, bencher{}, Options{Observe: func(ts []edda.Transition) {
		sets++
		if left -= len(ts); left == 0 {
			close(done)
		}
	}})
	b.ResetTimer()
	testkit.Run(b, e.Run)
	<-done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(b.N)/float64(sets), "events/set")
}

func orders(n, keys int) []edda.Event {
	all := make([]edda.Event, n)
	for i := range all {
		all[i] = edda.Event{
			Kind: edda.KindEvent, ID: fmt.Sprintf("018f2c6e-7b1a-7000-8000-%012d", i), Tenant: "acme", Type: "send",
			AggregateType: "Order", AggregateID: fmt.Sprintf("order-%d", i%keys), Stream: "A", Seq: uint64(i + 1), Time: time.Now().UTC(),
			Payload: []byte(`{"customer":"c-1042","items":[{"sku":"A-1","quantity":2,"price":1250}],"amount":2500,"currency":"EUR"}`),
		}
	}
	return all
}

// bencher is a saga whose state does not grow.
type bencher struct{ counter }

func (bencher) Apply(cell edda.Cell, _ saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	in := edda.Instance{Key: cell.Key, Version: 1, Hash: "hash", Status: edda.StatusRunning, Started: ev.Time}
	if cell.Instance != nil {
		in = *cell.Instance
	}
	in.State, in.Updated = []byte(`{"amount":2500,"status":"paying"}`), ev.Time
	in.Revision++
	cell.Instance = &in
	work := edda.Work{
		ID: "work-" + ev.ID, Kind: edda.WorkCommand, From: cell.Key, Name: "Payment.Request", To: ev.AggregateID,
		Payload: []byte(`{"amount":2500}`), Time: ev.Time, Causation: ev.ID,
	}
	return cell, []edda.Transition{{
		Key: cell.Key, Event: ev, Fate: edda.FateHandled, Handlers: []string{"Order.Placed"}, Instance: &in,
		Outputs: []edda.Output{{Word: "command", Name: work.Name, ID: work.ID, With: work.Payload}}, Work: []edda.Work{work},
	}}
}

// BenchmarkTimers fires timers that are due in one instant, from the due index to the
// durable commit. Run it with -benchtime=20000x.
func BenchmarkTimers(b *testing.B) {
	db, _ := testkit.OpenStore(b, b.TempDir(), store.Options{})
	at := time.Now().UTC()
	source := newStreams("A")
	for i := range b.N {
		source.waiting = append(source.waiting, edda.Event{
			Kind: edda.KindEvent, ID: fmt.Sprintf("e%d", i), Tenant: "acme", Type: "Set", AggregateType: "Order", Stream: "A", Seq: uint64(i + 1), Time: at,
			Payload: fmt.Appendf(nil, `{"order_id":"order-%07d","at":%q}`, i, at.Format(time.RFC3339Nano)),
		})
	}
	left, armed := b.N, make(chan struct{})
	e := New(source, db, ringing(b), Options{Observe: func(ts []edda.Transition) {
		if left -= len(ts); left == 0 {
			close(armed)
		}
	}})
	testkit.Run(b, e.Run)
	<-armed
	b.ReportAllocs()
	b.ResetTimer()
	for {
		rows, _, err := db.Due(time.Now(), MaxRows)
		if err != nil {
			b.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		if err := e.Wake(b.Context(), rows); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}

// ringing is a saga whose timer publishes a fact and ends the instance.
func ringing(b *testing.B) *saga.Set {
	return testkit.Set(b, `
saga: wake
version: 1
key: event.order_id
on:
  Set: {start: true, do: [{timer: ring, at: =event.at}]}
  timer.ring: {do: [{event: Ended, with: {due: =now}}, {done: rung}]}
`)
}
