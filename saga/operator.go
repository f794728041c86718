package saga

import (
	"slices"
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
		why := "the saga is " + string(r.in.Status) + " already"
		if r.in.Past {
			why = "a must step was emitted: there is no way back"
		} else if r.running() {
			return r.fail("cancelled")
		}
		r.output(edda.Output{Word: "refused", Name: "cancelled", Reason: why})
		return nil
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

// retry calls a failed undo or a failed must step again.
func (r *run) retry(step string) error {
	if i := failedUndo(r.in, step); i >= 0 {
		return r.retryUndo(i)
	}
	s := r.stalled(step)
	if s == nil {
		r.refuse("it does not wait for an operator")
		return nil
	}
	return r.retryStep(s)
}

func failedUndo(in *edda.Instance, step string) int {
	return slices.IndexFunc(in.Undos, func(u edda.Undo) bool { return u.Step == step && u.Failed })
}

// stalled returns a step with an open incident, a failed must step or an orphan; or nil.
func (r *run) stalled(step string) *edda.Step {
	if slices.ContainsFunc(r.in.Incidents, func(i edda.Incident) bool { return i.Step == step }) {
		return r.step(step)
	}
	return nil
}

// retryUndo emits the undo again; a payload replaces its input. An undo that was never sent is
// evaluated again.
func (r *run) retryUndo(i int) error {
	u := r.takeUndo(i)
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
	a, err := r.undoAction(u.Frame)
	if err != nil {
		return err
	}
	u.Attempt++
	r.emitUndoEffect(a, u)
	return nil
}

// takeUndo removes and returns a failed undo. The saga is stuck no more when no other undo waits for
// an operator.
func (r *run) takeUndo(i int) edda.Undo {
	u := r.in.Undos[i]
	r.in.Undos = append(r.in.Undos[:i:i], r.in.Undos[i+1:]...)
	r.dropIncident(u.Step)
	if r.in.Status == edda.StatusStuck && !slices.ContainsFunc(r.in.Undos, func(u edda.Undo) bool { return u.Failed }) {
		r.in.Status = edda.StatusUndoing
	}
	return u
}

// retryStep emits a must step again under a new command id. It keeps the idempotency key when the
// last outcome was unknown. The seqs that waited for the step wait for its retry.
func (r *run) retryStep(s *edda.Step) error {
	unknown := slices.ContainsFunc(r.in.Incidents, func(i edda.Incident) bool { return i.Step == s.ID && strings.HasPrefix(i.Reason, "timeout") })
	key := s.Command
	r.dropIncident(s.ID)
	s.Attempt++
	s.Command = r.id(s.Action + "[" + strconv.Itoa(s.Index) + "]#" + strconv.Itoa(s.Attempt))
	for i := range r.in.Threads {
		if t := &r.in.Threads[i]; t.Command == key {
			t.Command = s.Command
		}
	}
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
	if s.Kind == edda.StepCommand {
		s.Status = edda.StepOK // no outcome is pending
		r.sendCommand(*s, a.src.High, "")
		return nil
	}
	r.sendStep(a, s, key)
	return nil
}

// skip continues without a failed undo or must step. A skipped undo leaves the saga incomplete;
// resolve says that a person has done it.
func (r *run) skip(step string) error {
	if i := failedUndo(r.in, step); i >= 0 {
		return r.skipUndo(i)
	}
	s := r.stalled(step)
	switch {
	case s != nil && s.Status == edda.StepPending: // a must step, which settles as ok
		data, err := jsonvalue.Encode(map[string]any{"skipped": true})
		if err != nil {
			return err
		}
		r.event = &decoded{raw: data}
		return r.settleStep(s, outcome{word: "ok", data: data})
	case r.dropIncident(step):
		return nil
	}
	r.refuse("it does not wait for an operator")
	return nil
}

func (r *run) skipUndo(i int) error {
	u := r.takeUndo(i)
	f := u.Frame
	if r.ev.Type == edda.VerbSkip {
		r.in.Incomplete = append(r.in.Incomplete, f.Step)
		f = edda.Frame{} // its step is not undone
	}
	if err := r.undone(f, u); err != nil {
		return err
	}
	return r.afterSettled()
}
