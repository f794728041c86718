package saga

import (
	"errors"
	"slices"

	"edda"
)

// passesHold reports whether a held key takes the event: an operator's command.
func passesHold(ev edda.Event) bool {
	if ev.Kind != edda.KindOperator {
		return false
	}
	return ev.Type == edda.VerbCancel || ev.Type == edda.VerbTerminate || isRelease(ev)
}

// queueUp holds an event behind the poison event while there is room.
func (a *application) queueUp(ev edda.Event) {
	o := Options{}.withDefaults()
	if p := a.program(); p != nil {
		o = p.o
	}
	if why := noRoom(o, a.cell.Held, ev); why != "" {
		a.dead(ev, deadLetter(ev, a.cell.Key, edda.DeadFull, why+" behind a poison event: redrive or drop that one first"))
		return
	}
	e := edda.Entry{N: nextN(a.cell.Held), Event: ev}
	a.cell.Held = append(slices.Clone(a.cell.Held), e)
	a.add(edda.Transition{Event: ev, Fate: edda.FateHeld, Hold: &e, Outputs: []edda.Output{{Word: "held", Name: nameOf(ev)}}})
}

// failed records an event that could not be applied. The event changes nothing, and the key is
// held until an operator decides.
func (a *application) failed(p *Program, ev edda.Event, err error) {
	if v := (*versionError)(nil); errors.As(err, &v) {
		a.skipped(p, ev, deadLetter(ev, a.cell.Key, edda.DeadVersion, err.Error()))
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
	case p != nil && a.skipsPoison(p, ev):
		a.skipped(p, ev, d)
	default:
		a.holdPoison(ev, d)
	}
}

// skipsPoison reports whether every handler of the event says on_poison: skip.
func (a *application) skipsPoison(p *Program, ev edda.Event) bool {
	hs := p.candidates(ev)
	if len(hs) == 0 && a.cell.Instance != nil {
		hs = p.innerHandlers(a.cell.Instance, ev)
	}
	return len(hs) > 0 && !slices.ContainsFunc(hs, func(h *handler) bool { return h.src.OnPoison != "skip" })
}

// innerHandlers returns the handlers of a timer, or of a step's outcome.
func (p *Program) innerHandlers(in *edda.Instance, ev edda.Event) []*handler {
	switch {
	case ev.Kind == edda.KindTimer && ev.Timer == edda.TimerNamed:
		return p.named("timer." + ev.Type)
	case ev.Kind == edda.KindTimer && ev.Timer == edda.TimerDeadline:
		return p.named("saga.deadline")
	case ev.Kind == edda.KindTimer:
		return p.named(ev.Step + ".timeout")
	case ev.Kind == edda.KindAnswer:
		return p.named(ev.Step + "." + ev.Type)
	}
	for _, s := range in.Steps {
		if s.Command == ev.CommandID {
			id, _, _ := cutLast(s.ID, "[")
			return p.named(id + "." + outcomeOf(ev).word)
		}
	}
	return nil
}

// skipped gives the poison event up; the instance remembers its id.
func (a *application) skipped(p *Program, ev edda.Event, d *edda.DeadLetter) {
	tr := edda.Transition{Event: ev}
	d.Unseen = a.cell.Instance == nil
	if in := a.cell.Instance; in != nil {
		given, err := runTransition(p, clone(in), ev, func(r *run) error { return r.giveUp(ev) })
		if err != nil {
			a.holdPoison(ev, d)
			return
		}
		tr = given
	}
	tr.Fate, tr.Dead = edda.FateDead, d
	tr.Outputs = append([]edda.Output{{Word: "dead", Name: nameOf(ev), Reason: d.Reason}}, tr.Outputs...)
	a.add(tr)
}

// holdPoison holds the key, with the poison event first in its queue.
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

// operator applies an operator's verb. Redrive and drop are about the hold; the instance handles
// the others.
func (a *application) operator(ev edda.Event) {
	if isRelease(ev) {
		a.release(ev)
		return
	}
	in := a.cell.Instance
	if in == nil {
		a.noInstance(ev)
		return
	}
	// After the end, a verb is for a step of a late handler alone.
	orphan := ev.Step != "" && slices.ContainsFunc(in.Incidents, func(i edda.Incident) bool { return i.Step == ev.Step })
	// A saga may cancel a child that is not its own: its start found the key in use, and it sent the
	// cancel before it knew.
	foreign := ev.CommandID != "" && ev.CommandID != in.ParentCommand
	undo := failedUndo(in, ev.Step)
	switch {
	case in.Status.Finished() && !orphan, foreign:
		a.unchanged(ev, edda.FateLate, "late")
		return
	case ev.Type == edda.VerbRetry && undo >= 0 && notSent(in.Undos[undo]):
		a.tryOrNewer(retried{event: ev, undoOf: in.Undos[undo].Frame.Command})
	default:
		a.advance(ev)
	}
	a.releaseEnded()
}

