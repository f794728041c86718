package saga

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"edda"
)

const shipping = `
saga: shipping
version: %V
key: event.k
state: {n: 0}
schema: {type: object, properties: {n: {type: integer}}}
on:
  Begin: {start: true, do: [{seq: [{effect: ship, with: {k: =key}, undo: {effect: recall, with: {k: =key}}}, {event: Shipped}]}, {timer: remind, after: 1h}]}
  Add: {set: {n: "=state.n + event.amount"}}
  ship.ok: {}
  timer.remind: {}
`

// fixed is the next version, which accepts a missing amount, with changes.
func fixed(t *testing.T, changes ...string) *Program {
	t.Helper()
	return compiled(t, strings.NewReplacer(append(changes, "%V", "2", "event.amount", "event.amount ?? 5")...).Replace(shipping), Options{})
}

// stuckLine is an instance with a pending step, a waiting seq, a timer and a poison event.
func stuckLine(t *testing.T) (*line, *Program) {
	t.Helper()
	first := compiled(t, strings.Replace(shipping, "%V", "1", 1), Options{})
	l := newLine(t, setWith(t, []*Program{first}, nil), "shipping")
	l.give(edda.Event{Kind: edda.KindEvent, Type: "Begin", Payload: json.RawMessage(`{"k":"K"}`)})
	l.give(edda.Event{Kind: edda.KindEvent, Type: "Add", Payload: json.RawMessage(`{"k":"K"}`)})
	l.give(edda.Event{Kind: edda.KindEvent, Type: "Add", Payload: json.RawMessage(`{"k":"K","amount":10}`)})
	if len(l.cell.Held) != 2 {
		t.Fatalf("held %+v", l.cell.Held)
	}
	return l, first
}

func TestARedriveUsesTheMendedTextIfTheInstanceFits(t *testing.T) {
	for name, tt := range map[string]struct {
		changes []string
		moves   bool
	}{
		"mended":                         {nil, true},
		"a new handler":                  {[]string{"  timer.remind: {}", "  timer.remind: {}\n  Other: {}"}, true},
		"another key":                    {[]string{"key: event.k", "key: event.k ?? event.id"}, false},
		"another key of a handler":       {[]string{"Add: {", `Add: {key: "event.k + ''", `}, false},
		"another handler with a key":     {[]string{"  ship.ok", "  Counter.Add: {key: event.id}\n  ship.ok"}, false},
		"the step is gone":               {[]string{"effect: ship, with", "id: send, effect: ship, with", "  ship.ok: {}\n", ""}, false},
		"the state is not valid there":   {[]string{"n: {type: integer}", "n: {type: integer, minimum: 1}", "{n: 0}", "{n: 1}"}, false},
		"the timer has no handler":       {[]string{"  timer.remind: {}\n", ""}, false},
		"the seq is shorter than before": {[]string{", {event: Shipped}]}", "]}"}, true},
		"it dies there too":              {[]string{"event.amount", "event.none + 1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, first := stuckLine(t)
			l.set = setWith(t, []*Program{fixed(t, tt.changes...)}, []*Program{first})
			out := l.operator(edda.VerbRedrive)
			in := l.cell.Instance
			if tt.moves != (in.Version == 2) || tt.moves != (len(l.cell.Held) == 0) || tt.moves != (in.Held == "") {
				t.Fatalf("version %d, held %q %+v; %+v", in.Version, in.Held, l.cell.Held, out)
			}
			if tt.moves && string(in.State) != `{"n":15}` {
				t.Errorf("state %s", in.State)
			}
			if !tt.moves && (len(l.cell.Held) != 2 || in.Hash != first.Hash()) {
				t.Errorf("held %+v", l.cell.Held)
			}
		})
	}
}

