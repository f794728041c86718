package saga

import (
	"errors"
	"slices"
	"time"

	"edda"
)

// passesHold tells whether an event is for the operator's hand, which a held
// key still takes.
func passesHold(ev edda.Event) bool {
	if ev.Kind != edda.KindOperator {
		return false
	}
	switch ev.Type {
	case edda.VerbCancel, edda.VerbTerminate, edda.VerbRedrive, edda.VerbDrop:
		return true
	}
	return false
}

// hold queues an event behind the poisoned one.
func (a *application) hold(ev edda.Event) {
	e := edda.Entry{N: nextN(a.cell.Held), Event: ev}
	a.cell.Held = append(slices.Clone(a.cell.Held), e)
	a.add(edda.Transition{Event: ev, Fate: edda.FateHeld, Hold: &e, Outputs: []edda.Output{{Word: "held", Name: nameOf(ev)}}})
}

// failed records an event that could not be applied: nothing of it happened,
// and the key is held until an operator decides.
func (a *application) failed(p *Program, ev edda.Event, err error) {
	if v := (*versionError)(nil); errors.As(err, &v) {
		a.skipped(ev, deadLetter(ev, a.cell.Key, edda.DeadVersion, err.Error()))
		return
	}
	a.poison(p, ev, err)
}

func (a *application) poison(p *Program, ev edda.Event, err error) {
	d := deadLetter(ev, a.cell.Key, edda.DeadPoison, err.Error())
	if e := (*poisonError)(nil); errors.As(err, &e) {
		d.Path, d.Source, d.Inputs, d.Error = e.path, e.source, e.inputs, e.message
	}
	switch {
	case ev.Kind == edda.KindOperator:
		a.add(edda.Transition{Event: ev, Fate: edda.FateDead, Dead: d, Outputs: []edda.Output{
			{Word: "refused", Name: nameOf(ev), Reason: d.Error}, {Word: "dead", Name: nameOf(ev), Reason: d.Reason},
		}})
	case p != nil && p.skipsPoison(ev):
		a.skipped(ev, d)
	default:
		a.holdPoison(ev, d)
	}
}

func (p *Program) skipsPoison(ev edda.Event) bool {
	hs := p.candidates(ev)
	return len(hs) > 0 && !slices.ContainsFunc(hs, func(h *handler) bool { return h.src.OnPoison != "skip" })
}

// skipped gives the event up and goes on; the instance remembers having seen it.
func (a *application) skipped(ev edda.Event, d *edda.DeadLetter) {
	tr := edda.Transition{Event: ev, Fate: edda.FateDead, Dead: d, Outputs: []edda.Output{{Word: "dead", Name: nameOf(ev), Reason: d.Reason}}}
	if in := a.cell.Instance; in != nil {
		tr.Instance = clone(in)
		tr.Instance.Revision++
		tr.Instance.Recent = remembered(in.Recent, ev.ID)
	}
	a.add(tr)
}

// holdPoison puts the key on hold: the poison event first in its queue.
func (a *application) holdPoison(ev edda.Event, d *edda.DeadLetter) {
	e := edda.Entry{N: 1, Event: ev, DeadLetter: d.ID}
	a.cell.Held = []edda.Entry{e}
	tr := edda.Transition{
		Event: ev, Fate: edda.FateDead, Dead: d, Hold: &e,
		Outputs: []edda.Output{{Word: "dead", Name: nameOf(ev), Reason: d.Reason}},
	}
	if a.cell.Instance != nil {
		tr.Instance = heldInstance(a.cell.Instance, d.ID)
	}
	a.add(tr)
}

func heldInstance(in *edda.Instance, deadLetter string) *edda.Instance {
	out := clone(in)
	out.Revision++
	out.Held = deadLetter
	return out
}

// operator applies a verb. Redrive and drop are about the hold; the others are
// for the instance.
func (a *application) operator(ev edda.Event) {
	switch ev.Type {
	case edda.VerbRedrive, edda.VerbDrop:
		a.release(ev)
		return
	}
	in := a.cell.Instance
	switch {
	case in == nil:
		a.dead(ev, deadLetter(ev, a.cell.Key, edda.DeadNoInstance, "there is no such instance"))
	case in.Status.Finished() && !orphanVerb(in, ev):
		a.add(edda.Transition{Event: ev, Fate: edda.FateLate, Outputs: []edda.Output{{Word: "late", Name: nameOf(ev)}}})
	default:
		a.advance(ev)
		a.releaseEnded(ev)
	}
}

