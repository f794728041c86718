package flowsaga

import (
	"encoding/json"
	"slices"

	"edda"
)

// holds tells whether the verb is about the event at which a flow's step broke:
// the engine keeps that one in the cell. A flow goes on meanwhile.
func holds(ev edda.Event) bool {
	return ev.Kind == edda.KindOperator && (ev.Type == edda.VerbRedrive || ev.Type == edda.VerbDrop || ev.Type == edda.VerbSkip && ev.Step == "")
}

// release takes what is held off the flow; redrive applies it again.
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
	if in := a.cell.Instance; in != nil {
		tr.Instance = copyOf(in, ev.Time)
		tr.Instance.Held = ""
		tr.Instance.Revision++
		tr.Instance.Recent = append(slices.Clone(in.Recent), ev.ID)
	}
	a.add(tr)
	if ev.Type != edda.VerbRedrive {
		return
	}
	for _, e := range held {
		a.apply(again(e.Event, want, e.DeadLetter))
	}
}

func redriveOf(ev edda.Event) (r edda.Redrive) {
	if len(ev.Payload) > 0 {
		_ = json.Unmarshal(ev.Payload, &r) // what cannot be read names no dead letter
	}
	return r
}

// again is a held or dead event as it is applied again; what the operator
// changed is for the one that the dead letter speaks of.
func again(ev edda.Event, want edda.Redrive, deadLetter string) edda.Event {
	ev.Redriven = true
	ev.Redrives++
	if len(want.Data) > 0 && deadLetter == want.DeadLetter {
		ev.Payload = want.Data
	}
	return ev
}

// redrive applies the event of a dead letter that holds nothing.
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
	if in := a.cell.Instance; in != nil {
		tr.Instance = copyOf(in, ev.Time)
		tr.Instance.Revision++
		tr.Instance.Recent = append(slices.Clone(in.Recent), ev.ID)
	}
	a.add(tr)
	a.apply(again(*want.Event, want, want.DeadLetter))
}
