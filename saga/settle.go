package saga

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"edda"
	"edda/internal/jsonvalue"
)

// outcome is the outcome of a step: its word in triggers, and its data.
type outcome struct {
	word   string // ok, failed, timeout, or an ask's choice
	data   json.RawMessage
	answer bool // a person's choice, of any name
}

func (o outcome) ok() bool { return o.answer || o.word != "failed" && o.word != "timeout" }

func outcomeOf(ev edda.Event) outcome {
	switch ev.Outcome {
	case edda.Succeeded:
		return outcome{word: "ok", data: ev.Payload}
	case edda.TimedOut:
		return outcome{word: "timeout", data: ev.Payload}
	}
	return outcome{word: "failed", data: ev.Payload}
}

// result applies the outcome of an effect, a child or a rejected command. It finds the step by the
// command id.
func (r *run) result(commandID string, o outcome) error {
	r.tr.Settled = append(r.tr.Settled, commandID)
	r.settled = decoded{raw: o.data}
	r.event = &r.settled
	for _, s := range r.in.Older { // before Steps, because a cancelled step is in both
		if s.Command == commandID {
			return r.olderResult(s, o)
		}
	}
	for i := range r.in.Steps {
		s := &r.in.Steps[i]
		if s.Command == commandID {
			return r.stepResult(s, o)
		}
	}
	for i := range r.in.Undos {
		if r.in.Undos[i].Command == commandID {
			return r.undoResult(i, o)
		}
	}
	// No step waits for it: a command was rejected, or what it is about was settled long ago.
	name := cmp.Or(r.ev.Step, r.ev.Type)
	if r.ev.Type != commandEffect || o.ok() {
		r.late(name + "." + o.word)
		return nil
	}
	r.dropFrame(commandID)
	r.incident(edda.Incident{Step: name, Reason: "rejected", Error: o.data})
	return nil
}

// commandEffect is the effect name under which a rejected command is reported.
const commandEffect = "command"

func (r *run) stepResult(s *edda.Step, o outcome) error {
	switch {
	case s.Kind == edda.StepCommand:
		return r.commandRejected(s, o)
	case s.Status != edda.StepPending:
		r.late(s.ID + "." + o.word)
		return nil
	case r.in.Status.Finished() && !s.Late:
		return r.lateResult(s, o)
	case s.Must && !s.Late && !o.ok():
		// A step past the point of no return never fails the saga. It stays pending for an operator
		// and has no due time.
		s.Error, s.Due = o.data, time.Time{}
		r.incident(edda.Incident{Step: s.ID, Reason: o.word, Error: o.data})
		return nil
	}
	return r.settleStep(s, o)
}

// lateResult applies the result of a step that was pending when the saga ended. Only a handler
// with late: runs.
func (r *run) lateResult(s *edda.Step, o outcome) error {
	if err := r.record(s, o); err != nil {
		return err
	}
	settled := *s
	if h := r.p.plain[s.ID+"."+o.word]; h != nil && h.src.Late {
		return r.raiseOutcome(settled, o)
	}
	r.late(s.ID + "." + o.word)
	return nil
}

// commandRejected removes the command's frame and raises <id>.failed.
func (r *run) commandRejected(s *edda.Step, o outcome) error {
	if o.ok() || s.Status != edda.StepOK {
		r.late(s.ID + "." + o.word)
		return nil
	}
	r.dropFrame(s.Command)
	s.Status, s.Error = edda.StepFailed, o.data
	if s.Late || r.running() {
		return r.raiseOutcome(*s, o)
	}
	r.late(s.ID + "." + o.word)
	return r.afterSettled()
}

// settleStep records the outcome, pushes the frame, and runs what follows: the handlers of the
// step and of its group, then the seqs that waited.
func (r *run) settleStep(s *edda.Step, o outcome) error {
	if err := r.record(s, o); err != nil {
		return err
	}
	r.dropIncident(s.ID)
	if !s.Late && o.word != "failed" {
		r.pushStepFrame(*s)
	}
	settled := *s // handlers may grow the list of steps
	if err := r.raiseOutcome(settled, o); err != nil {
		return err
	}
	if err := r.afterGroup(settled); err != nil {
		return err
	}
	if !o.ok() && !r.optional(settled) { // the seqs that waited for the step end
		r.removeThreads(func(t edda.Thread) bool { return t.Waits == settled.ID && t.Command == settled.Command })
	} else if err := r.resumeThreads(settled.ID, settled.Command); err != nil {
		return err
	}
	return r.afterSettled()
}

func (r *run) record(s *edda.Step, o outcome) (err error) {
	switch {
	case o.word == "failed" && !o.ok():
		s.Status, s.Error = edda.StepFailed, o.data
	case !o.ok():
		s.Status, s.Error = edda.StepTimeout, o.data
	default:
		s.Status, s.Result = edda.StepOK, o.data
		if s.Kind == edda.StepAsk {
			s.Result, err = r.answerResult(o)
		}
	}
	return err
}

// answerResult makes step.<ask>.result: the answer's data and the choice.
func (r *run) answerResult(o outcome) (json.RawMessage, error) {
	v, err := jsonvalue.Decode(o.data)
	if err != nil {
		return nil, r.poison("answer: %v", err)
	}
	fields, ok := v.(map[string]any)
	if !ok {
		fields = map[string]any{}
		if v != nil {
			fields["data"] = v
		}
	}
	if _, taken := fields["choice"]; !taken {
		fields["choice"] = o.word
	}
	raw, err := jsonvalue.Encode(fields)
	if err != nil {
		return nil, r.poison("answer: %v", err) // the data is one level deeper in the result
	}
	return raw, nil
}

