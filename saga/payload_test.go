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

const keeping = `saga: kept
version: 1
key: meta.aggregate.id
on:
  Go:
    start: true
    do: [{seq: [{effect: first, with: {}}, {effect: second, with: {all: =event}}]}]
`

// The stored trigger of a seq is what decoding and encoding it would give, in any form of the
// JSON. It is the same after it was decoded.
func TestASeqStoresItsTriggerInCanonicalForm(t *testing.T) {
	set := setOf(t, keeping)
	for _, payload := range []string{
		`{"b":1,"a":"x"}`, `{ "b" : 1.0, "a" : "é\n" }`, `{"n":-0,"m":1e2,"deep":{"z":[1,{"y":2,"x":null}]}}`, `{}`, `{"a":1,"a":2}`,
		`"text"`, `[1, 2]`, `{"u":"\ud83d\ude00","s":"<&>"}`, `null`, `{"long":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		ev := edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "t", Type: "Go", AggregateType: "A", AggregateID: "K", Time: testStart, Payload: json.RawMessage(payload)}
		value, err := jsonvalue.Decode(ev.Payload)
		if err != nil {
			t.Fatal(err)
		}
		want, err := jsonvalue.Encode(value)
		if err != nil {
			t.Fatal(err)
		}
		for _, first := range []bool{false, true} {
			to := one(t, set, ev)
			if to.payload = (&decoded{raw: ev.Payload}); first {
				_, _ = to.payload.value()
			}
			cell, trs := set.Apply(edda.Cell{}, to, ev)
			if len(trs) != 1 || trs[0].Fate != edda.FateHandled || len(cell.Instance.Threads) != 1 {
				t.Fatalf("%s: %+v", payload, trs)
			}
			if got := cell.Instance.Threads[0].Scope.Event; string(got) != string(want) {
				t.Errorf("%s is kept as %s, not %s", payload, got, want)
			}
		}
	}
}

// members reads members of one event, and some that do not exist.
const members = `
saga: one
version: 1
key: event.id
on:
  Placed:
    start: true
    set: {a: =event.a, deep: =event.b.c, list: =event.list, none: =event.none.at.all, again: =event.a, all: =event}
    do:
      - seq:
          - {effect: reserve, with: {a: =event.a, none: =event.none}}
          - {effect: charge, with: {a: =event.a, deep: =event.b.c, state: =state.deep, list: "=event.list[1]"}, undo: {effect: refund, with: {a: =event.a, deep: =event.b.c}}}
`

// The values that an expression sees do not depend on how much of the event is decoded.
func TestAMemberIsTheSameAsInTheWholeEvent(t *testing.T) {
	const data = `{"id":"O1","a":1,"b":{"c":"x"},"list":[1,{"z":2}],"a":7}`
	set := setOf(t, members)
	ev := placedWith(data)
	cell, made := set.Apply(edda.Cell{}, set.Route(ev)[0], ev)
	if len(made) != 1 || made[0].Fate != edda.FateHandled {
		t.Fatalf("%+v", made)
	}
	const want = `{"a":7,"again":7,"all":{"a":7,"b":{"c":"x"},"id":"O1","list":[1,{"z":2}]},"deep":"x","list":[1,{"z":2}],"none":null}`
	if string(cell.Instance.State) != want {
		t.Errorf("%s, not\n%s", cell.Instance.State, want)
	}
	ok := edda.Event{Kind: edda.KindResult, ID: "r1", Tenant: "t", Key: cell.Key, Time: testStart, CommandID: made[0].Work[0].ID, Outcome: edda.Succeeded}
	_, made = set.Apply(cell, set.Route(ok)[0], ok)
	if len(made) != 1 || len(made[0].Work) != 1 || string(made[0].Work[0].Payload) != `{"a":7,"deep":"x","list":{"z":2},"state":"x"}` {
		t.Errorf("%+v", made)
	}
}

// An event that cannot be decoded is poison, also if the requested member could be found.
func TestAMemberOfAnInvalidEventIsPoison(t *testing.T) {
	set := setOf(t, "saga: one\nversion: 1\nkey: meta.correlation_id\non: {Placed: {start: true, set: {a: =event.a}}}")
	ev := placedWith(`{"a":1,"n":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`)
	ev.Correlation = "K"
	_, made := set.Apply(edda.Cell{}, set.Route(ev)[0], ev)
	if len(made) != 1 || made[0].Dead == nil || !strings.Contains(made[0].Dead.Error, "nested deeper than 128") {
		t.Errorf("%+v", made)
	}
}

// An object that is written directly equals the encoded map.
func TestAnObjectIsEncodedLikeItsMap(t *testing.T) {
	set := setOf(t, `
saga: one
version: 1
key: event.id
on:
  Placed:
    start: true
    set:
      same: {z: =event.a, "a\"<": [1, =event.b], deep: {y: 1, x: =event.none, t: "n ${event.a}"}, f: =event.a / 2.0, e: {}, a1: 1, a2: 1, a3: 1, a4: 1, a5: 1, a6: 1}
    do:
      - effect: reserve
        with: {z: =event.a, "a\"<": [1, =event.b], deep: {y: 1, x: =event.none, t: "n ${event.a}"}, f: =event.a / 2.0, e: {}, a1: 1, a2: 1, a3: 1, a4: 1, a5: 1, a6: 1}
`)
	ev := placedWith(`{"id":"O1","a":3,"b":{"c":"ü \n"}}`)
	cell, made := set.Apply(edda.Cell{}, set.Route(ev)[0], ev)
	if len(made) != 1 || len(made[0].Work) != 1 {
		t.Fatalf("%+v", made)
	}
	if got, want := string(made[0].Work[0].Payload), string(cell.Instance.State); `{"same":`+got+`}` != want {
		t.Errorf("%s, and as a map\n%s", got, want)
	}
}

// TestTransitionsShareNothing applies events one after the other; none shows in another's transition.
func TestTransitionsShareNothing(t *testing.T) {
	set := setOf(t, members)
	give := func(id string) []edda.Transition {
		ev := placedWith(`{"id":"` + id + `","a":"` + id + `","b":{"c":"x"},"list":[1,{"z":2}]}`)
		_, made := set.Apply(edda.Cell{}, set.Route(ev)[0], ev)
		return made
	}
	first := give("one")
	before, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		give("another")
	}
	if after, _ := json.Marshal(first); string(after) != string(before) {
		t.Errorf("%s became\n%s", before, after)
	}
	if again, _ := json.Marshal(give("one")); string(again) != string(before) {
		t.Errorf("%s, the second time\n%s", before, again)
	}
}