// releaseEnded releases the events behind a poison event of a terminated instance; they are late
// now.
func (a *application) releaseEnded() {
	if in := a.cell.Instance; len(a.cell.Held) == 0 || in == nil || !in.Status.Finished() {
		return
	}
	last := &a.out[len(a.out)-1]
	last.Release = append(last.Release, a.cell.Held[0].N)
	last.Resolved = append(last.Resolved, a.cell.Held[0].DeadLetter)
	if last.Instance != nil {
		last.Instance.Held = ""
		last.Instance.Recent = remembered(last.Instance.Recent, a.cell.Held[0].Event.ID)
	}
	a.queue, a.unparked = slices.Clone(a.cell.Held[1:]), false
	a.cell.Held = a.cell.Held[1:]
}

// release ends the hold of the key: redrive applies the poison event again first, drop and skip
// give it up.
func (a *application) release(ev edda.Event) {
	want := redriveOf(ev)
	if len(a.cell.Held) == 0 || want.DeadLetter != "" && want.DeadLetter != a.cell.Held[0].DeadLetter {
		a.deadLetterVerb(ev)
		return
	}
	first := a.cell.Held[0]
	tr, err := a.released(ev, first)
	if err != nil {
		a.poison(nil, ev, err)
		return
	}
	tr.Resolved = []string{first.DeadLetter}
	for _, e := range a.cell.Parked {
		tr.Arm = append(tr.Arm, e.Expires) // its due row may have been used while the key was held
	}
	a.queue, a.unparked = slices.Clone(a.cell.Held), false
	if ev.Type == edda.VerbRedrive {
		a.queue[0].Event = redriven(first.Event, want.Data)
	} else {
		a.queue = a.queue[1:]
		a.cell.Held = slices.Clone(a.cell.Held)[1:]
		tr.Release = []uint64{first.N}
	}
	a.add(tr)
}

// released returns the transition that ends the hold of the instance.
func (a *application) released(ev edda.Event, first edda.Entry) (edda.Transition, error) {
	in, p := a.cell.Instance, a.program()
	switch {
	case in == nil:
		return edda.Transition{Event: ev, Fate: edda.FateHandled}, nil
	case p == nil || ev.Type == edda.VerbRedrive:
		tr := edda.Transition{Event: ev, Fate: edda.FateHandled, Instance: heldInstance(in, "")}
		tr.Instance.Recent = remembered(in.Recent, ev.ID)
		return tr, nil
	}
	return runTransition(p, clone(in), ev, func(r *run) error {
		r.in.Held = ""
		return r.giveUp(first.Event)
	})
}

// giveUp marks an event as handled that was not applied. Its due time does not come again: a timer
// is removed, a repeating one moves on. A step's outcome becomes unknown, and no handler runs.
func (r *run) giveUp(ev edda.Event) error {
	if ev.Kind != edda.KindTimer {
		if ev.ID != r.ev.ID {
			r.in.Recent = remembered(r.in.Recent, ev.ID)
		}
		return nil
	}
	switch ev.Timer {
	case edda.TimerDue:
	case edda.TimerDeadline:
		r.in.Timers = slices.DeleteFunc(r.in.Timers, func(t edda.Timer) bool { return t.Deadline })
		return nil
	default:
		r.consumeTimer(ev)
		return nil
	}
	for i := range r.in.Steps {
		s := &r.in.Steps[i]
		if s.Command != ev.CommandID || s.Status != edda.StepPending {
			continue
		}
		r.record(s, outcome{word: "timeout"})
		r.pushStepFrame(*s)
		r.removeThreads(func(t edda.Thread) bool { return t.Waits == s.ID && t.Command == s.Command })
		return r.afterSettled()
	}
	return r.result(ev.CommandID, outcome{word: "timeout"}) // an older round and an undo have no handler
}

// applyHeld applies the first held event. If it is poison, it stays held with the events behind
// it.
func (a *application) applyHeld(e edda.Entry) bool {
	behind := withoutEntry(a.cell.Held, e.N)
	a.cell.Held = nil // or the event would be queued behind itself
	a.versions = a.set.allVersions(a.cell.Key.Saga)
	n := len(a.out)
	queue := a.queue
	e.Event.Redriven = true
	a.tryOrNewer(retried{event: e.Event})
	if len(a.cell.Held) > 0 {
		a.holdAgain(n, e.N, behind)
		return false
	}
	a.out[n].Release = append(a.out[n].Release, e.N)
	if a.unparked && !a.applyAllParked(e.N, behind) {
		return false
	}
	a.cell.Held, a.queue, a.unparked = behind, queue, false
	return true
}

// holdAgain puts the poison event of the transitions from n on at its place in the queue, before
// the events behind it.
func (a *application) holdAgain(n int, place uint64, behind []edda.Entry) {
	a.cell.Held[0].N = place
	for i := n; i < len(a.out); i++ {
		if a.out[i].Hold != nil {
			a.out[i].Hold.N = place
		}
	}
	a.cell.Held = append(a.cell.Held, behind...)
}

// applyAllParked applies the parked events when a redriven event starts the instance, before the
// held events behind it. A poison one takes the place of the event that started the instance. The
// parked events after it queue after the held ones.
func (a *application) applyAllParked(place uint64, behind []edda.Entry) bool {
	for len(a.queue) > 0 {
		e, n := a.queue[0], len(a.out)
		a.queue = a.queue[1:]
		a.applyParked(e)
		if len(a.cell.Held) == 0 {
			continue
		}
		a.holdAgain(n, place, behind)
		a.followUp()
		return false
	}
	return true
}
