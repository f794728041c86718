package saga

import (
	"encoding/json"
	"testing"
	"time"

	"edda"
	"edda/manifests"
)

// TestAnExpressionIsEvaluatedOverAnInstance has every name that a handler has.
func TestAnExpressionIsEvaluatedOverAnInstance(t *testing.T) {
	t.Parallel()
	m := parsedManifest(t, "a.yaml", []byte("saga: order\nkey: event.id\nconfig: {fee: 2}\non: {Placed: {start: true, do: [{done: }]}}\n")).Sagas[0]
	ev := edda.NamedEvent("Order.Placed")
	ev.Payload, ev.Time = json.RawMessage(`{"id":"O1"}`), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := Surroundings{
		Saga: m, Event: ev, Vars: map[string]json.RawMessage{"it": json.RawMessage(`{"sku":"a"}`)},
		Instance: &edda.Instance{
			Key: edda.Key{Tenant: "default", Saga: "order", Correlation: "O1"}, Status: edda.StatusRunning, Version: 1, Generation: 1,
			State: json.RawMessage(`{"n":1}`), Seen: map[string]json.RawMessage{"Order.Paid": json.RawMessage(`{"x":7}`)},
			Steps: []edda.Step{{ID: "ship", Status: edda.StepOK, Attempt: 1, Result: json.RawMessage(`{"tracking":"Z9"}`)}},
		},
	}
	for source, want := range map[string]string{
		"state.n + config.fee": "3", "=event.id": `"O1"`, "  = key": `"O1"`, "step.ship.result.tracking": `"Z9"`, "step.ship.status": `"ok"`,
		"seen.Paid.x": "7", "saga.status": `"running"`, "now": `"2026-01-02T03:04:05.000Z"`, "meta.aggregate.type": `"Order"`, "it.sku": `"a"`,
		"state.nothing": "null",
	} {
		got, problems := s.Evaluate(source)
		if string(got) != want || len(problems) > 0 {
			t.Errorf("%s: %s %v, want %s", source, got, problems, want)
		}
	}
	for source, want := range map[string]manifests.Pos{"=evnt.id": {Line: 1, Column: 2}, "state.n +\n  nope": {Line: 2, Column: 3}, "": {Line: 1, Column: 1}, `uuid("x")`: {Line: 1, Column: 1}} {
		if got, problems := s.Evaluate(source); len(problems) != 1 || problems[0].Pos != want {
			t.Errorf("%q: %s %v, want %v", source, got, problems, want)
		}
	}
	for _, n := range s.Names() {
		if raw := s.Value(n[0]); len(raw) == 0 || string(raw) == "null" {
			t.Errorf("%s has no value", n[0])
		}
	}
}
