package saga

import (
	"encoding/json"
	"testing"
	"time"

	"edda"
)

const refunded = `saga: paid
version: 1
key: event.id
on:
  Go: {start: true, do: [{effect: charge, with: {}, undo: {effect: refund, with: {}}}]}
  charge.ok: {do: [{timer: grace, after: 1h}]}
  Broken: {do: [{fail: broken}]}
  Lost: {do: [{fail: lost}]}
`

// A refund is the same command with the same idempotency key for any cause and at any time.
func TestAnUndosIDDoesNotDependOnItsCause(t *testing.T) {
	set := setOf(t, refunded)
	payload := json.RawMessage(`{"id":"K"}`)
	event := func(id, kind string, after time.Duration) edda.Event {
		return edda.Event{Kind: edda.KindEvent, ID: id, Tenant: "t", Type: kind, Time: testStart.Add(after), Payload: payload}
	}
	start := event("e1", "Go", 0)
	began, trs := set.Apply(edda.Cell{}, one(t, set, start), start)
	charge := trs[0].Work[0]
	paid := edda.Event{
		Kind: edda.KindResult, ID: "r1", Tenant: "t", Key: charge.From, Outcome: edda.Succeeded, Time: testStart.Add(time.Second),
		Step: charge.Step, CommandID: charge.ID, Payload: json.RawMessage(`{}`),
	}
	charged, _ := set.Apply(began, one(t, set, paid), paid)
	refund := func(ev edda.Event) edda.Work {
		_, trs := set.Apply(charged, one(t, set, ev), ev)
		for _, tr := range trs {
			for _, w := range tr.Work {
				if w.Name == "refund" {
					return w
				}
			}
		}
		t.Fatalf("%s sent no refund", ev.Type)
		return edda.Work{}
	}
	one, other := refund(event("e2", "Broken", time.Minute)), refund(event("e3", "Lost", time.Hour))
	if one.ID != other.ID || one.IdempotencyKey != other.IdempotencyKey || one.ID == charge.ID {
		t.Errorf("%s and %s of %s", one.ID, other.ID, charge.ID)
	}
}

func TestTheTimeOfAnID(t *testing.T) {
	at := testStart.Add(1234 * time.Millisecond)
	if got := timeOf(deriveID(at, "x")); !got.Equal(at) {
		t.Errorf("%v, want %v", got, at)
	}
	for _, id := range []string{"", "x", "not-an-id-of-ours", "0123456", "é-éééééééééé"} {
		if got := timeOf(id); got.UnixMilli() != 0 {
			t.Errorf("%q: %v", id, got)
		}
	}
}
