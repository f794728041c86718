package saga

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"testing"

	"edda"
	"edda/internal/jsonvalue"
)

// rewriting stores the event and changes the stored copy, at the top and deeper.
const rewriting = `
key: event.id
on:
  Placed:
    start: true
    let: {kept: event, by: "groupBy(event.lines, .sku)"}
    set: {order: =kept, by: =by}
    do:
      - set: {order.lines: =event.lines, order.note.by: code}
      - {effect: reserve, with: {order: =event, all: =state.order}}
`

const rewritten = `{"id":"O1","lines":[{"sku":"A","n":1,"in":{"a":[1,{"b":2}]}},{"sku":"A","n":2}],"note":{"text":"x","more":[1]}}`

func placedWith(data string) edda.Event {
	return edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "t", Type: "Placed", Time: testStart, Payload: json.RawMessage(data)}
}

// Only the first target gets the payload that was decoded to find the key, because targets may be
// applied concurrently. The race detector would notice.
func TestAnEventForTwoSagasIsAppliedToBothAtOnce(t *testing.T) {
	set := setOf(t, "saga: one\nversion: 1"+rewriting, "saga: two\nversion: 1"+rewriting)
	ev := placedWith(rewritten)
	targets := set.Route(ev)
	if len(targets) != 2 || targets[0].payload == nil || targets[1].payload != nil {
		t.Fatalf("%+v", targets)
	}
	states := make([]string, 2)
	var wg sync.WaitGroup
	for i, target := range targets {
		wg.Go(func() {
			cell, _ := set.Apply(edda.Cell{}, target, ev)
			states[i] = string(cell.Instance.State)
		})
	}
	wg.Wait()
	if states[0] != states[1] {
		t.Errorf("%s and %s", states[0], states[1])
	}
}

// Applying does not change a payload that was decoded before.
func TestApplyingDoesNotChangeTheTargetsPayload(t *testing.T) {
	set, ev := setOf(t, "saga: one\nversion: 1"+rewriting), placedWith(rewritten)
	target := set.Route(ev)[0]
	_, first := set.Apply(edda.Cell{}, target, ev)
	_, again := set.Apply(edda.Cell{}, target, ev)
	payload := target.payload
	target.payload = nil
	_, alone := set.Apply(edda.Cell{}, target, ev)
	if !reflect.DeepEqual(first, again) || !reflect.DeepEqual(first, alone) {
		t.Errorf("\n%+v, then\n%+v, and alone\n%+v", first, again, alone)
	}
	was, err := jsonvalue.Decode(ev.Payload)
	if err != nil || !payload.done || !reflect.DeepEqual(payload.v, was) {
		t.Errorf("%+v, %v", payload, err)
	}
}

// upcasting upcasts its events.
const upcasting = "\nevents: {Placed: {upcast: {1: {set: {note.new: true, lines: =event.lines}, unset: [none]}}}}"

// An upcast payload is separate from the event's, and applying changes neither.
func TestAnUpcastDoesNotChangeThePayload(t *testing.T) {
	set, ev := setOf(t, "saga: one\nversion: 1"+upcasting+rewriting), placedWith(rewritten)
	target := set.Route(ev)[0]
	cell, first := set.Apply(edda.Cell{}, target, ev)
	_, again := set.Apply(edda.Cell{}, target, ev)
	if !reflect.DeepEqual(first, again) || !strings.Contains(string(cell.Instance.State), `"new":true`) {
		t.Errorf("\n%+v, then\n%+v", first, again)
	}
	was, err := jsonvalue.Decode(ev.Payload)
	if err != nil || !target.payload.done || !reflect.DeepEqual(target.payload.v, was) {
		t.Errorf("%+v, %v", target.payload, err)
	}
}

// A target's payload is used only for the event that it was made for.
func TestATargetsPayloadIsOnlyForItsEvent(t *testing.T) {
	for text, want := range map[string]string{
		"":        `{"by":{},"order":{"id":"O1","lines":[],"note":{"by":"code"}}}`,
		upcasting: `{"by":{},"order":{"id":"O1","lines":[],"note":{"by":"code","new":true}}}`,
	} {
		set, other := setOf(t, "saga: one\nversion: 1"+text+rewriting), placedWith(`{"id":"O1","lines":[],"note":{}}`)
		cell, _ := set.Apply(edda.Cell{}, set.Route(placedWith(rewritten))[0], other)
		if string(cell.Instance.State) != want {
			t.Errorf("%s, not %s", cell.Instance.State, want)
		}
	}
}

