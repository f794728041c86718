package saga

import (
	"encoding/json"
	"fmt"
	"testing"

	"edda"
	"edda/manifests"
)

// TestAnEventRunsTheHandlerOfItsMostPreciseName, of those that the saga has; events: is found likewise.
func TestAnEventRunsTheHandlerOfItsMostPreciseName(t *testing.T) {
	names := []string{"com.shop.order.placed.v2", "com.shop.order.placed", "Order.placed", "placed"}
	for i := range names {
		text := "saga: s\nkey: event.id\nevents:\n"
		for _, name := range names[i:] {
			text += fmt.Sprintf("  %s: {version: 2, upcast: {1: {set: {by: %s}}}}\n", name, name)
		}
		text += "on:\n"
		for _, name := range names[i:] {
			text += fmt.Sprintf("  %s: {start: true, do: [{event: Heard, with: {by: =event.by}}]}\n", name)
		}
		set := setOf(t, text)
		ev := edda.Event{
			Kind: edda.KindEvent, ID: "e", Tenant: "t", Time: testStart, AggregateType: "Order", Type: "placed",
			FullType: "com.shop.order.placed.v2", Version: 1, Payload: json.RawMessage(`{"id":"K"}`),
		}
		_, trs := set.Apply(edda.Cell{}, set.Route(ev)[0], ev)
		if got := fmt.Sprint(trs[0].Handlers, string(trs[0].Outputs[0].With)); got != fmt.Sprintf(`[%s]{"by":"%s"}`, names[i], names[i]) {
			t.Errorf("of %q: %s", names[i:], got)
		}
	}
}

// TestAOneWordTypeWithAVersionIsNoMorePrecise than the event with its aggregate's type.
func TestAOneWordTypeWithAVersionIsNoMorePrecise(t *testing.T) {
	set := setOf(t, "saga: s\nkey: event.id\non:\n  Placed: {start: true}\n  Order.Placed: {start: true}\n")
	ev := edda.Event{Kind: edda.KindEvent, ID: "e", Tenant: "t", Time: testStart, AggregateType: "Order", Type: "Placed", FullType: "Placed.v2", Version: 2, Payload: json.RawMessage(`{"id":"K"}`)}
	_, trs := set.Apply(edda.Cell{}, set.Route(ev)[0], ev)
	if got := fmt.Sprint(trs[0].Handlers); got != "[Order.Placed]" {
		t.Error(got)
	}
}

// TestATestsFullTypeSaysItsVersion as on the wire, unless version: does.
func TestATestsFullTypeSaysItsVersion(t *testing.T) {
	for step, want := range map[string]string{"com.a.placed.v2": "2", "com.a.placed": "1", "com.a.placed, version: 2": "2", "A.placed": "1", "placed": "1"} {
		f, problems := manifests.Parse("m.yaml", []byte("saga: s\nkey: event.id\nevents: {placed: {version: 2}}\non:\n  placed: {start: true, do: [{event: Heard, with: {v: =meta.version}}]}\n"+
			"tests:\n  - name: n\n    steps: [{event: "+step+", data: {id: K}, expect: [{event: Heard, with: {v: "+want+"}}]}]\n"))
		if problems.Failed() {
			t.Fatal(problems)
		}
		if results, _ := RunTests(f.Sagas[0], Options{}); len(results) != 1 || !results[0].Passed {
			t.Errorf("%s: %+v", step, results)
		}
	}
}

func TestAFullTypeMayBeginWithAReservedWord(t *testing.T) {
	setOf(t, "saga: s\nkey: event.id\non:\n  timer.device.fired: {start: true}\n  saga.device.ok: {start: true}\n")
}

func TestAnAandBTakesTheMostPreciseName(t *testing.T) {
	set := setOf(t, "saga: s\nkey: event.id\non:\n  done & com.b.done: {start: true, do: [{event: Both}]}\n")
	var cell edda.Cell
	n := 0
	for _, full := range []string{"com.a.done", "com.b.done"} {
		ev := edda.NamedEvent(full)
		ev.ID, ev.Tenant, ev.Time, ev.Payload = full, "t", testStart, json.RawMessage(`{"id":"K"}`)
		var trs []edda.Transition
		cell, trs = set.Apply(cell, set.Route(ev)[0], ev)
		n += len(trs[0].Outputs)
	}
	if n != 1 {
		t.Errorf("%d outputs", n)
	}
}

func TestAnAandBTakesFullTypes(t *testing.T) {
	set := setOf(t, "saga: s\nkey: event.id\non:\n  com.a.first & com.b.second: {start: true, do: [{event: Both}]}\n")
	var cell edda.Cell
	var outputs []edda.Output
	for _, full := range []string{"com.a.first", "com.b.second"} {
		ev := edda.NamedEvent(full)
		ev.ID, ev.Tenant, ev.Time, ev.Payload = full, "t", testStart, json.RawMessage(`{"id":"K"}`)
		targets := set.Route(ev)
		if len(targets) != 1 {
			t.Fatalf("%s goes to %v", full, targets)
		}
		var trs []edda.Transition
		cell, trs = set.Apply(cell, targets[0], ev)
		outputs = append(outputs, trs[0].Outputs...)
	}
	if len(outputs) != 1 || outputs[0].Name != "Both" {
		t.Errorf("%+v", outputs)
	}
}

func TestUnheardSuggestsATriggerThatIsSimilar(t *testing.T) {
	set := setOf(t, "saga: trip\nkey: event.id\non:\n  Booked: {start: true}\n  Trip.TripCancelled: {}\n  com.shop.order.placed: {}\n  A.First & A.Second: {}\n  signal.hurry: {}\n  X: {}\n")
	for name, want := range map[string]string{
		"Trip.TripCanceled": "Trip.TripCancelled", "Trip.Boked": "Booked", "com.shop.order.place": "com.shop.order.placed", "A.Frist": "A.First", "Invoice.Sent": "",
	} {
		if near, suspicious := set.Unheard(edda.NamedEvent(name)); near != want || !suspicious {
			t.Errorf("%s: %q %t", name, near, suspicious)
		}
	}
	if near, suspicious := set.Unheard(edda.Event{Kind: edda.KindEvent, AggregateType: "trip", Type: "placd", FullType: "com.shop.order.placd"}); near != "com.shop.order.placed" || !suspicious {
		t.Errorf("a CloudEvent of an aggregate with a saga's name: %q %t", near, suspicious)
	}
	if _, suspicious := set.Unheard(edda.NamedEvent("trip.Done")); suspicious {
		t.Error("a saga's own fact may be for others")
	}
}
