package engine_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"edda"
	"edda/effects"
	"edda/engine"
	"edda/internal/testkit"
	"edda/saga"
	"edda/stream/wire"
)

// errand has timers and results that send effects, times in their parameters, undos and signals.
const errand = `
saga: errand
version: 1
key: event.id
on:
  Placed:
    start: true
    do:
      - {timer: pack, after: 40ms}
      - {effect: reserve, with: {order: =key, at: =now}, due: 1h, undo: {effect: release}}
  timer.pack:
    do:
      - {effect: wrap, with: {at: =now, name: '=uuid("wrap")'}, due: 300ms}
      - {timer: nudge, after: 25ms}
  timer.nudge: {do: [{effect: remind, with: {at: =now}, due: 1h}]}
  reserve.ok:
    do:
      - seq:
          - {effect: charge, with: {at: =now, from: =step.reserve.result, seq: =meta.seq}, due: 2h, undo: {effect: refund}}
          - {effect: ship, with: {at: =now}, due: 2h}
          - done: =step.ship.result
  signal.note: {do: [{effect: remind, with: {at: =now}, due: 1h}]}
`

// errandKey is the key of the test. One is enough, because keys do not share state.
var errandKey = edda.Key{Tenant: "acme", Saga: "errand", Correlation: "E1"}

// keyRun is one run of a key: its cell, its transitions, and the events of its streams in
// stored order.
type keyRun struct {
	*rapid.T
	set     *saga.Set
	now     time.Time
	free    time.Time // when the echo of the last handed-in result is stored
	cell    edda.Cell
	trs     []edda.Transition
	pending []edda.Work
	stored  []edda.Event
	seqs    map[string]uint64
}

func newKeyRun(t *rapid.T, set *saga.Set) *keyRun {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &keyRun{T: t, set: set, now: at, free: at, cell: edda.Cell{Key: errandKey}, seqs: map[string]uint64{}}
}

// pass lets time pass and fires the timers that come due.
func (l *keyRun) pass(d time.Duration) {
	l.now = l.now.Add(d)
	for range 100 {
		in := l.cell.Instance
		if in == nil || in.Armed.IsZero() || in.Armed.After(l.now) {
			return
		}
		cell, trs := l.set.Wake(l.cell, in.Armed, l.now)
		l.became(cell, trs)
	}
	l.Fatal("more than 100 timers")
}

func (l *keyRun) became(cell edda.Cell, trs []edda.Transition) {
	l.cell, l.trs = cell, append(l.trs, trs...)
	for i := range trs {
		for _, w := range trs[i].Work {
			if w.Kind == edda.WorkEffect {
				l.pending = append(l.pending, w)
			}
		}
	}
}

func (l *keyRun) target(ev edda.Event) saga.Target { return l.set.Route(ev)[0] }

// store stores a message in a stream and decodes it.
func (l *keyRun) store(name string, at time.Time, m *nats.Msg) edda.Event {
	l.seqs[name]++
	ev := wire.Codec{}.Event(wire.Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Stream: name, Seq: l.seqs[name], Time: at})
	if ev.Malformed != "" {
		l.Fatal(ev.Error)
	}
	l.stored = append(l.stored, ev)
	return ev
}

// send stores an event or a signal and applies it, after the echoes of earlier results are
// stored.
func (l *keyRun) send(ev edda.Event) {
	l.pass(max(1, l.free.Sub(l.now)+1))
	m, err := wire.Codec{}.Input(ev)
	if err != nil {
		l.Fatal(err)
	}
	ev = l.store(wire.AggregateEvents, l.now, m)
	l.became(l.set.Apply(l.cell, l.target(ev), ev))
}

// hand applies a handed-in result of a command, and stores its echo some time later. Later
// inputs wait for the echo.
func (l *keyRun) hand(w edda.Work, outcome edda.Outcome, later time.Duration) {
	l.pass(max(1, l.free.Sub(l.now)+1))
	md, _ := json.Marshal(map[string]string{"saga": w.From.Saga, "key": w.From.Correlation, "step": w.Step})
	r := effects.Result{Tenant: w.From.Tenant, CommandID: w.ID, Effect: w.Name, Outcome: outcome,
		Payload: json.RawMessage(`{"code":"no"}`), Metadata: md, Attempts: 1, Time: l.now.Add(-time.Millisecond)}
	m, err := wire.Codec{}.Result(r)
	if err != nil {
		l.Fatal(err)
	}
	ev := wire.Codec{}.Event(wire.Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Time: l.now})
	l.became(l.set.Apply(l.cell, l.target(ev), ev))
	r.Taken, l.free = l.now, l.now.Add(later)
	if m, err = (wire.Codec{}).Result(r); err != nil {
		l.Fatal(err)
	}
	l.store(wire.WorkflowEvents, l.free, m)
}

