package saga

import (
	"encoding/json"
	"slices"

	"edda"
)

// frees tells whether the verb is about what holds a key, or about a dead letter.
func frees(ev edda.Event) bool {
	switch ev.Type {
	case edda.VerbRedrive, edda.VerbDrop:
		return true
	}
	return ev.Type == edda.VerbSkip && ev.Step == ""
}

// redriveOf is what the verb says of a dead letter; nothing where it means the
// event that holds the key.
func redriveOf(ev edda.Event) (r edda.Redrive) {
	if len(ev.Payload) > 0 {
		_ = json.Unmarshal(ev.Payload, &r) // what cannot be read names no dead letter
	}
	return r
}

// again is the event of a dead letter as it is applied again.
func again(ev edda.Event, data json.RawMessage) edda.Event {
	ev.Redriven = true
	ev.Redrives++
	if len(data) > 0 {
		ev.Payload = data
	}
	return ev
}

// free is a verb about a dead letter that does not hold the key.
func (a *application) free(ev edda.Event) {
	want := redriveOf(ev)
	switch {
	case want.DeadLetter == "":
		a.refuseVerb(ev, "nothing is held")
	case ev.Type != edda.VerbRedrive:
		a.refuseVerb(ev, "dead letter "+want.DeadLetter+" holds nothing here")
	case want.Event == nil:
		a.refuseVerb(ev, "dead letter "+want.DeadLetter+" is gone")
	case want.Lacks() != nil:
		a.refuseVerb(ev, "dead letter "+want.DeadLetter+": "+want.Lacks().Error())
	default:
		a.redrive(ev, want)
	}
}

func (a *application) refuseVerb(ev edda.Event, why string) {
	a.add(edda.Transition{Event: ev, Fate: edda.FateLate, Outputs: []edda.Output{{Word: "refused", Name: nameOf(ev), Reason: why}}})
}

// redrive applies the event of a dead letter: the verb is one transition, the
// event the next. The verb's id is remembered, so that the same verb sent twice
// applies the event once, also where the event's own id is no hindrance.
func (a *application) redrive(ev edda.Event, want edda.Redrive) {
	inner := again(*want.Event, want.Data)
	a.acted = ev.Time
	tr := edda.Transition{
		Event: ev, Fate: edda.FateHandled, Resolved: []string{want.DeadLetter},
		Outputs: []edda.Output{{Word: "redriven", Name: nameOf(inner)}},
	}
	began := a.cell.Instance == nil
	if in := a.cell.Instance; in != nil {
		tr.Instance = heldInstance(in, in.Held)
		tr.Instance.Recent = remembered(in.Recent, ev.ID)
	}
	a.add(tr)
	if a.taken(inner, want) {
		a.add(edda.Transition{Event: inner, Fate: edda.FateDuplicate, Outputs: []edda.Output{{Word: "duplicate", Name: nameOf(inner)}}})
		return
	}
	n := len(a.out)
	a.applyAgain(inner)
	for _, t := range a.out[n:] {
		want.KeepCut(t.Dead)
	}
	if in := a.cell.Instance; began && in != nil {
		in.Recent = remembered(in.Recent, ev.ID)
	}
}

// taken tells whether the event was sent again since it died, and waits or was
// applied. An event that the instance gave up is remembered, but was not applied;
// one that was given up before there was an instance nobody remembered then.
func (a *application) taken(ev edda.Event, letter edda.Redrive) bool {
	same := func(e edda.Entry) bool { return e.Event.ID == ev.ID }
	if slices.ContainsFunc(a.cell.Parked, same) || slices.ContainsFunc(a.cell.Held, same) {
		return true
	}
	if !letter.Unseen && (letter.Reason == edda.DeadPoison || letter.Reason == edda.DeadVersion) {
		return false
	}
	return a.cell.Instance != nil && slices.Contains(a.cell.Instance.Recent, ev.ID)
}

// applyAgain applies an event that died before. Where it dies again and there is
// a newer text of the saga that the instance can go on with, it is tried with that.
func (a *application) applyAgain(ev edda.Event) { a.orMended(repeated{event: ev}) }

// retryUndo tries an undo again that could not be evaluated, with a newer text of the
// saga likewise.
func (a *application) retryUndo(ev edda.Event, of string) {
	a.orMended(repeated{event: ev, undoOf: of})
}

// repeated is what is done once more: an event that died, or the undo of a command that
// could not be evaluated. It is no function, which would have every application on the heap.
type repeated struct {
	event  edda.Event
	undoOf string
}

// goesWell does it, and tells whether it went well this time.
func (a *application) goesWell(w repeated) bool {
	n := len(a.out)
	if w.undoOf == "" {
		a.apply(w.event)
		return n == len(a.out) || a.out[n].Dead == nil
	}
	a.advance(w.event)
	return !slices.ContainsFunc(a.cell.Instance.Undos, func(u edda.Undo) bool { return notSent(u) && u.Frame.Command == w.undoOf })
}

// orMended does something again, and where that does not go well, does it with the text
// that is mended, if it goes well with that.
func (a *application) orMended(w repeated) {
	before, n := *a, len(a.out)
	before.out = slices.Clip(a.out)
	if a.goesWell(w) {
		return
	}
	next := before.mended()
	if next == nil {
		return
	}
	before.cell.Instance = clone(before.cell.Instance)
	before.cell.Instance.Version, before.cell.Instance.Hash = next.Version(), next.Hash()
	before.versions = a.set.allVersions(a.cell.Key.Saga)
	if !before.goesWell(w) || n == len(before.out) {
		return
	}
	*a = before
	up := edda.Output{Word: "upgraded", Name: next.Saga(), Version: next.Version()}
	a.out[n].Outputs = append([]edda.Output{up}, a.out[n].Outputs...)
}

// mended is the text that instances start on, where it is another one than this
// instance began with and the instance can go on with it.
func (a *application) mended() *Program {
	in, next := a.cell.Instance, a.set.Starts(a.cell.Key.Saga)
	if in == nil || next == nil || in.Status.Finished() {
		return nil
	}
	if next.Version() < in.Version || next.Version() == in.Version && next.Hash() == in.Hash || !next.continues(in, a.set.program(in)) {
		return nil
	}
	return next
}
