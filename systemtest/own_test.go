package systemtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// manyParcels are enough for a stream that is not read back.
const manyParcels = 1500

func (w *world) sendParcels(from string) {
	for i := range manyParcels {
		w.send(fmt.Sprint(from, i), "Sent", fmt.Sprint(from, i), fmt.Sprintf(`{"id":"%s%d"}`, from, i))
	}
}

// readsBack tells whether somebody reads the stream of facts.
func (w *world) readsBack() bool {
	w.t.Helper()
	s, err := w.js.Stream(context.Background(), wire.WorkflowEvents)
	if err != nil {
		w.t.Fatal(err)
	}
	names := s.ConsumerNames(context.Background())
	n := 0
	for range names.Name() {
		n++
	}
	if err := names.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		w.t.Fatal(err)
	}
	return n > 0
}

// TestTimersFireWhereFactsAreNotReadBack, and a process that starts reads what it left unread.
func TestTimersFireWhereFactsAreNotReadBack(t *testing.T) {
	inBubble(t, []string{parcels}, func(w *world) {
		w.sendParcels("a")
		w.until("the facts are read no more", func() bool { return !w.readsBack() })
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

// TestFactsThatASagaHearsAreReadBack, each once, also where many of the same process are
// not.
func TestFactsThatASagaHearsAreReadBack(t *testing.T) {
	inBubble(t, []string{parcels, vans}, func(w *world) {
		w.sendParcels("a")
		w.until("the facts are read no more", func() bool { return !w.readsBack() })
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