// step draws and does one step.
func (l *keyRun) step() {
	if len(l.pending) > 0 && rapid.IntRange(0, 3).Draw(l.T, "what") > 0 {
		i := rapid.IntRange(0, len(l.pending)-1).Draw(l.T, "command")
		w := l.pending[i]
		l.pending = slices.Delete(l.pending, i, i+1)
		l.hand(w, rapid.SampledFrom([]edda.Outcome{edda.Succeeded, edda.Succeeded, edda.Failed, edda.TimedOut}).Draw(l.T, "outcome"), l.duration("copied after"))
		return
	}
	if rapid.Bool().Draw(l.T, "signal") {
		l.send(edda.Event{Kind: edda.KindSignal, ID: rapid.StringMatching(`s[0-9]{12}`).Draw(l.T, "id"), Type: "note", Key: errandKey})
		return
	}
	l.pass(l.duration("pause"))
}

func (l *keyRun) duration(what string) time.Duration {
	return time.Duration(rapid.OneOf(rapid.Int64Range(0, int64(5*time.Millisecond)), rapid.Int64Range(0, int64(200*time.Millisecond)),
		rapid.Int64Range(0, int64(3*time.Hour))).Draw(l.T, what))
}

// again applies the events that a backup does not have from the streams, and fires the timers
// that are due at the end.
func (l *keyRun) again(from edda.Cell, held map[string]uint64) *keyRun {
	again := newKeyRun(l.T, l.set)
	again.cell = from
	for _, ev := range l.stored {
		if ev.Seq > held[ev.Stream] {
			again.became(engine.ApplyPast(l.set, again.cell, l.target(ev), ev))
		}
	}
	again.now = l.now
	again.pass(0)
	return again
}

// came returns the transitions of events that were applied for the first time. Echoes of
// results that a backup had are duplicates.
func came(trs, had []edda.Transition) []byte {
	var kept []edda.Transition
	for _, t := range trs {
		known := slices.ContainsFunc(had, func(h edda.Transition) bool { return h.Event.ID == t.Event.ID })
		if t.Fate != "" && !known {
			t.Arm, t.Disarm, t.Instance = nil, nil, nil
			kept = append(kept, t)
		}
	}
	out, _ := json.MarshalIndent(kept, "", " ")
	return out
}

// stateOf returns the instance without its armed time, which may be earlier than needed, and
// its revision: a late result leaves no trace, and is late again.
func stateOf(c edda.Cell) []byte {
	in := *c.Instance
	in.Armed, in.Revision = time.Time{}, 0
	out, _ := json.MarshalIndent(in, "", " ")
	return out
}

// TestEchoesReplayToTheSameInstanceAsHandedResults compares a run with handed-in results to the
// same run restored from a backup of any moment and the streams: instance, history, and work
// with its ids are equal, however late the echoes are.
func TestEchoesReplayToTheSameInstanceAsHandedResults(t *testing.T) {
	set := testkit.Set(t, errand)
	rapid.Check(t, func(t *rapid.T) {
		l := newKeyRun(t, set)
		l.send(edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "acme", AggregateType: "Order", AggregateID: "E1", Type: "Placed", Payload: json.RawMessage(`{"id":"E1"}`)})
		steps := rapid.IntRange(1, 14).Draw(t, "steps")
		backup, had, held, at := edda.Cell{Key: errandKey}, 0, map[string]uint64{}, rapid.IntRange(-1, steps-1).Draw(t, "backup")
		for i := range steps {
			if i == at { // the position may be behind: a handed-in result moves none
				backup, had, held = l.cell, len(l.trs), map[string]uint64{wire.AggregateEvents: l.seqs[wire.AggregateEvents],
					wire.WorkflowEvents: uint64(rapid.IntRange(0, int(l.seqs[wire.WorkflowEvents])).Draw(t, "position"))}
			}
			l.step()
		}
		l.pass(max(1, l.free.Sub(l.now)))
		again := l.again(backup, held)
		if was, is := came(l.trs[had:], l.trs[:had]), came(again.trs, l.trs[:had]); !bytes.Equal(was, is) {
			t.Fatalf("the transitions were\n%s\nand after the restore\n%s", was, is)
		}
		if was, is := stateOf(l.cell), stateOf(again.cell); !bytes.Equal(was, is) {
			t.Fatalf("the instance was\n%s\nand after the restore\n%s", was, is)
		}
	})
}
