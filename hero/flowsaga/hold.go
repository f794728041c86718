package flowsaga

import (
	"encoding/json"
	"slices"

	"edda"
)

// holds reports whether an operator's verb is about a held event: one at which a flow's step
// failed, which the engine keeps in the cell. The flow goes on meanwhile.
func holds(ev edda.Event) bool {
	return ev.Kind == edda.KindOperator && (ev.Type == edda.VerbRedrive || ev.Type == edda.VerbDrop || ev.Type == edda.VerbSkip && ev.Step == "")
}

// release drops the held events of the flow. The verb redrive applies them again.
func (a *application) release(ev edda.Event) {
	held, want := a.cell.Held, redriveOf(ev)
	if want.DeadLetter != "" && !slices.ContainsFunc(held, func(e edda.Entry) bool { return e.DeadLetter == want.DeadLetter }) {
		a.redrive(ev, want)
		return
	}
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
	if tr.Instance = a.revised(ev); tr.Instance != nil {
		tr.Instance.Held = ""
	}
	a.add(tr)
	if ev.Type != edda.VerbRedrive {
		return
	}
	for _, e := range held {
		a.apply(again(e.Event, want, e.DeadLetter))
	}
}

// revised returns the instance's next revision, which records the event; nil without one.
func (a *application) revised(ev edda.Event) *edda.Instance {
	in := a.cell.Instance
	if in == nil {
		return nil
	}
	next := copyOf(in, ev.Time)
	next.Revision++
	next.Recent = append(slices.Clone(in.Recent), ev.ID)
	return next
}

func redriveOf(ev edda.Event) (r edda.Redrive) {
	if len(ev.Payload) > 0 {
		_ = json.Unmarshal(ev.Payload, &r) // an unreadable payload names no dead letter
	}
	return r
}

// again returns a held or dead event for its next application. The operator's data replace
// the payload of the dead letter that the redrive names.
func again(ev edda.Event, want edda.Redrive, deadLetter string) edda.Event {
	ev.Redriven = true
	ev.Redrives++
	if len(want.Data) > 0 && deadLetter == want.DeadLetter {
		ev.Payload = want.Data
	}
	return ev
}

// redrive applies the event of a dead letter that is not held.
func (a *application) redrive(ev edda.Event, want edda.Redrive) {
	if want.Event == nil || ev.Type != edda.VerbRedrive {
		a.settle(ev, edda.FateLate, "refused", "dead letter "+want.DeadLetter+" holds nothing here, or is gone")
		return
	}
	if err := want.Lacks(); err != nil {
		a.settle(ev, edda.FateLate, "refused", "dead letter "+want.DeadLetter+": "+err.Error())
		return
	}
	tr := edda.Transition{Event: ev, Fate: edda.FateHandled, Handlers: []string{ev.Type}, Resolved: []string{want.DeadLetter}}
	tr.Instance = a.revised(ev)
	a.add(tr)
	a.apply(again(*want.Event, want, want.DeadLetter))
}
