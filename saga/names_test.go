package saga

import (
	"encoding/json"
	"fmt"
	"testing"

	"edda"
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
	set := setOf(t, "saga: trip\nkey: event.id\non:\n  Booked: {start: true}\n  Trip.TripCancelled: {}\n  com.shop.order.placed: {}\n  A.First & A.Second: {}\n  signal.hurry: {}\n")
	for name, want := range map[string]string{
		"Trip.TripCanceled": "Trip.TripCancelled", "Trip.Boked": "Booked", "com.shop.order.place": "com.shop.order.placed", "A.Frist": "A.First", "Invoice.Sent": "",
	} {
		if near, suspicious := set.Unheard(edda.NamedEvent(name)); near != want || !suspicious {
			t.Errorf("%s: %q %t", name, near, suspicious)
		}
	}
	if _, suspicious := set.Unheard(edda.NamedEvent("trip.Done")); suspicious {
		t.Error("a saga's own fact may be for others")
	}
}
