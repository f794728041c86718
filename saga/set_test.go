package saga

import (
	"fmt"
	"testing"

	"edda"
)

// versionOf is a saga of one version that a schedule and an event start.
func versionOf(t *testing.T, n int) *Program {
	return compiled(t, fmt.Sprintf(`
saga: order
version: %d
key: meta.correlation_id
schedule: {nightly: {cron: "0 2 * * *"}}
on:
  Placed: {start: true}
  Paid: {set: {paid: true}}
  schedule.nightly: {start: true}
`, n), Options{})
}

func setWith(t *testing.T, given, kept []*Program) *Set {
	t.Helper()
	s, err := NewSet(given...)
	if err == nil {
		s, err = s.Keep(kept...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (l *line) placed() []edda.Transition {
	return l.give(edda.Event{Kind: edda.KindEvent, Type: "Placed", Correlation: "K"})
}

// TestNoInstanceStartsOnAVersionThatWasRolledBack as long as one of
// them was unfinished.
func TestNoInstanceStartsOnAVersionThatWasRolledBack(t *testing.T) {
	old := newLine(t, setWith(t, []*Program{versionOf(t, 3)}, nil), "order")
	old.placed()
	set := setWith(t, []*Program{versionOf(t, 2)}, []*Program{versionOf(t, 3)})
	l := newLine(t, set, "order")
	l.placed()
	if got := l.cell.Instance; got == nil || got.Version != 2 {
		t.Errorf("the instance is %+v, want one of version 2", got)
	}
	old.set = set
	if out := old.give(edda.Event{Kind: edda.KindEvent, Type: "Paid", Correlation: "K"}); out[0].Fate != edda.FateHandled {
		t.Errorf("an instance of the kept version: %s", out[0].Fate)
	}
}

// TestNoInstanceStartsOfARemovedSaga as long as one instance was unfinished.
func TestNoInstanceStartsOfARemovedSaga(t *testing.T) {
	set := setWith(t, nil, []*Program{versionOf(t, 1)})
	l := newLine(t, set, "order")
	for _, out := range [][]edda.Transition{l.placed(), l.give(edda.Event{Kind: edda.KindEvent, Type: "Paid", Correlation: "K"})} {
		if out[0].Fate != edda.FateIgnored || l.cell.Instance != nil {
			t.Errorf("fate %s, instance %+v", out[0].Fate, l.cell.Instance)
		}
	}
	if specs := set.Schedules(); len(specs) > 0 {
		t.Errorf("schedules %+v", specs)
	}
	if set.Newest("order") == nil {
		t.Error("its unfinished instances have no version")
	}
}