func TestARedriveKeepsItsVersionIfThatSucceeds(t *testing.T) {
	l, first := stuckLine(t)
	l.set = setWith(t, []*Program{fixed(t)}, []*Program{first})
	payload, err := json.Marshal(edda.Redrive{DeadLetter: l.cell.Held[0].DeadLetter, Data: json.RawMessage(`{"amount":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	l.give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, Key: l.cell.Key, Payload: payload})
	if in := l.cell.Instance; in.Version != 1 || string(in.State) != `{"n":11}` || len(l.cell.Held) != 0 {
		t.Errorf("version %d, state %s, held %+v", in.Version, in.State, l.cell.Held)
	}
}

func TestAVerbForAnotherDeadLetterDoesNotTouchTheHold(t *testing.T) {
	for _, verb := range []string{edda.VerbRedrive, edda.VerbDrop, edda.VerbSkip} {
		l, _ := stuckLine(t)
		out := l.give(edda.Event{Kind: edda.KindOperator, Type: verb, Key: l.cell.Key, Payload: json.RawMessage(`{"dead_letter":"other"}`)})
		if len(l.cell.Held) != 2 || out[0].Fate != edda.FateLate || out[0].Outputs[0].Word != "refused" {
			t.Errorf("%s: %+v, held %d", verb, out, len(l.cell.Held))
		}
	}
}

func TestSkipOfAHeldKeyIsDrop(t *testing.T) {
	l, _ := stuckLine(t)
	id := l.cell.Held[0].DeadLetter
	out := l.give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbSkip, Key: l.cell.Key, Payload: json.RawMessage(`{"dead_letter":"` + id + `"}`)})
	if len(l.cell.Held) != 0 || string(l.cell.Instance.State) != `{"n":10}` || len(out) != 2 || out[0].Resolved[0] != id {
		t.Errorf("%+v, state %s", out, l.cell.Instance.State)
	}
}

// TestADroppedStartIsRedrivenOnce: no instance exists that could remember the first verb,
// and the event itself was given up before.
func TestADroppedStartIsRedrivenOnce(t *testing.T) {
	text := "saga: counter\nversion: 1\nkey: event.k\nstate: {n: 0}\non: {Begin: {start: true, on_poison: skip, set: {n: \"=state.n + event.amount\"}}}\n"
	l := newLine(t, setWith(t, []*Program{compiled(t, text, Options{})}, nil), "counter")
	out := l.give(edda.Event{Kind: edda.KindEvent, Type: "Begin", Payload: json.RawMessage(`{"k":"K"}`)})
	dead := out[0].Dead
	if dead == nil || l.cell.Instance != nil || len(l.cell.Held) > 0 {
		t.Fatalf("%+v", out)
	}
	payload, err := json.Marshal(edda.Redrive{DeadLetter: dead.ID, Event: &dead.Event, Reason: dead.Reason, Data: json.RawMessage(`{"k":"K","amount":3}`)})
	if err != nil {
		t.Fatal(err)
	}
	verb := edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, Key: l.cell.Key, Payload: payload}
	l.give(verb)
	l.n-- // the same id
	again := l.give(verb)
	if again[0].Fate != edda.FateDuplicate || string(l.cell.Instance.State) != `{"n":3}` {
		t.Errorf("%s, state %s", again[0].Fate, l.cell.Instance.State)
	}
}

// TestAStartThatDiedTwiceIsAppliedOnce: it came again while its first dead letter existed, and
// became a second one.
func TestAStartThatDiedTwiceIsAppliedOnce(t *testing.T) {
	text := "saga: counter\nversion: 1\nkey: event.k\nstate: {n: 0}\non: {Begin: {start: true, on_poison: skip, set: {n: \"=state.n + event.amount\"}}}\n"
	l := newLine(t, setWith(t, []*Program{compiled(t, text, Options{})}, nil), "counter")
	begin := edda.Event{Kind: edda.KindEvent, Type: "Begin", Payload: json.RawMessage(`{"k":"K"}`)}
	first := l.give(begin)[0].Dead
	l.n-- // the same id, a moment later
	l.now = l.now.Add(time.Second)
	second := l.give(begin)[0].Dead
	if first == nil || second == nil || first.ID == second.ID || first.Event.ID != second.Event.ID {
		t.Fatalf("letters %+v and %+v", first, second)
	}
	for i, dead := range []*edda.DeadLetter{first, second} {
		payload, err := json.Marshal(edda.Redrive{DeadLetter: dead.ID, Event: &dead.Event, Reason: dead.Reason, Unseen: dead.Unseen, Data: json.RawMessage(`{"k":"K","amount":3}`)})
		if err != nil {
			t.Fatal(err)
		}
		out := l.give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, Key: l.cell.Key, Payload: payload})
		if want := []edda.Fate{edda.FateHandled, edda.FateDuplicate}[i]; len(out) != 2 || out[1].Fate != want || out[0].Resolved[0] != dead.ID {
			t.Errorf("redrive %d: %+v, want the event %s", i, out, want)
		}
	}
	if string(l.cell.Instance.State) != `{"n":3}` {
		t.Errorf("state %s: it was applied twice", l.cell.Instance.State)
	}
}
