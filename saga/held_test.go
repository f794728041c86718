package saga

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"edda"
)

// TestAHoldLeavesTheNowOfTheInstance unchanged: a redriven event is applied as of its own
// time, however long it was held, and so are the events behind it.
func TestAHoldLeavesTheNowOfTheInstance(t *testing.T) {
	l := limited(t, `saga: s
key: event.id
on:
  Go: {start: true}
  Count: {set: {n: "=event.n + 1"}, do: [{timer: t, after: 1h}]}
  More: {do: [{timer: u, after: 1h}]}
  timer.t: {}
  timer.u: {}
`, Options{})
	l.event("Go", `{"id":"K"}`)
	began := l.cell.Instance.Updated
	l.now = l.now.Add(time.Minute)
	poison := l.now
	l.event("Count", `{"id":"K"}`)
	l.now = l.now.Add(time.Minute)
	behind := l.now
	l.event("More", `{"id":"K"}`)
	if in := l.cell.Instance; !in.Updated.Equal(began) || in.Held == "" {
		t.Errorf("updated %v, want it at %v; held by %q", in.Updated, began, in.Held)
	}
	if why := strings.Join(Why(l.cell), ""); !strings.Contains(why, "holds it since "+edda.FormatTime(poison)+", 1 events behind it") {
		t.Errorf("it waits for %s", why)
	}
	l.now = l.now.Add(time.Hour)
	data, err := json.Marshal(edda.Redrive{DeadLetter: l.cell.Held[0].DeadLetter, Data: json.RawMessage(`{"id":"K","n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	l.give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, Payload: data})
	in := l.cell.Instance
	if in.Held != "" || !in.Updated.Equal(behind) || len(in.Timers) != 2 || !in.Timers[0].Due.Equal(poison.Add(time.Hour)) || !in.Timers[1].Due.Equal(behind.Add(time.Hour)) {
		t.Errorf("held %q, updated %v, timers %+v", in.Held, in.Updated, in.Timers)
	}
}
