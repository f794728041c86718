package saga

import (
	"strconv"
	"strings"

	"edda"
	"edda/internal/jsonvalue"
)

// operator applies an operator's verb to a live instance.
func (r *run) operator() error {
	r.unbounded = true
	switch r.ev.Type {
	case edda.VerbCancel:
		return r.operatorCancel()
	case edda.VerbTerminate:
		r.in.Reason = "terminated"
		r.end(edda.StatusFailed)
		return nil
	case edda.VerbRetry:
		return r.retry(r.ev.Step)
	case edda.VerbSkip, edda.VerbResolve:
		return r.skip(r.ev.Step)
	}
	r.refuse("there is no such verb")
	return nil
}

func (r *run) refuse(why string) {
	name := r.ev.Type
	if r.ev.Step != "" {
		name += " " + r.ev.Step
	}
	r.output(edda.Output{Word: "refused", Name: name, Reason: why})
}

// operatorCancel fails the saga with reason cancelled. Past a must step it is refused.
func (r *run) operatorCancel() error {
	switch {
	case r.in.Past:
		r.output(edda.Output{Word: "refused", Name: "cancelled", Reason: "a must step was emitted: there is no way back"})
		return nil
	case !r.running():
		r.output(edda.Output{Word: "refused", Name: "cancelled", Reason: "the saga is " + string(r.in.Status) + " already"})
		return nil
	}
	return r.fail("cancelled")
}

// retry calls a failed undo or a failed must step again.
func (r *run) retry(step string) error {
	if i := r.failedUndo(step); i >= 0 {
		return r.retryUndo(i)
	}
	s := r.stalled(step)
	if s == nil {
		r.refuse("it does not wait for an operator")
		return nil
	}
	return r.retryStep(s)
}

func (r *run) failedUndo(step string) int {
	for i, u := range r.in.Undos {
		if u.Step == step && u.Failed {
			return i
		}
	}
	return -1
}

// stalled returns a step with an open incident, a failed must step or an orphan; or nil.
func (r *run) stalled(step string) *edda.Step {
	for _, i := range r.in.Incidents {
		if i.Step == step {
			return r.step(step)
		}
	}
	return nil
}

// retryUndo emits the undo again; a payload replaces its input. An undo that was never sent is
// evaluated again.
func (r *run) retryUndo(i int) error {
	u := r.in.Undos[i]
	r.in.Undos = append(r.in.Undos[:i:i], r.in.Undos[i+1:]...)
	r.dropIncident(u.Step)
	r.unstick()
	if notSent(u) {
		template := edda.Undo{Explicit: u.Explicit, Raise: u.Raise, Rest: u.Rest, Input: r.ev.Payload}
		if err := r.undoFrame(u.Frame, template); err != nil {
			return err
		}
		return r.afterSettled()
	}
	if len(r.ev.Payload) > 0 {
		u.Input = r.ev.Payload
	}
	a := r.p.actions[u.Frame.Action]
	if a == nil || a.undo == nil {
		return r.poison("frame of %s: the manifest has no undo at %s", u.Frame.Step, u.Frame.Action)
	}
	u.Attempt++
	r.emitUndoEffect(a.undo, u)
	return nil
}

// unstick continues undoing when no undo waits for an operator any more.
func (r *run) unstick() {
	if r.in.Status != edda.StatusStuck {
		return
	}
	for _, u := range r.in.Undos {
		if u.Failed {
			return
		}
	}
	r.in.Status = edda.StatusUndoing
}

// retryStep emits a must step again under a new command id. It keeps the idempotency key when the
// last outcome was unknown.
func (r *run) retryStep(s *edda.Step) error {
	unknown := r.lastUnknown(s.ID)
	key := s.Command
	r.dropIncident(s.ID)
	s.Attempt++
	s.Command = r.id(s.Action + "[" + strconv.Itoa(s.Index) + "]#" + strconv.Itoa(s.Attempt))
	r.moveThreads(key, s.Command)
	if !unknown {
		key = s.Command
	}
	if len(r.ev.Payload) > 0 {
		s.Input = r.ev.Payload
	}
	s.Status, s.Error = edda.StepPending, nil
	a := r.p.actions[s.Action]
	if a == nil {
		return r.poison("step %s: the manifest has no action at %s", s.ID, s.Action)
	}
	switch s.Kind {
	case edda.StepAsk:
		r.sendAsk(a, s)
	case edda.StepStart:
		r.sendStart(a, s)
	case edda.StepCommand:
		s.Status = edda.StepOK // no outcome is pending
		r.sendCommand(*s, a.src.High, "")
	default:
		r.sendEffect(a, s, key)
	}
	return nil
}

// moveThreads makes the seqs that waited for a round wait for its retry.
func (r *run) moveThreads(from, to string) {
	for i := range r.in.Threads {
		if r.in.Threads[i].Command == from {
			r.in.Threads[i].Command = to
		}
	}
}

func (r *run) lastUnknown(step string) bool {
	for _, i := range r.in.Incidents {
		if i.Step == step {
			return strings.HasPrefix(i.Reason, "timeout")
		}
	}
	return false
}

// skip continues without a failed undo or must step. A skipped undo leaves the saga incomplete;
// resolve says that a person has done it.
func (r *run) skip(step string) error {
	if i := r.failedUndo(step); i >= 0 {
		return r.skipUndo(i)
	}
	s := r.stalled(step)
	switch {
	case s != nil && s.Status == edda.StepPending:
		return r.skipStep(s)
	case r.dropIncident(step):
		return nil
	}
	r.refuse("it does not wait for an operator")
	return nil
}

func (r *run) skipUndo(i int) error {
	u := r.in.Undos[i]
	r.in.Undos = append(r.in.Undos[:i:i], r.in.Undos[i+1:]...)
	r.dropIncident(u.Step)
	r.unstick()
	if r.ev.Type == edda.VerbSkip {
		r.in.Incomplete = append(r.in.Incomplete, u.Frame.Step)
		if err := r.skippedUndo(u); err != nil {
			return err
		}
		return r.afterSettled()
	}
	if err := r.undone(u.Frame, u); err != nil {
		return err
	}
	return r.afterSettled()
}

// skippedUndo lets an explicit undo continue without the frame.
func (r *run) skippedUndo(u edda.Undo) error {
	if u.Raise == "" {
		return nil
	}
	u.Frame = edda.Frame{}
	return r.undone(u.Frame, u)
}

// skipStep settles a must step as ok.
func (r *run) skipStep(s *edda.Step) error {
	data, err := jsonvalue.Encode(map[string]any{"skipped": true})
	if err != nil {
		return err
	}
	r.event = &decoded{raw: data}
	return r.settleStep(s, outcome{word: "ok", data: data})
}
