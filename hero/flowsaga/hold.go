package flowsaga

import (
	"slices"

	"edda"
)

// holds tells whether the verb is about the event at which a flow's step broke:
// the engine keeps that one in the cell. A flow goes on meanwhile.
func holds(ev edda.Event) bool {
	return ev.Kind == edda.KindOperator && (ev.Type == edda.VerbRedrive || ev.Type == edda.VerbDrop)
}

// release takes what is held off the flow; redrive applies it again.
func (a *application) release(ev edda.Event) {
	held := a.cell.Held
	if len(held) == 0 {
		a.settle(ev, edda.FateLate, "refused", "nothing is held")
		return
	}
	tr := edda.Transition{Event: ev, Fate: edda.FateHandled, Handlers: []string{ev.Type}}
	for _, e := range held {
		tr.Release = append(tr.Release, e.N)
		if e.DeadLetter != "" {
			tr.Resolved = append(tr.Resolved, e.DeadLetter)
		}
	}
	a.cell.Held = nil
	if in := a.cell.Instance; in != nil {
		tr.Instance = copyOf(in, ev.Time)
		tr.Instance.Held = ""
		tr.Instance.Revision++
		tr.Instance.Recent = append(slices.Clone(in.Recent), ev.ID)
	}
	a.add(tr)
	if ev.Type == edda.VerbDrop {
		return
	}
	for _, e := range held {
		e.Event.Redriven = true
		a.apply(e.Event)
	}
}
