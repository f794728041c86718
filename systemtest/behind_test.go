package systemtest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/engine"
	"edda/saga"
	"edda/store"
	"edda/stream"
	"edda/stream/wire"
)

// diarySaga writes down what it takes in: events of an aggregate, facts of another saga,
// and what came due in between.
const diarySaga = `saga: %s
key: event.id
from: all
state: {log: []}
on:
  Opened: {start: true, do: [{timer: bell, after: 10s}], set: {log: "=concat(state.log, ['opened'])"}}
  Noted: {park: 1h, set: {log: "=concat(state.log, [event.n])"}}
  teller.Told: {park: 1h, set: {log: "=concat(state.log, ['told ' + string(event.n)])"}}
  timer.bell: {set: {log: "=concat(state.log, ['bell'])"}}
  Closed: {do: [{done: true}]}
`

// tellerSaga tells of what it takes in as a fact.
const tellerSaga = `saga: teller
key: event.id
on:
  Tell: {start: true, restart: true, do: [{event: Told, with: {id: "=event.of", n: =event.n}}, {done: true}]}
`

// begins adds a saga that wants everything to a running system, as a reload does.
func (w *world) begins(text string) {
	w.t.Helper()
	w.compile("later.yaml", []byte(text))
	set, err := saga.NewSet(w.sagas...)
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := stream.Beginnings(context.Background(), w.js, wire.Codec{})
	if err != nil {
		w.t.Fatal(err)
	}
	var rows []store.SagaPosition
	for _, at := range all {
		rows = append(rows, store.SagaPosition{Tenant: engine.AllTenants, Saga: w.sagas[len(w.sagas)-1].Saga(), Checkpoint: at.Checkpoint})
	}
	if err := w.running.db.Commit(context.Background(), store.Change{Positions: rows}); err != nil {
		w.t.Fatal(err)
	}
	w.running.set = set
	if err := w.running.engine.Swap(context.Background(), set, rows...); err != nil {
		w.t.Fatal(err)
	}
}

// liveAgain waits until no saga is behind.
func (w *world) liveAgain() {
	w.t.Helper()
	w.until("no saga is behind", func() bool {
		rows, err := w.running.db.Positions()
		return err == nil && len(rows) == 0 && len(w.running.engine.Info().Behind) == 0
	})
}

func (w *world) diary(saga, key string) string { return field(w.instance(saga, key).State, "log") }

// TestASagaThatIsAddedLaterIsAsOneThatWasThere: events and facts in their order, and what
// was due between them; also where the process and NATS stop in the middle.
func TestASagaThatIsAddedLaterIsAsOneThatWasThere(t *testing.T) {
	inBubble(t, []string{fmt.Sprintf(diarySaga, "first"), tellerSaga}, func(w *world) {
		const keys = 20
		n := 0
		round := func(names ...string) {
			for i := range keys {
				id := fmt.Sprint("K", i)
				for _, name := range names {
					n++
					if name == "Tell" {
						w.send(fmt.Sprint("e", n), name, "T"+id, fmt.Sprintf(`{"id":"T%s","of":%q,"n":%d}`, id, id, n))
						// Two streams have no order within one instant, so the fact is stored before the next event.
						time.Sleep(time.Millisecond)
						continue
					}
					w.send(fmt.Sprint("e", n), name, id, fmt.Sprintf(`{"id":%q,"n":%d}`, id, n))
				}
				time.Sleep(10 * time.Millisecond)
			}
			w.idle()
		}
		round("Noted", "Opened", "Tell") // what comes first is parked
		w.pass(time.Now().Add(5 * time.Second))
		round("Noted", "Tell")
		w.pass(time.Now().Add(20 * time.Second)) // the bell rings
		round("Noted", "Noted")
		w.begins(fmt.Sprintf(diarySaga, "later"))
		// Catching up takes no virtual time, so nothing waits here: the stop comes in its middle.
		for w.instance("later", "K0") == nil && len(w.running.engine.Info().Behind) > 0 {
			runtime.Gosched()
		}
		w.stop()
		w.stopNATS()
		w.startNATS()
		w.start()
		round("Tell", "Noted")
		w.liveAgain()
		round("Tell", "Noted")
		w.until("all is told", func() bool { return strings.Count(w.diary("later", "K19"), "told") == 4 })
		w.pass(time.Now().Add(20 * time.Second))
		for i := range keys {
			id := fmt.Sprint("K", i)
			first, later := w.diary("first", id), w.diary("later", id)
			if first != later || strings.Count(first, "bell") != 1 || strings.Count(first, "told") != 4 {
				t.Errorf("%s: the first has\n%s\nthe later\n%s", id, first, later)
			}
		}
		if names := w.consumers(wire.AggregateEvents); len(names) != 1 {
			t.Errorf("consumers are left: %v", names)
		}
	})
}

// consumers lists those of a stream.
func (w *world) consumers(name string) (names []string) {
	w.t.Helper()
	s, err := w.js.Stream(context.Background(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	for name := range s.ConsumerNames(context.Background()).Name() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *system) position(stream string) uint64 {
	all, err := s.db.Checkpoints()
	if err != nil {
		return 0
	}
	i := slices.IndexFunc(all, func(c edda.Checkpoint) bool { return c.Stream == stream })
	if i < 0 {
		return 0
	}
	return all[i].Seq
}
