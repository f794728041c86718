package saga

import (
	"testing"

	"edda"
)

const childText = `
saga: child
version: 1
key: meta.correlation_id
on:
  Begun: {start: true}
  Noted: {set: {n: 1}}
`

func startedChild(t *testing.T) *line {
	l := limited(t, childText, Options{})
	l.give(edda.Event{Kind: edda.KindStart, CommandID: "start-1", Parent: edda.Key{Tenant: "t", Saga: "parent", Correlation: "P"}})
	if l.cell.Instance == nil {
		t.Fatal("the child did not start")
	}
	return l
}

// TestAParentCannotCancelAnInstanceThatItDidNotStart: a parent that fails before
// it hears that the key is in use sends a cancel after its refused start.
func TestAParentCannotCancelAnInstanceThatItDidNotStart(t *testing.T) {
	l := startedChild(t)
	l.give(edda.Event{Kind: edda.KindStart, CommandID: "start-2", Parent: edda.Key{Tenant: "t", Saga: "parent", Correlation: "Q"}})
	out := l.give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbCancel, CommandID: "start-2", By: "parent"})
	if got := l.cell.Instance.Status; got != edda.StatusRunning || out[0].Fate != edda.FateLate {
		t.Errorf("a stranger's cancel left the child %s, fate %s", got, out[0].Fate)
	}
	l.give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbCancel, CommandID: "start-1", By: "parent"})
	if got := l.cell.Instance.Status; !got.Finished() {
		t.Errorf("its own parent's cancel left the child %s", got)
	}
}

// TestAStartSentAgainMuchLaterIsADuplicate: the relay died after sending and before recording
// it, and the child has forgotten the message's id meanwhile.
func TestAStartSentAgainMuchLaterIsADuplicate(t *testing.T) {
	l := startedChild(t)
	for range recentIDs + 1 {
		l.give(edda.Event{Kind: edda.KindEvent, Type: "Noted", Correlation: "K"})
	}
	out := l.give(edda.Event{Kind: edda.KindStart, CommandID: "start-1", Parent: edda.Key{Tenant: "t", Saga: "parent", Correlation: "P"}})
	if out[0].Fate != edda.FateDuplicate || len(out[0].Work) > 0 {
		t.Errorf("fate %s with %d pieces of work, want a duplicate without", out[0].Fate, len(out[0].Work))
	}
}