// orphanVerb is a retry or skip of what a late handler emitted.
func orphanVerb(in *edda.Instance, ev edda.Event) bool {
	return ev.Step != "" && slices.ContainsFunc(in.Incidents, func(i edda.Incident) bool { return i.Step == ev.Step })
}

// releaseEnded lets go of what is held behind a poison event once the instance
// was terminated: those events are late now.
func (a *application) releaseEnded(edda.Event) {
	if in := a.cell.Instance; len(a.cell.Held) == 0 || in == nil || !in.Status.Finished() {
		return
	}
	last := &a.out[len(a.out)-1]
	last.Release = append(last.Release, a.cell.Held[0].N)
	if last.Instance != nil {
		last.Instance.Held = ""
	}
	a.queue, a.unparked = slices.Clone(a.cell.Held[1:]), false
	a.cell.Held = a.cell.Held[1:]
}

// release takes the key off hold: redrive applies the poison event again first,
// drop gives it up.
func (a *application) release(ev edda.Event) {
	if len(a.cell.Held) == 0 {
		a.add(edda.Transition{Event: ev, Fate: edda.FateLate, Outputs: []edda.Output{{Word: "refused", Name: nameOf(ev), Reason: "nothing is held"}}})
		return
	}
	first := a.cell.Held[0]
	tr := edda.Transition{Event: ev, Fate: edda.FateHandled, Resolved: []string{first.DeadLetter}}
	a.queue, a.unparked = slices.Clone(a.cell.Held), false
	if ev.Type == edda.VerbDrop {
		a.queue = a.queue[1:]
		a.cell.Held = slices.Clone(a.cell.Held)[1:]
		tr.Release = []uint64{first.N}
	}
	if a.cell.Instance != nil {
		tr.Instance = heldInstance(a.cell.Instance, "")
		tr.Instance.Recent = remembered(tr.Instance.Recent, ev.ID)
		if ev.Type == edda.VerbDrop {
			tr.Instance.Recent = remembered(tr.Instance.Recent, first.Event.ID)
			giveUpTimer(tr.Instance, first.Event)
		}
	}
	a.add(tr)
}

// giveUpTimer takes a dropped timer event's timer away, so that it does not fire again.
func giveUpTimer(in *edda.Instance, ev edda.Event) {
	if ev.Kind != edda.KindTimer {
		return
	}
	in.Timers = slices.DeleteFunc(in.Timers, func(t edda.Timer) bool {
		return t.Name == ev.Type && t.Deadline == (ev.Timer == edda.TimerDeadline)
	})
	for i := range in.Steps {
		if in.Steps[i].Command == ev.CommandID {
			in.Steps[i].Due = time.Time{}
		}
	}
	for i := range in.Undos {
		if in.Undos[i].Command == ev.CommandID {
			in.Undos[i].Due = time.Time{}
		}
	}
}

// takeHeld applies the first held event. It stays held, and the rest behind
// it, when it is poison.
func (a *application) takeHeld(e edda.Entry) bool {
	rest := withoutEntry(a.cell.Held, e.N)
	a.cell.Held = nil // it is its turn
	a.versions = a.set.allVersions(a.cell.Key.Saga)
	n := len(a.out)
	queue := a.queue
	again := e.Event
	again.Redriven = true
	a.apply(again)
	poisoned := len(a.cell.Held) > 0
	if poisoned {
		a.cell.Held[0].N = e.N
		for i := n; i < len(a.out); i++ {
			if a.out[i].Hold != nil {
				a.out[i].Hold.N = e.N
			}
		}
		a.cell.Held = append(a.cell.Held, rest...)
		return false
	}
	a.cell.Held = rest
	a.out[n].Release = append(a.out[n].Release, e.N)
	if !a.unparked {
		a.queue = queue
		return true
	}
	// It started the instance: what was parked runs before the rest of what is held.
	a.followUp()
	a.queue, a.unparked = queue, false
	return true
}
