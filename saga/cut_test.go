package saga

import (
	"encoding/json"
	"strings"
	"testing"

	"edda"
)

// cutRedrive is the verb for a dead letter without its payload, with data.
func cutRedrive(t *testing.T, l *line, dead *edda.DeadLetter, data string) edda.Event {
	t.Helper()
	ev := dead.Event
	ev.Payload, ev.Stream, ev.Seq = nil, "AGGREGATE_EVENTS", 7
	payload, err := json.Marshal(edda.Redrive{DeadLetter: dead.ID, Event: &ev, Reason: dead.Reason, Cut: 900, Data: json.RawMessage(data)})
	if err != nil {
		t.Fatal(err)
	}
	return edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, Key: l.cell.Key, Payload: payload}
}

func TestARedriveWithoutThePayloadAppliesNothing(t *testing.T) {
	text := "saga: counter\nversion: 1\nkey: event.k\nstate: {n: 0}\non: {Begin: {start: true, on_poison: skip, set: {n: \"=state.n + event.amount\"}}}\n"
	l := newLine(t, setWith(t, []*Program{compiled(t, text, Options{})}, nil), "counter")
	dead := l.event("Begin", `{"k":"K"}`)[0].Dead
	out := l.give(cutRedrive(t, l, dead, ""))
	if len(out) != 1 || out[0].Fate != edda.FateLate || len(out[0].Resolved) > 0 || !strings.Contains(out[0].Outputs[0].Reason, "nats stream get AGGREGATE_EVENTS 7") {
		t.Fatalf("%+v", out)
	}
	out = l.give(cutRedrive(t, l, dead, `{"k":"K","amount":3}`))
	if len(out) != 2 || out[0].Resolved[0] != dead.ID || string(l.cell.Instance.State) != `{"n":3}` {
		t.Errorf("with data: %+v", out)
	}
}

func TestADeadLetterWithoutAKeyIsReplacedByOneWithoutPayload(t *testing.T) {
	text := "saga: counter\nversion: 1\nkey: event.k\nstate: {n: 0}\non: {Begin: {start: true}}\n"
	l := newLine(t, setWith(t, []*Program{compiled(t, text, Options{})}, nil), "counter")
	targets := l.set.Route(edda.Event{Kind: edda.KindEvent, Type: "Begin", ID: "e1", Tenant: "t", Payload: json.RawMessage(`{"k":null}`)})
	if len(targets) != 1 || targets[0].Dead == nil {
		t.Fatalf("%+v", targets)
	}
	verb := cutRedrive(t, l, targets[0].Dead, "")
	verb.Key = targets[0].Key
	if again := l.set.Route(verb); len(again) != 0 {
		t.Errorf("it goes to %+v", again)
	}
	verb = cutRedrive(t, l, targets[0].Dead, `{"k":"K"}`)
	verb.Key = targets[0].Key
	if again := l.set.Route(verb); len(again) != 1 || again[0].Key.Correlation != "K" {
		t.Errorf("with data it goes to %+v", again)
	}
}

func TestARedrivenDeadLetterDropsThePayloadThatWasReadBack(t *testing.T) {
	text := "saga: counter\nversion: 1\nkey: event.k\nstate: {n: 0}\non: {Begin: {start: true, on_poison: skip, set: {n: \"=state.n + event.amount\"}}}\n"
	l := newLine(t, setWith(t, []*Program{compiled(t, text, Options{})}, nil), "counter")
	for what, payload := range map[string]string{"poison": `{"k":"K"}`, "no key": `{"k":null}`} {
		for _, read := range []bool{true, false} {
			r := edda.Redrive{DeadLetter: "D1", Event: &edda.Event{Kind: edda.KindEvent, Type: "Begin", ID: "e1" + what, Tenant: "t"}, Reason: edda.DeadNoKey, Cut: 900, Data: json.RawMessage(payload), ReadBack: read}
			body, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			verb := edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, Key: edda.Key{Tenant: "t", Saga: "counter"}, Payload: body}
			var dead *edda.DeadLetter
			if targets := l.set.Route(verb); len(targets) == 1 && targets[0].Dead != nil {
				dead = targets[0].Dead
			} else {
				verb.Key = l.cell.Key
				for _, tr := range l.give(verb) {
					if tr.Dead != nil {
						dead = tr.Dead
					}
				}
			}
			if dead == nil || (dead.Cut == 900 && dead.Event.Payload == nil) != read || !dead.Event.Redriven {
				t.Errorf("%s, read back %v: %+v", what, read, dead)
			}
		}
	}
}
