package systemtest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/stream/wire"
)

// parcels tell a fact when they are sent, which nobody hears, and one when they arrive.
const parcels = `
saga: parcel
version: 1
key: event.id
on:
  Sent: {start: true, do: [{event: Left}, {timer: ride, after: 10s}]}
  timer.ride: {do: [{event: Arrived, with: {by: van}}, {done: arrived}]}
`

// vans count the parcels that they brought.
const vans = `
saga: van
version: 1
key: event.by
on:
  parcel.Arrived: {start: true, set: {brought: =(state.brought ?? 0) + 1}}
`

const manyParcels = 1500

func (w *world) sendParcels(from string) {
	for i := range manyParcels {
		w.send(fmt.Sprint(from, i), "Sent", fmt.Sprint(from, i), fmt.Sprintf(`{"id":"%s%d"}`, from, i))
	}
}

// TestTimersFireBesideManyFacts, and a process that starts reads what it left unread.
func TestTimersFireBesideManyFacts(t *testing.T) {
	inBubble(t, []string{parcels}, func(w *world) {
		w.sendParcels("a")
		began := time.Now()
		w.ends("parcel", fmt.Sprint("a", manyParcels-1), edda.StatusDone)
		if late := time.Since(began) - 10*time.Second; late > time.Second {
			t.Errorf("the last timer fired %s late", late)
		}
		w.idle()
		w.stop()
		w.start()
		w.sendParcels("b")
		for i := range manyParcels {
			w.ends("parcel", fmt.Sprint("a", i), edda.StatusDone)
			w.ends("parcel", fmt.Sprint("b", i), edda.StatusDone)
		}
		if facts := readAll(t, w.js, wire.WorkflowEvents, "tenant.acme.workflow_event.parcel.*"); len(facts) != 4*manyParcels {
			t.Errorf("there are %d facts", len(facts))
		}
		w.idle()
		w.until("everything counts as read", func() bool { return w.lag() == 0 })
	})
}

// TestFactsOfOneProcessReachItsSagas, each once.
func TestFactsOfOneProcessReachItsSagas(t *testing.T) {
	inBubble(t, []string{parcels, vans}, func(w *world) {
		w.sendParcels("a")
		want := fmt.Sprintf(`{"brought":%d}`, manyParcels)
		w.until("all have arrived", func() bool {
			in := w.instance("van", "van")
			return in != nil && string(in.State) == want
		})
		w.stop()
		w.start()
		w.idle()
		if in := w.instance("van", "van"); string(in.State) != want {
			t.Errorf("the van has %s", in.State)
		}
	})
}

// waiting charges, and is done when its timer rings behind many echoes of others.
const waiting = `
saga: waiting
version: 1
key: event.id
on:
  Begun: {start: true, do: [{effect: reserve, with: {order: =event.id}}]}
  reserve.ok: {do: [{timer: ring, after: 10s}]}
  timer.ring: {do: [{done: rung}]}
`

// TestEchoesAreNotRead while a process lives. Positions pass them, and timers do not wait for them.
func TestEchoesAreNotRead(t *testing.T) {
	inBubble(t, append([]string{waiting}, embedded(t, "effects.yaml")...), func(w *world) {
		w.shop.answer("reserve", func(call) int { return http.StatusOK })
		<-w.running.source.CaughtUp() // before that, results go through the stream
		const n = 300
		began := time.Now()
		for i := range n {
			id := fmt.Sprint("W", i)
			w.send("e"+id, "Begun", id, fmt.Sprintf(`{"id":%q}`, id))
		}
		for i := range n {
			w.ends("waiting", fmt.Sprint("W", i), edda.StatusDone)
		}
		if late := time.Since(began) - 10*time.Second; late > 2*time.Second {
			t.Errorf("the last timer fired %s late", late)
		}
		echoes, results := readAll(t, w.js, wire.WorkflowEvents, "tenant.acme.effect_result.reserve.*.echo"), readAll(t, w.js, wire.WorkflowEvents, "tenant.acme.effect_result.reserve.*")
		if len(echoes) == 0 || len(echoes)+len(results) != n {
			t.Errorf("there are %d echoes and %d results", len(echoes), len(results))
		}
		w.idle()
		w.until("everything counts as read", func() bool { return w.lag() == 0 })
		if given := w.delivered(wire.WorkflowEvents); given != uint64(len(results)) {
			t.Errorf("the server gave %d messages of %d results", given, len(results))
		}
		w.stop()
		w.start()
		w.idle()
		for id, fates := range w.took() {
			if !slices.Equal(fates, []edda.Fate{edda.FateHandled}) {
				t.Errorf("the result of %s was taken as %v", id, fates)
			}
		}
	})
}

// delivered counts the messages of a stream that the server gave the sagas' consumers.
func (w *world) delivered(stream string) (n uint64) {
	w.t.Helper()
	s, err := w.js.Stream(context.Background(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	all := s.ListConsumers(context.Background())
	for info := range all.Info() {
		if strings.HasPrefix(info.Name, wire.ConsumerPrefix("saga")) {
			n += info.Delivered.Consumer
		}
	}
	if err := all.Err(); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// lag is how far the position is behind the stream of facts.
func (w *world) lag() uint64 {
	w.t.Helper()
	s, err := w.js.Stream(context.Background(), wire.WorkflowEvents)
	if err != nil {
		w.t.Fatal(err)
	}
	held, err := w.running.db.Checkpoints()
	if err != nil {
		w.t.Fatal(err)
	}
	last := s.CachedInfo().State.LastSeq
	for _, c := range held {
		if c.Stream == wire.WorkflowEvents {
			return last - c.Seq
		}
	}
	return last
}
