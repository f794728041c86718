package saga

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"edda"
)

// TestNoMemberIsUndoneTwice: however often and early an event chooses a member, at most one undo runs
// for each success, and .undone follows only an undo that ran.
func TestNoMemberIsUndoneTwice(t *testing.T) {
	const text = "saga: s\nkey: event.id\nstate: {back: 0}\non:\n" +
		"  Go: {start: true, do: [{each: event.items, id: g, do: [{effect: ship, undo: {effect: recall, with: {}}}]}]}\n" +
		"  Lost: {on_poison: skip, do: [{undo: 'g[${event.index}]'}]}\n" +
		"  g.undone: {set: {back: =state.back + 1}}\n  g.failed: {}\n"
	rapid.Check(t, func(t *rapid.T) {
		set, err := NewSet(compiledIn(t, text))
		if err != nil {
			t.Fatal(err)
		}
		const members = 3
		count, sent, undone := 0, map[string]int{}, 0
		var cell edda.Cell
		give := func(ev edda.Event) {
			count++
			ev.ID, ev.Tenant, ev.Time = fmt.Sprint("e", count), "t", testStart
			if ev.Kind != edda.KindEvent {
				ev.Key = cell.Key
			}
			var trs []edda.Transition
			cell, trs = set.Apply(cell, set.Route(ev)[0], ev)
			for _, tr := range trs {
				for _, o := range tr.Outputs {
					if o.Word == "effect" && o.Undoes != "" {
						sent[o.Undoes]++
					}
				}
			}
		}
		give(edda.Event{Kind: edda.KindEvent, Type: "Go", Payload: json.RawMessage(`{"id":"K","items":[1,2,3]}`)})
		done, asked := map[string]bool{}, map[string]bool{}
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			i := rapid.IntRange(-1, members).Draw(t, "index")
			step := fmt.Sprintf("g[%d]", i)
			s := memberOf(cell, step)
			if rapid.Bool().Draw(t, "it is lost") {
				give(edda.Event{Kind: edda.KindEvent, Type: "Lost", Payload: json.RawMessage(fmt.Sprintf(`{"id":"K","index":%d}`, i))})
				asked[step] = asked[step] || done[step]
				continue
			}
			if s == nil {
				continue
			}
			o := rapid.SampledFrom([]edda.Outcome{edda.Succeeded, edda.Failed, edda.TimedOut}).Draw(t, "outcome")
			switch {
			case s.Status == edda.StepPending:
				give(edda.Event{Kind: edda.KindResult, Step: step, CommandID: s.Command, Outcome: o, Payload: json.RawMessage(`{}`)})
				done[step] = o != edda.Failed
			case len(cell.Instance.Undos) > 0:
				u := cell.Instance.Undos[0]
				give(edda.Event{Kind: edda.KindResult, Step: u.Step, CommandID: u.Command, Outcome: edda.Succeeded, Payload: json.RawMessage(`{}`)})
				undone++
			}
		}
		for i := range members {
			step, want := fmt.Sprintf("g[%d]", i), 0
			if asked[step] {
				want = 1
			}
			if sent[step] != want {
				t.Fatalf("%s was undone %d times, want %d", step, sent[step], want)
			}
		}
		if got, want := string(cell.Instance.State), fmt.Sprintf(`{"back":%d}`, undone); got != want {
			t.Fatalf("the state is %s, want %s", got, want)
		}
	})
}

func memberOf(cell edda.Cell, id string) *edda.Step {
	for i := range cell.Instance.Steps {
		if cell.Instance.Steps[i].ID == id {
			return &cell.Instance.Steps[i]
		}
	}
	return nil
}
