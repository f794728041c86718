package systemtest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"edda"
)

// bounds are those that a test makes small.
type bounds struct{ outbox, parked int }

// inBoundedBubble is inBubble with bounds of its own.
func inBoundedBubble(t *testing.T, b bounds, texts []string, test func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir, texts...)
		w.bounds, w.virtual = b, true
		w.startNATS()
		defer w.close()
		w.start()
		test(w)
	})
}

// pressSaga reserves through the gateway, charges, and ends when it was paid and
// told to.
const pressSaga = `saga: press
key: event.id
from: all
on:
  Go:
    start: true
    do:
      - {command: Stock.Reserve, to: =key, with: {order: =key}}
      - {effect: charge, with: {order: =key}}
  charge.ok: {}
  signal.enough: {do: [{done: true}]}
`

const pressEffect = `effect: charge
http: {method: POST, url: "http://shop.example/charge", body: =payload}
`

func pressed(i int) string { return fmt.Sprintf("K%03d", i) }

func (w *world) press(from, to int) {
	for i := from; i < to; i++ {
		w.send("go-"+pressed(i), "Go", pressed(i), fmt.Sprintf(`{"id":%q}`, pressed(i)))
	}
}

// began counts the instances that there are.
func (w *world) began(to int) (n int) {
	for i := range to {
		if w.instance("press", pressed(i)) != nil {
			n++
		}
	}
	return n
}

// charged counts the instances whose charge is ok.
func (w *world) charged(to int) (n int) {
	for i := range to {
		in := w.instance("press", pressed(i))
		if in != nil && len(in.Steps) > 0 && in.Steps[0].Status == edda.StepOK {
			n++
		}
	}
	return n
}

func (w *world) paused() float64 {
	w.t.Helper()
	families, err := w.running.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == "edda_intake_paused" {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// A gateway that is down stops new events, and nothing else, and nothing is lost.
func TestADestinationThatIsDownSlowsTheIntake(t *testing.T) {
	const first, all = 30, 150
	inBoundedBubble(t, bounds{outbox: 20}, []string{pressSaga, pressEffect}, func(w *world) {
		w.gateway.down.Store(true)
		w.press(0, first)
		w.until("the intake pauses", func() bool { return w.paused() == 1 })
		w.pass(time.Now().Add(time.Second))
		// How many were in when it paused is a matter of how they were delivered.
		began := w.began(all)
		if began < w.bounds.outbox || began > first {
			t.Fatalf("%d began before the intake paused, want %d to %d", began, w.bounds.outbox, first)
		}
		w.press(first, all)
		w.until("results still come in", func() bool { return w.charged(all) == began })
		w.pass(time.Now().Add(time.Hour))
		if w.began(all) != began || w.outbox() != began {
			t.Errorf("%d rows in the outbox and %d instances, want %d of both", w.outbox(), w.began(all), began)
		}
		w.signal("press", pressed(0), "enough")
		w.ends("press", pressed(0), edda.StatusDone)
		w.gateway.down.Store(false)
		w.until("everything is done", func() bool { return w.outbox() == 0 && w.charged(all) == all && w.paused() == 0 })
		for i := range all {
			same(t, "commands of "+pressed(i), w.gateway.of(pressed(i)), "Stock.Reserve")
			same(t, "calls of "+pressed(i), w.shop.effects(pressed(i)), "charge")
		}
	})
}

// One tenant's early events are too many: they become dead letters, another
// tenant parks and starts as ever, and what was parked runs.
func TestATenantThatParksTooMuchStopsNobody(t *testing.T) {
	inBoundedBubble(t, bounds{parked: 10}, []string{earlySaga}, func(w *world) {
		const early, more = 10, 5
		add := func(tenant, id, key string) {
			w.publish(fmt.Sprintf("tenant.%s.aggregate.Order.%s", tenant, key),
				fmt.Sprintf(`{"event_id":%q,"event_type":"Add","payload":{"id":%q}}`, id, key))
		}
		for i := range early {
			add(tenant, fmt.Sprint("a", i), pressed(i))
		}
		w.until("the tenant has parked its share", func() bool { return w.running.db.Parked(tenant) == early })
		for i := range more {
			add(tenant, fmt.Sprint("b", i), pressed(early+i))
			add("quiet", fmt.Sprint("c", i), pressed(i))
		}
		w.until("another tenant parks", func() bool { return w.running.db.Parked("quiet") == more })
		letters, err := w.running.db.DeadLetters("", 100)
		if err != nil || len(letters) != more {
			t.Fatalf("%d dead letters (%v), want %d", len(letters), err, more)
		}
		for _, d := range letters {
			if d.Reason != edda.DeadFull || d.Key.Tenant != tenant {
				t.Errorf("dead letter %s of %s", d.Reason, d.Key)
			}
		}
		for i := range early {
			w.send(fmt.Sprint("go", i), "Go", pressed(i), fmt.Sprintf(`{"id":%q}`, pressed(i)))
		}
		w.until("nothing of it is parked", func() bool { return w.running.db.Parked(tenant) == 0 })
		for i := range early {
			if got := field(w.instance("early", pressed(i)).State, "added"); got != "1" {
				t.Errorf("%s has %s", pressed(i), got)
			}
		}
		add(tenant, "late", pressed(early+more))
		w.until("there is room again", func() bool { return w.running.db.Parked(tenant) == 1 })
	})
}

const earlySaga = `saga: early
key: event.id
from: all
state: {added: 0}
on:
  Go: {start: true}
  Add: {park: 1h, set: {added: =state.added + 1}}
`

// signal tells an instance something, as the API does.
func (w *world) signal(saga, key, name string) {
	w.t.Helper()
	ev := edda.Event{Kind: edda.KindSignal, ID: name + "-" + key, Tenant: tenant, Type: name, Key: edda.Key{Tenant: tenant, Saga: saga, Correlation: key}}
	if _, err := w.running.publisher.Send(context.Background(), ev); err != nil {
		w.t.Fatal(err)
	}
}
