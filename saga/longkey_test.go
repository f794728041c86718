package saga

import (
	"encoding/json"
	"strings"
	"testing"

	"edda"
)

// TestAKeyBeyondItsLimitStartsNothing: such a key starts no instance and parks no event.
// An instance that exists continues.
func TestAKeyBeyondItsLimitStartsNothing(t *testing.T) {
	const text = "saga: s\nkey: event.id\non:\n  Go: {start: true}\n  More: {set: {n: 1}}\n  signal.go: {start: true}\n"
	longest, long := strings.Repeat("é", edda.MaxKey/2), strings.Repeat("é", edda.MaxKey/2)+"x"
	id := func(key string) string { return `{"id":"` + key + `"}` }
	l := limited(t, text, Options{})
	l.want(l.event("Go", id(longest)), "")
	if l.cell.Instance == nil {
		t.Fatal("the longest key starts nothing")
	}
	for name, event := range map[string]string{"a start": "Go", "what would be parked": "More"} {
		l := limited(t, text, Options{})
		trs := l.event(event, id(long))
		d := trs[0].Dead
		if l.cell.Instance != nil || len(l.cell.Parked) > 0 || d == nil || d.Reason != edda.DeadNoKey || d.Key.Correlation != "" || !strings.Contains(d.Error, "the key has 2049 bytes, more than 2048") {
			t.Errorf("%s: %+v", name, trs)
		}
		again := limited(t, text, Options{})
		if twice := again.event(event, id(long))[0].Dead; twice.ID != d.ID {
			t.Errorf("%s: the dead letters of one event are %s and %s", name, d.ID, twice.ID)
		}
	}
	k := edda.Key{Tenant: "t", Saga: "s", Correlation: long}
	apply := func(cell edda.Cell, ev edda.Event) (edda.Cell, edda.Transition) {
		ev.ID, ev.Tenant, ev.Key, ev.Time = "e1", "t", k, testStart
		cell, trs := l.set.Apply(cell, l.set.Route(ev)[0], ev)
		return cell, trs[0]
	}
	if cell, tr := apply(edda.Cell{}, edda.Event{Kind: edda.KindSignal, Type: "go"}); cell.Instance != nil || tr.Dead == nil || tr.Dead.Reason != edda.DeadNoKey {
		t.Errorf("a signal that starts: %+v", tr)
	}
	child := edda.Event{Kind: edda.KindStart, Type: "Go", CommandID: "c1", Parent: edda.Key{Tenant: "t", Saga: "p", Correlation: "P"}, Payload: json.RawMessage(`{}`)}
	if cell, tr := apply(edda.Cell{}, child); cell.Instance != nil || len(tr.Work) != 1 || tr.Work[0].Outcome != edda.Failed || !strings.Contains(string(tr.Work[0].Payload), `"no-key"`) {
		t.Errorf("a child: %+v", tr)
	}
	old := edda.Cell{Key: k, Instance: &edda.Instance{Key: k, Version: 1, Hash: l.set.Newest("s").Hash(), Status: edda.StatusRunning, State: json.RawMessage(`{}`)}}
	if cell, tr := apply(old, edda.Event{Kind: edda.KindEvent, Type: "More", Payload: json.RawMessage(id(long))}); tr.Dead != nil || string(cell.Instance.State) != `{"n":1}` {
		t.Errorf("an existing instance: %+v, %s", tr, cell.Instance.State)
	}
}
