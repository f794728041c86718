package saga

import (
	"encoding/json"
	"slices"

	"edda"
)

// isRelease reports whether the verb is about a hold or a dead letter.
func isRelease(ev edda.Event) bool {
	switch ev.Type {
	case edda.VerbRedrive, edda.VerbDrop:
		return true
	}
	return ev.Type == edda.VerbSkip && ev.Step == ""
}

// redriveOf decodes what the verb says about a dead letter; zero if it means the event that holds
// the key.
func redriveOf(ev edda.Event) (r edda.Redrive) {
	if len(ev.Payload) > 0 {
		_ = json.Unmarshal(ev.Payload, &r) // an undecodable payload names no dead letter
	}
	return r
}

// redriven returns the event of a dead letter, as it is applied again.
func redriven(ev edda.Event, data json.RawMessage) edda.Event {
	ev.Redriven = true
	ev.Redrives++
	if len(data) > 0 {
		ev.Payload = data
	}
	return ev
}

// deadLetterVerb applies a verb about a dead letter that does not hold the key.
func (a *application) deadLetterVerb(ev edda.Event) {
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

// redrive applies the event of a dead letter. The verb is one transition, the event the next. The
// instance remembers the verb's id, so that a verb that is sent twice applies the event once. The
// event's own id does not always prevent a second time.
func (a *application) redrive(ev edda.Event, want edda.Redrive) {
	inner := redriven(*want.Event, want.Data)
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
	if a.appliedSince(inner, want) {
		a.unchanged(inner, edda.FateDuplicate, "duplicate")
		return
	}
	n := len(a.out)
	a.tryOrNewer(retried{event: inner})
	for _, t := range a.out[n:] {
		want.KeepCut(t.Dead)
	}
	if in := a.cell.Instance; began && in != nil {
		in.Recent = remembered(in.Recent, ev.ID)
	}
}

// appliedSince reports whether the event came again since it became a dead letter, and waits or
// was applied. An event that the instance gave up is remembered without being applied. One that
// was given up before there was an instance is not remembered.
func (a *application) appliedSince(ev edda.Event, letter edda.Redrive) bool {
	if a.queued(ev) {
		return true
	}
	if !letter.Unseen && (letter.Reason == edda.DeadPoison || letter.Reason == edda.DeadVersion) {
		return false
	}
	return a.cell.Instance != nil && slices.Contains(a.cell.Instance.Recent, ev.ID)
}

// retried is what is tried again: the event of a dead letter, or the undo of a command. It is a
// struct and no function, because a closure would move every application to the heap.
type retried struct {
	event  edda.Event
	undoOf string
}

// try applies it, and reports whether it succeeded.
func (a *application) try(w retried) bool {
	n := len(a.out)
	if w.undoOf == "" {
		a.apply(w.event)
		return n == len(a.out) || a.out[n].Dead == nil
	}
	a.advance(w.event)
	return !slices.ContainsFunc(a.cell.Instance.Undos, func(u edda.Undo) bool { return notSent(u) && u.Frame.Command == w.undoOf })
}

// tryOrNewer tries with the instance's own text. If that fails and the instance can continue with a
// newer text of the saga, it tries that.
func (a *application) tryOrNewer(w retried) {
	before, n := *a, len(a.out)
	before.out = slices.Clip(a.out)
	if a.try(w) {
		return
	}
	next := before.newerText()
	if next == nil {
		return
	}
	before.cell.Instance = clone(before.cell.Instance)
	before.cell.Instance.Version, before.cell.Instance.Hash = next.Version(), next.Hash()
	before.versions = a.set.allVersions(a.cell.Key.Saga)
	if !before.try(w) || n == len(before.out) {
		return
	}
	*a = before
	up := edda.Output{Word: "upgraded", Name: next.Saga(), Version: next.Version()}
	a.out[n].Outputs = append([]edda.Output{up}, a.out[n].Outputs...)
}

// newerText returns the text that new instances start on, if it differs from this instance's and
// the instance can continue with it; or nil.
func (a *application) newerText() *Program {
	in, next := a.cell.Instance, a.set.Starts(a.cell.Key.Saga)
	if in == nil || next == nil || in.Status.Finished() {
		return nil
	}
	if next.Version() < in.Version || next.Version() == in.Version && next.Hash() == in.Hash || !next.continues(in, a.set.program(in)) {
		return nil
	}
	return next
}
