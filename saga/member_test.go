package saga

import (
	"encoding/json"
	"strings"
	"testing"

	"edda"
)

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
