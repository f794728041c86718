package saga

import (
	"encoding/json"
	"testing"
	"time"

	"edda"
)

// A late timer sends a command whose result came before it. The result is needed when it comes
// again.
func TestALateResultIsAppliedOnceItsCommandIsSent(t *testing.T) {
	set := setOf(t, "saga: s\nversion: 1\nkey: event.id\non:\n  Go: {start: true, do: [{timer: t, after: 1h}]}\n  timer.t: {do: [{effect: charge}]}\n  charge.ok: {do: [{done: }]}\n")
	start := edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "t", Type: "Go", Time: testStart, Payload: json.RawMessage(`{"id":"K"}`)}
	began, _ := set.Apply(edda.Cell{}, one(t, set, start), start)
	due := testStart.Add(time.Hour)
	_, fired := set.Wake(began, began.Instance.Armed, due)
	charge := fired[0].Work[0]
	if sent := CommandTime(charge.ID); !sent.Equal(due) {
		t.Errorf("the command says that it was sent at %v", sent)
	}
	result := edda.Event{
		Kind: edda.KindResult, ID: "r1", Tenant: "t", Key: charge.From, Outcome: edda.Succeeded, Time: due.Add(time.Second),
		Step: charge.Step, CommandID: charge.ID, Payload: json.RawMessage(`{}`),
	}
	early, trs := set.Apply(began, one(t, set, result), result)
	if trs[0].Fate != edda.FateLate {
		t.Fatalf("before its command the result is %s", trs[0].Fate)
	}
	sent, _ := set.Wake(early, early.Instance.Armed, due)
	for i, want := range []edda.Fate{edda.FateHandled, edda.FateDuplicate} {
		var trs []edda.Transition
		if sent, trs = set.Apply(sent, one(t, set, result), result); trs[0].Fate != want {
			t.Errorf("time %d after its command the result is %s, not %s", i+1, trs[0].Fate, want)
		}
	}
	if sent.Instance.Status != edda.StatusDone {
		t.Errorf("the saga is %s", sent.Instance.Status)
	}
}

func TestAForeignIDHasNoTime(t *testing.T) {
	for _, id := range []string{"", "x", "0b3c5a1e-0000-4000-8000-000000000000", "01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
		if at := CommandTime(id); !at.IsZero() {
			t.Errorf("%q: %v", id, at)
		}
	}
}
