package saga

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"edda"
)

// TestOptionalStepsNeverEndTheSaga: whatever becomes of the optional steps of a seq, the seq reaches
// its end. Then the undo runs for those that may have been done, newest first, and for no other.
func TestOptionalStepsNeverEndTheSaga(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "steps")
		var text strings.Builder
		text.WriteString("saga: s\nkey: event.id\non:\n  Go:\n    start: true\n    do:\n      - seq:\n")
		for i := range n {
			fmt.Fprintf(&text, "          - {effect: s%d, optional: true, due: 1h, undo: {effect: u%d, with: {}}}\n", i, i)
		}
		text.WriteString("          - {fail: end}\n")
		for i := range n {
			if rapid.Bool().Draw(t, "a handler") {
				fmt.Fprintf(&text, "  s%d.failed | s%d.timeout: {set: {seen: %d}}\n", i, i, i)
			}
		}
		set, err := NewSet(compiledIn(t, text.String()))
		if err != nil {
			t.Fatal(err)
		}
		now, count := testStart, 0
		var cell edda.Cell
		give := func(ev edda.Event) {
			count++
			ev.ID, ev.Tenant, ev.Time = fmt.Sprint("e", count), "t", now
			if ev.Kind != edda.KindEvent {
				ev.Key = cell.Key
			}
			cell, _ = set.Apply(cell, set.Route(ev)[0], ev)
		}
		result := func(step string, o edda.Outcome) {
			give(edda.Event{Kind: edda.KindResult, Step: step, CommandID: commandOf(cell.Instance, step), Outcome: o, Payload: json.RawMessage(`{}`)})
		}
		give(edda.Event{Kind: edda.KindEvent, Type: "Go", Payload: json.RawMessage(`{"id":"K"}`)})
		var undo []string
		for i := range n {
			step := fmt.Sprint("s", i)
			if in := cell.Instance; in.Status != edda.StatusRunning || len(in.Incidents) > 0 || in.Steps[len(in.Steps)-1].ID != step {
				t.Fatalf("before %s it is %+v", step, in)
			}
			switch outcome := rapid.SampledFrom([]string{"ok", "failed", "timeout", "due"}).Draw(t, "outcome"); outcome {
			case "ok":
				result(step, edda.Succeeded)
			case "failed":
				result(step, edda.Failed)
				continue
			case "timeout":
				result(step, edda.TimedOut)
			case "due":
				now = now.Add(time.Hour)
				cell, _ = set.Wake(cell, cell.Instance.Armed, now)
			}
			undo = append(undo, step)
		}
		for _, step := range slices.Backward(undo) {
			if len(cell.Instance.Undos) != 1 || cell.Instance.Undos[0].Frame.Step != step {
				t.Fatalf("undoes %+v, want %s", cell.Instance.Undos, step)
			}
			result(step+".undo", edda.Succeeded)
		}
		want := edda.StatusUndone
		if len(undo) == 0 {
			want = edda.StatusFailed
		}
		if in := cell.Instance; in.Status != want || in.Reason != "end" {
			t.Fatalf("it is %s for %s, want %s", in.Status, in.Reason, want)
		}
	})
}