// Only transitions go into the caller's room. The result is the same with room, without room and
// with too little.
func TestTransitionsGoIntoTheCallersRoom(t *testing.T) {
	set, ev := setOf(t, "saga: one\nversion: 1"+rewriting), placedWith(rewritten)
	target := set.Route(ev)[0]
	cell, want := set.Apply(edda.Cell{}, target, ev)
	room := make([]edda.Transition, 1)
	target.Room = room[:0]
	with, got := set.Apply(edda.Cell{}, target, ev)
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(with, cell) {
		t.Errorf("%+v, not %+v", got, want)
	}
	if len(got) != 1 || &got[0] != &room[0] {
		t.Error("it is not in the room")
	}
	parked := edda.Cell{Parked: []edda.Entry{{N: 1, Event: edda.Event{Kind: edda.KindSignal, ID: "s1", Type: "Later", Time: testStart}}}}
	target.Room = nil
	_, want = set.Apply(parked, target, ev)
	target.Room = room[:0]
	if _, got = set.Apply(parked, target, ev); len(got) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
}

// The changes of an event are the same to the byte, whether its payload was decoded before or is
// copied as JSON.
func TestCopiedBytesEqualEncodedOnes(t *testing.T) {
	const rest = `
key: event.id
on:
  Placed:
    start: true
    %s
    set: {z: =event, a: =event.lines, none: =event.nothing, sum: "=1 + 1", note: =event.note}
    do:
      - {effect: reserve, with: {order: =event, lines: =event.lines, none: =event.nothing, text: "${event.id}"}}
      - set: {sum: =state.sum, b: =state.z, a: code}
      - {effect: charge, with: {all: =state}}
`
	for _, data := range []string{
		rewritten, `{"id":"O1"}`, ` {"note" : null, "lines":[1.0,-0,1e3,"\u00e9\n"], "id" : "O1"} `, `{"id":"O1","lines":{"b":1,"a":2},"note":{"d":{"f":1,"e":2}}}`,
		`{"id":"O1","lines":{"b":1,"b":2},"note":3,"note":4}`,
	} {
		ev := placedWith(data)
		var made [2]edda.Transition
		for i, let := range []string{"", `when: "len(keys(event)) > 0"`} {
			set := setOf(t, "saga: one\nversion: 1"+strings.Replace(rest, "%s", let, 1))
			_, out := set.Apply(edda.Cell{}, set.Route(ev)[0], ev)
			if len(out) != 1 || out[0].Fate != edda.FateHandled {
				t.Fatalf("%s: %+v", data, out)
			}
			made[i] = out[0]
		}
		if got, want := made[0].Instance.State, made[1].Instance.State; string(got) != string(want) {
			t.Errorf("%s: the state is %s, not %s", data, got, want)
		}
		for i := range made[0].Work {
			if got, want := made[0].Work[i].Payload, made[1].Work[i].Payload; string(got) != string(want) {
				t.Errorf("%s: the payload is %s, not %s", data, got, want)
			}
		}
	}
}

// A member of the stored state or event is written as it is stored; what cannot be taken so is evaluated.
func TestAStoredMemberIsCopied(t *testing.T) {
	set := setOf(t, `
saga: one
version: 1
key: event.id
on:
  Placed:
    start: true
    set: {order: =event, text: "=event.note.text", none: null}
    do:
      - seq:
          - {effect: first, with: {id: =event.id}}
          - effect: second
            with: {lines: =event.lines, deep: =event.note.more, "n": =state.none, gone: =state.missing.more, t: =state.text, all: =state.order.note, len: "=len(event.lines)"}
`)
	ev := placedWith(` {"note":{"text":"a \"q\" \u2028<", "more":[1.50, 2e3]},"lines":[{"sku":"A", "n":1}],"id":"O1"}`)
	cell, made := set.Apply(edda.Cell{}, set.Route(ev)[0], ev)
	ok := edda.Event{Kind: edda.KindResult, ID: "e2", Tenant: "t", Key: cell.Key, CommandID: made[0].Work[0].ID, Outcome: edda.Succeeded, Time: testStart}
	_, made = set.Apply(cell, set.Route(ok)[0], ok)
	want := `{"all":{"more":[1.5,2000],"text":"a \"q\" \u2028<"},"deep":[1.5,2000],"gone":null,"len":1,"lines":[{"n":1,"sku":"A"}],"n":null,"t":"a \"q\" \u2028<"}`
	if len(made) != 1 || len(made[0].Work) != 1 || string(made[0].Work[0].Payload) != want {
		t.Fatalf("got %+v\nwant %s", made, want)
	}
}