// raiseOutcome runs the step's handler. The saga fails if no handler takes care of a failure.
func (r *run) raiseOutcome(s edda.Step, o outcome) error {
	handled, err := r.raiseStep(s, o)
	if err != nil || handled || o.ok() || r.optional(s) {
		return err
	}
	if s.Late {
		r.incident(edda.Incident{Step: s.ID, Reason: o.word, Error: o.data, Orphan: true})
		return nil
	}
	if !r.running() {
		return nil
	}
	return r.fail(s.ID + "." + o.word)
}

// optional reports whether a failure of a step fails nothing.
func (r *run) optional(s edda.Step) bool {
	a := r.p.actions[s.Action]
	return a != nil && a.src.Optional
}

func (r *run) raiseStep(s edda.Step, o outcome) (bool, error) {
	base, _, member := cutLast(s.ID, "[")
	if !member {
		return r.raise(s.ID+"."+o.word, nil)
	}
	vars, err := r.memberVars(s)
	if err != nil {
		return false, err
	}
	if s.Group == "" { // a command beside the group's step
		return r.raise(base+"."+o.word, vars)
	}
	trigger := s.Group + "." + o.word
	if o.word == "timeout" && r.p.plain[trigger] == nil {
		trigger = s.Group + ".failed"
	}
	handled, err := r.raise(trigger, vars)
	return handled || r.handles(s.Group+".all"), err
}

// memberVars returns item and index, and the item under the each's own name.
func (r *run) memberVars(s edda.Step) (map[string]any, error) {
	item, err := jsonvalue.Decode(s.Item)
	if err != nil {
		return nil, err
	}
	vars := map[string]any{defaultAs: item, eachIndex: s.Index}
	for _, as := range r.p.groupAs(s.Group + ".ok") {
		vars[as] = item
	}
	return vars, nil
}

// afterGroup raises .all and continues the seqs when no member is pending. A handler may have
// started another round; then it does nothing.
func (r *run) afterGroup(s edda.Step) error {
	if s.Group == "" || !r.running() && !s.Late {
		return nil
	}
	if now := r.step(s.ID); now == nil || now.Command != s.Command || r.pendingIn(s.Group) > 0 {
		return nil
	}
	if _, err := r.raise(s.Group+".all", nil); err != nil {
		return err
	}
	return r.resumeThreads(s.Group, "")
}

// afterSettled continues undoing when the last pending step is settled.
func (r *run) afterSettled() error {
	if r.in.Status == edda.StatusUndoing {
		return r.unwind()
	}
	return nil
}

// olderResult settles a superseded round. It runs no handler, but pushes a frame for what may have
// happened.
func (r *run) olderResult(s edda.Step, o outcome) error {
	r.in.Older = slices.DeleteFunc(r.in.Older, func(x edda.Step) bool { return x.Command == s.Command })
	r.late(s.ID + "." + o.word)
	if r.in.Status.Finished() {
		return nil
	}
	if o.word != "failed" {
		if err := r.record(&s, o); err != nil {
			return err
		}
		r.pushStepFrame(s)
	}
	return r.afterSettled()
}

// expire settles a step or an undo whose due time has passed: its outcome is unknown.
func (r *run) expire(commandID, step string) error {
	older := slices.ContainsFunc(r.in.Older, func(s edda.Step) bool { return s.Command == commandID })
	if !older {
		r.output(edda.Output{Word: "expired", Name: step})
	}
	data, err := jsonvalue.Encode(map[string]any{"code": "expired", "message": "no result before it was due"})
	if err != nil {
		return err
	}
	return r.result(commandID, outcome{word: "timeout", data: data})
}

// answer settles an ask with a person's choice.
func (r *run) answer() error {
	s := r.step(r.ev.Step)
	trigger := r.ev.Step + "." + r.ev.Type
	if s == nil || s.Kind != edda.StepAsk || s.Status != edda.StepPending {
		r.late(trigger)
		return nil
	}
	if r.ev.Type == "timeout" || len(s.Choices) > 0 && !slices.Contains(s.Choices, r.ev.Type) {
		r.output(edda.Output{Word: "refused", Name: trigger, Reason: "choose one of " + strings.Join(s.Choices, ", ")})
		return nil
	}
	r.event = &decoded{raw: r.ev.Payload}
	o := outcome{word: r.ev.Type, data: r.ev.Payload, answer: true}
	if r.in.Status.Finished() && !s.Late {
		return r.lateResult(s, o)
	}
	return r.settleStep(s, o)
}

// incident records a failure that only an operator can settle.
func (r *run) incident(i edda.Incident) {
	i.Time = r.now
	r.dropIncident(i.Step)
	r.in.Incidents = append(r.in.Incidents, i)
	o := edda.Output{Word: "incident", Name: i.Step, Reason: i.Reason, With: i.Error}
	if i.Orphan {
		o.Reason = "orphan"
	}
	r.output(o)
}

func (r *run) dropIncident(step string) bool {
	n := len(r.in.Incidents)
	r.in.Incidents = slices.DeleteFunc(r.in.Incidents, func(i edda.Incident) bool { return i.Step == step })
	return len(r.in.Incidents) < n
}
