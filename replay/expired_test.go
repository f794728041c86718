package replay

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/engine"
	"edda/internal/testkit"
	"edda/store"
)

// paySaga ends with its charge.
const paySaga = `saga: order
version: 1
key: event.id
state: {}
on:
  Placed:
    start: true
    do:
      - seq:
          - {effect: charge, due: 90m, with: {amount: =event.total}, undo: {effect: refund, with: {of: =id}}}
          - done: 1
  saga.failed: {do: [{event: OrderFailed}]}
`

// forget removes all finished instances and all history, as retention does.
func (w *world) forget() {
	w.t.Helper()
	far := time.Now().Add(1000 * time.Hour)
	cut := store.Cutoffs{Ended: func(string, edda.Status) time.Time { return far }, History: far}
	for _, kind := range store.Kinds() {
		for s := w.db.Sweep(kind, cut); !s.Done(); {
			p, err := s.Next(context.Background())
			if err == nil {
				err = w.db.Commit(context.Background(), store.Change{Remove: p.Removal})
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// paid publishes a result for every effect in the outbox.
func (w *world) paid() {
	w.t.Helper()
	for _, row := range w.outbox() {
		if row.Work.Kind == edda.WorkEffect {
			w.give(w.result(row.Work, edda.Succeeded))
		}
	}
}

// The stream of aggregate events is kept for ever, results for a week, instances and history for a
// month: an instance that ended long ago must not start again.
func TestExpiredInstancesAreNotStartedAgain(t *testing.T) {
	for _, emit := range []string{EmitNone, EmitNew, EmitAll} {
		w := newWorld(t, paySaga)
		w.give(w.event("Placed", "O1", map[string]any{"total": 5}))
		w.paid()
		w.forget()
		if len(w.state()) != 0 {
			t.Fatalf("still there: %v", w.state())
		}
		w.log.begins[otherStream] = 1000
		w.later(40 * 24 * time.Hour)
		p := w.replay(Request{Emit: emit}).Progress
		if p.Exchanged != 0 || p.Sent != 0 || !strings.Contains(strings.Join(p.Notes, " "), "nothing is recorded") {
			t.Errorf("%s: %+v", emit, p)
		}
		w.fire()
		if len(w.state()) != 0 || len(w.outbox()) != 0 {
			t.Errorf("%s: %v, outbox %v", emit, w.state(), w.outbox())
		}
	}
}

// A running instance is not built from streams that have lost its results.
func TestAnInstanceWithoutAllItsResultsIsNotBuilt(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}))
	w.paid()
	w.give(w.event("Noted", "O1", map[string]any{"by": 1}))
	state := w.state()
	w.forgetHistory()
	w.log.begins[otherStream] = 1000
	if p := w.replay(Request{}).Progress; p.Unbuilt != 1 || p.Exchanged != 0 {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
}

// An event that was dropped because the tenant could park no more is dropped again.
func TestRefusedEventsStayRefused(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.stop()
	w.maxParked = 1
	w.start()
	w.give(w.event("Noted", "X", map[string]any{"by": 1}))
	w.give(w.event("Noted", "O1", map[string]any{"by": 3})) // one more than may be parked
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}))
	dead, err := w.db.DeadLetters("", 10)
	if err != nil || len(dead) != 1 || dead[0].Reason != edda.DeadFull {
		t.Fatalf("%v, %v", dead, err)
	}
	state := w.state()
	if p := w.replay(Request{}).Progress; p.Changed != 0 || p.Same != 2 {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
}

// A replay that sends work waits while the outbox is full.
func TestAReplayThatSendsWaitsForRoom(t *testing.T) {
	w := newWorld(t, orderSaga)
	w.stop()
	asked, room := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.room = func() bool {
		once.Do(func() { close(asked) })
		return testkit.Closed(room)
	}
	w.start()
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}))
	w.paid()
	rows := len(w.outbox())
	began, err := w.replayer.Begin(t.Context(), Request{Tenant: tenant, Saga: "order", Emit: EmitAll})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	if r := w.report(began.ID); r.Progress.Exchanged != 0 || len(w.outbox()) != rows {
		t.Errorf("it did not wait: %+v, %d rows", r.Progress, len(w.outbox()))
	}
	close(room)
	if p := w.ended(began.ID).Progress; p.Sent == 0 {
		t.Errorf("%+v", p)
	}
	if p := w.replay(Request{}).Progress; p.Changed != 0 { // a replay that sends nothing does not ask for room
		t.Errorf("%+v", p)
	}
}

// A result that was handed over inside the process counts, although its echo is not in the streams
// yet, up to the position.
func TestHandedOverResultsAreReplayedWithoutHistory(t *testing.T) {
	w := newWorld(t, paySaga)
	w.now = time.Now().UTC() // the engine stamps such a result
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}))
	w.forgetHistory()
	charge := w.outbox()[0].Work
	ev := w.result(charge, edda.Succeeded)
	ev.Stream = ""
	handed := engine.Handed{
		Event: ev, Claim: edda.Claim{Tenant: tenant, CommandID: charge.ID, Effect: charge.Name, Claimed: w.now, Done: true},
		Echo: edda.Work{ID: ev.ID, Kind: edda.WorkResult, From: charge.From, Name: charge.Name, CommandID: charge.ID},
	}
	if err := w.engine.Result(t.Context(), handed); err != nil {
		t.Fatal(err)
	}
	state := w.state()
	for _, published := range []bool{false, true} { // its echo
		if published {
			ev.Stream = otherStream
			w.give(ev)
		}
		if p := w.replay(Request{}).Progress; p.Same != 1 || p.Exchanged != 0 {
			t.Errorf("published %v: %+v", published, p)
		}
		w.sameState(state)
	}
}

// The echo of a result may be stored hours later, after timers that were due then. The result
// still stands where it was applied.
func TestAnEchoIsReplayedAtTheTimeOfItsResult(t *testing.T) {
	w := newWorld(t, paySaga)
	w.give(w.event("Placed", "O1", map[string]any{"total": 5}))
	charge := w.outbox()[0].Work
	w.now = w.now.Add(time.Hour)
	late := w.result(charge, edda.Succeeded)
	late.Stream, late.Stored = otherStream, late.Time.Add(3*time.Hour)
	w.give(late)
	w.now = w.now.Add(2 * time.Hour)
	w.give(w.event("Placed", "O1", map[string]any{"total": 6})) // stored before the echo
	w.settle()
	state := w.state()
	w.forgetHistory()
	if p := w.replay(Request{}).Progress; p.Same != 1 || p.Exchanged != 0 {
		t.Errorf("%+v", p)
	}
	w.sameState(state)
}
