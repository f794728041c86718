package systemtest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
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

// A gateway that is down stops the new events of those whose commands it does not take, and
// nothing else, and nothing is lost.
func TestADestinationThatIsDownSlowsTheIntake(t *testing.T) {
	const first, all = 30, 150
	inBoundedBubble(t, bounds{outbox: 20}, []string{pressSaga, pressEffect}, func(w *world) {
		w.gateway.down.Store(true)
		w.press(0, first)
		w.until("the intake pauses", func() bool { return w.paused() == 1 })
		w.pass(time.Now().Add(time.Second))
		// How many were in when it paused is a matter of how they were delivered.
		began := w.began(all)
		if began < w.bounds.outbox/2 || began > first {
			t.Fatalf("%d began before the intake paused, want %d to %d", began, w.bounds.outbox/2, first)
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

// TestOneTenantsDeadUpstreamHaltsEverybody no more: its calls take half of the room at most,
// its new events wait, and another tenant's orders, and its own sagas whose work goes
// elsewhere, go on. When the upstream is back nothing is lost and nothing comes twice.
func TestOneTenantsDeadUpstreamHaltsEverybody(t *testing.T) {
	const all = 120
	inBoundedBubble(t, bounds{outbox: 60}, []string{pressSaga, stubbornEffect, countSaga}, func(w *world) {
		var dead atomic.Bool
		dead.Store(true)
		w.shop.answer("charge", func(c call) int {
			if dead.Load() && strings.HasPrefix(c.Order, "K") {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		})
		place := func(tenant, key string) {
			w.publish(fmt.Sprintf("tenant.%s.aggregate.Order.%s", tenant, key), fmt.Sprintf(`{"event_id":"go-%s","event_type":"Go","payload":{"id":%q}}`, key, key))
		}
		quiet := func(i int) string { return fmt.Sprint("Q", i) }
		for i := range all {
			place(tenant, pressed(i))
			time.Sleep(5 * time.Millisecond) // what is under way passes the bound
		}
		w.until("the tenant is paused", func() bool { return w.paused() == 1 })
		w.pass(time.Now().Add(time.Minute))
		began := w.began(all)
		if began == all || began < w.bounds.outbox/2 {
			t.Fatalf("%d of %d began", began, all)
		}
		for i := range all {
			place("quiet", quiet(i))
			time.Sleep(20 * time.Millisecond)
		}
		w.until("another tenant's orders are charged", func() bool { return w.chargedOf("quiet", all, quiet) == all })
		w.until("sagas of the tenant that call nobody go on", func() bool {
			in := w.instance("count", pressed(all-1))
			return in != nil
		})
		if rows := w.outbox(); w.began(all) != began || rows > w.bounds.outbox {
			t.Errorf("%d rows, %d began, %d before", rows, w.began(all), began)
		}
		behind := w.running.engine.Info().Behind
		if len(behind) != 1 || behind[0].Tenant != tenant || behind[0].Saga != "press" || behind[0].Paused != "jetstream" {
			t.Errorf("behind: %+v", behind)
		}
		dead.Store(false)
		w.until("everything is charged", func() bool { return w.charged(all) == all && w.paused() == 0 })
		w.liveAgain()
		for i := range all {
			same(t, "commands of "+pressed(i), w.gateway.of(pressed(i)), "Stock.Reserve")
			same(t, "commands of "+quiet(i), w.gateway.of(quiet(i)), "Stock.Reserve")
			same(t, "calls of "+quiet(i), w.shop.effects(quiet(i)), "charge")
		}
	})
}

// stubbornEffect is tried again for as long as it takes.
const stubbornEffect = `effect: charge
http: {method: POST, url: "http://shop.example/charge", body: =payload}
retry: {max: 1000, backoff: 1s..10s}
`

// countSaga takes in the same events and calls nobody.
const countSaga = `saga: count
key: event.id
from: all
on:
  Go: {start: true}
  Closed: {do: [{done: true}]}
`

// chargedOf counts the instances of a tenant whose charge is ok.
func (w *world) chargedOf(tenant string, to int, name func(int) string) (n int) {
	v, err := w.running.db.View()
	if err != nil {
		w.t.Fatal(err)
	}
	defer v.Close()
	for i := range to {
		cell, err := v.Cell(edda.Key{Tenant: tenant, Saga: "press", Correlation: name(i)})
		if err != nil {
			w.t.Fatal(err)
		}
		if in := cell.Instance; in != nil && len(in.Steps) > 0 && in.Steps[0].Status == edda.StepOK {
			n++
		}
	}
	return n
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
