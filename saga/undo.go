package saga

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"edda"
	"edda/internal/jsonvalue"
)

// pushStepFrame pushes the frame of a step that is or may be ok.
func (r *run) pushStepFrame(s edda.Step) {
	if a := r.p.actions[s.Action]; a == nil || a.undo == nil {
		return
	}
	r.pushFrame(edda.Frame{Step: s.ID, Command: s.Command, Action: s.Action, Input: s.Input, Result: s.Result, Scope: s.Scope})
}

func (r *run) pushFrame(f edda.Frame) {
	f.Order = r.ordinal()
	r.in.Frames = append(r.in.Frames, f)
}

func (r *run) dropFrame(command string) {
	r.in.Frames = slices.DeleteFunc(r.in.Frames, func(f edda.Frame) bool { return f.Command == command })
}

// compensate pushes a frame for something that the saga only observed.
func (r *run) compensate(a *action, sc *scope, _ *member) error {
	if !r.running() {
		return nil // nothing is undone after the end
	}
	kept, err := sc.keep(a.needs)
	if err != nil {
		return err
	}
	r.pushFrame(edda.Frame{Step: a.stepID(), Command: r.id(r.path), Action: a.path, Scope: kept})
	return nil
}

func (r *run) actDone(a *action, sc *scope, _ *member) error {
	result, err := a.value.json(sc)
	if err != nil || !r.running() {
		return err
	}
	r.in.Result = result
	r.end(edda.StatusDone)
	return nil
}

func (r *run) actFail(a *action, sc *scope, _ *member) error {
	v, err := a.value.eval(sc)
	if err != nil || !r.running() {
		return err
	}
	reason, err := identifier(v)
	if err != nil {
		return r.poison("fail: reason %v", err)
	}
	return r.fail(cmp.Or(reason, "failed"))
}

// fail fails the saga: it revokes the pending steps, waits for them, then runs the frames newest
// first. Past a must step it is refused.
func (r *run) fail(reason string) error {
	if r.in.Past {
		r.output(edda.Output{Word: "refused", Name: reason})
		r.incident(edda.Incident{Step: reason, Reason: "refused: a must step was emitted"})
		return nil
	}
	r.unbounded = true
	r.in.Status, r.in.Reason = edda.StatusUndoing, reason
	r.in.Timers = nil
	r.removeThreads(func(t edda.Thread) bool { return !t.Late })
	r.revokePending()
	r.returnFailedUndos()
	return r.unwind()
}

// revokePending revokes every pending step in id order. Asks and other steps without an outside
// party settle at once.
func (r *run) revokePending() {
	steps := make([]*edda.Step, 0, len(r.in.Steps))
	for i := range r.in.Steps {
		if s := &r.in.Steps[i]; s.Status == edda.StepPending && !s.Late {
			steps = append(steps, s)
		}
	}
	for i := range r.in.Older {
		steps = append(steps, &r.in.Older[i])
	}
	slices.SortStableFunc(steps, func(a, b *edda.Step) int { return cmp.Compare(a.ID, b.ID) })
	for _, s := range steps {
		if !s.Revoked {
			r.output(edda.Output{Word: "revoke", Name: s.ID})
			r.withdraw(s)
		}
	}
}

// withdraw revokes a pending step, and settles it if no outside party could answer.
func (r *run) withdraw(s *edda.Step) {
	s.Revoked = true
	switch s.Kind {
	case edda.StepAsk:
		s.Status = edda.StepCancelled
	case edda.StepStart:
		r.send(edda.Work{ID: r.id("cancel/" + s.Command), Kind: edda.WorkCancel, Name: s.Name, Target: s.Target, CommandID: s.Command, Step: s.ID})
	default:
		r.send(edda.Work{ID: r.id("revoke/" + s.Command), Kind: edda.WorkRevoke, Name: s.Name, CommandID: s.Command, Step: s.ID})
	}
}

// returnFailedUndos pushes the frames of failed explicit undos again, so that the unwinding
// retries them.
func (r *run) returnFailedUndos() {
	kept := r.in.Undos[:0:0]
	for _, u := range r.in.Undos {
		r.in.Frames = append(r.in.Frames, u.Rest...)
		u.Rest, u.Raise = nil, ""
		if !u.Failed {
			kept = append(kept, u)
			continue
		}
		r.dropIncident(u.Step)
		u.Frame.Attempt = u.Attempt
		if u.Unknown {
			u.Frame.Key = u.Key
		}
		r.in.Frames = append(r.in.Frames, u.Frame)
	}
	r.in.Undos = kept
	slices.SortStableFunc(r.in.Frames, func(a, b edda.Frame) int { return cmp.Compare(a.Order, b.Order) })
}

// unsettled reports whether the outcome of something that may still happen is unknown.
func (r *run) unsettled() bool {
	for _, s := range r.in.Steps {
		if s.Status == edda.StepPending && !s.Late {
			return true
		}
	}
	return len(r.in.Older) > 0 || len(r.in.Undos) > 0
}

// unwind runs the frames one at a time and newest first, or all at once with undo: parallel. The
// saga ends when there are none.
func (r *run) unwind() error {
	for r.in.Status == edda.StatusUndoing && !r.unsettled() {
		if len(r.in.Frames) == 0 {
			return r.endUndone()
		}
		for {
			f := r.in.Frames[len(r.in.Frames)-1]
			r.in.Frames = r.in.Frames[:len(r.in.Frames)-1]
			r.in.Unwound = true
			if err := r.undoFrame(f, edda.Undo{}); err != nil {
				return err
			}
			if !r.p.m.Parallel || len(r.in.Frames) == 0 {
				break
			}
		}
	}
	return nil
}

// undoAction returns the action that undoes a frame.
func (r *run) undoAction(f edda.Frame) (*action, error) {
	if a := r.p.actions[f.Action]; a != nil && a.undo != nil {
		return a.undo, nil
	}
	return nil, r.poison("frame of %s: the manifest has no undo at %s", f.Step, f.Action)
}

// undoFrame runs one frame; template has the fields of an explicit undo. A command is undone when it is
// committed, an effect when its result says so. An undo that cannot be evaluated fails like one
// whose call failed, because nothing is poison while an instance ends.
func (r *run) undoFrame(f edda.Frame, template edda.Undo) error {
	a, err := r.undoAction(f)
	if err != nil {
		return err
	}
	defer r.within(r.uniquePath(a.path))()
	u, to, wanted, err := r.evaluateUndo(a, f, template)
	switch {
	case err != nil:
		return r.undoNotSent(a, f, template, err)
	case !wanted:
		return r.undone(f, template)
	case a.src.Kind == verbCommand:
		r.sendCommand(edda.Step{ID: u.Step, Name: a.src.Name.Text, Command: r.undoID(u), To: to, Input: u.Input}, a.src.High, f.Step)
		return r.undone(f, u)
	}
	r.emitUndoEffect(a, u)
	return nil
}

// evaluateUndo evaluates the expressions of an undo; to is the address of a command. The input of
// undo: name is the step's.
func (r *run) evaluateUndo(a *action, f edda.Frame, u edda.Undo) (_ edda.Undo, to string, wanted bool, err error) {
	vars := map[string]any{"id": f.Command}
	if err := decodeInto(vars, map[string]json.RawMessage{"input": f.Input, "result": f.Result}); err != nil {
		return u, "", false, err
	}
	sc := r.resume(f.Scope).within(vars)
	if wanted, err = sc.isTrue(a.iff); err != nil || !wanted {
		return u, "", false, err
	}
	u = undoOf(a, f, u)
	u.Attempt++
	switch {
	case len(u.Input) > 0: // an operator gave it
	case a.src.Short:
		u.Input = f.Input
	default:
		if u.Input, err = a.with.json(sc); err != nil {
			return u, "", false, err
		}
	}
	if u.Wait, err = r.dueIn(a, sc); err != nil || a.src.Kind != verbCommand {
		return u, "", true, err
	}
	to, err = r.identifier(a.to, sc, "undo: to")
	return u, to, true, err
}

// undoOf makes the undo of a frame, with as many attempts as the frame has had.
func undoOf(a *action, f edda.Frame, u edda.Undo) edda.Undo {
	u.Frame, u.Step, u.Attempt = f, f.Step+".undo", f.Attempt
	u.Key, u.Unknown = f.Key, f.Key != ""
	u.EffectVersion = a.src.Version
	return u
}

// undoNotSent records a failed undo without a command. It was never sent, and a retry evaluates it
// again. Its error has the form of a step's error.
func (r *run) undoNotSent(a *action, f edda.Frame, u edda.Undo, why error) error {
	fields := map[string]any{"code": "evaluation", "message": why.Error()}
	if e := (*poisonError)(nil); errors.As(why, &e) {
		fields["message"], fields["path"] = e.message, e.path
		if e.source != "" {
			fields["source"], fields["inputs"] = e.source, e.inputs
		}
	}
	data, err := jsonvalue.Encode(fields)
	if err != nil {
		return err
	}
	u = undoOf(a, f, u)
	u.Effect, u.Input, u.Order = a.src.Name.Text, nil, r.ordinal()
	unknown := u.Unknown
	r.in.Undos = append(r.in.Undos, u)
	r.undoFailed(len(r.in.Undos)-1, outcome{word: "failed", data: data})
	r.in.Undos[len(r.in.Undos)-1].Unknown = unknown // of the last call
	return nil
}

// notSent reports whether an undo failed before it had a command.
func notSent(u edda.Undo) bool { return u.Failed && u.Command == "" }

// undoID derives the id of an undo from the command that it undoes and from nothing else. So a
// refund has the same id, and the same idempotency key, for any cause. A further attempt is
// another command.
func (r *run) undoID(u edda.Undo) string {
	path := u.Frame.Command + ".undo"
	if u.Attempt > 1 {
		path += "#" + strconv.Itoa(u.Attempt)
	}
	return commandID(r.key, r.in.Generation, u.Frame.Command, timeOf(u.Frame.Command), path)
}

func (r *run) emitUndoEffect(a *action, u edda.Undo) {
	due := cmp.Or(a.wait(u.Wait), defaultDue)
	u.Effect, u.Command, u.Failed, u.Error = a.src.Name.Text, r.undoID(u), false, nil
	u.Due, u.Order = r.now.Add(due), r.ordinal()
	if !u.Unknown || u.Key == "" {
		u.Key = u.Command
	}
	u.Unknown = false
	r.in.Undos = append(r.in.Undos, u)
	r.output(edda.Output{
		Word: "effect", Name: u.Effect, Step: u.Step, ID: u.Command, With: u.Input, Undoes: u.Frame.Step,
		Due: durationText(due), Attempt: u.Attempt, Version: u.EffectVersion,
	})
	r.send(edda.Work{
		ID: u.Command, Kind: edda.WorkEffect, Name: u.Effect, Payload: u.Input, EffectVersion: u.EffectVersion,
		Step: u.Step, Attempt: u.Attempt, IdempotencyKey: u.Key, NotAfter: u.Due, High: a.src.High,
	})
}

// undoResult settles the undo of one frame.
func (r *run) undoResult(i int, o outcome) error {
	u := r.in.Undos[i]
	if u.Failed {
		r.late(u.Step + "." + o.word)
		return nil
	}
	if !o.ok() {
		r.undoFailed(i, o)
		return nil
	}
	r.in.Undos = slices.Delete(r.in.Undos, i, i+1)
	if err := r.undone(u.Frame, u); err != nil {
		return err
	}
	return r.afterSettled()
}

func (r *run) undoFailed(i int, o outcome) {
	u := &r.in.Undos[i]
	u.Failed, u.Unknown, u.Error = true, o.word == "timeout", o.data
	if r.in.Status == edda.StatusUndoing {
		r.in.Status = edda.StatusStuck
	}
	r.incident(edda.Incident{Step: u.Step, Reason: o.word, Error: o.data})
}

// undone marks the step. For an explicit undo it continues with the remaining frames, then raises
// .undone.
func (r *run) undone(f edda.Frame, u edda.Undo) error {
	if s := r.step(f.Step); s != nil && s.Command == f.Command {
		s.Status = edda.StepUndone
	}
	if u.Raise == "" {
		return nil
	}
	if n := len(u.Rest); n > 0 && r.running() {
		next := edda.Undo{Explicit: true, Raise: u.Raise, Rest: u.Rest[: n-1 : n-1]}
		return r.undoFrame(u.Rest[n-1], next)
	}
	return r.raiseUndone(u.Raise)
}

func (r *run) raiseUndone(name string) error {
	if !r.running() {
		return nil
	}
	trigger, vars := name, map[string]any(nil)
	if base, _, member := cutLast(name, "["); member {
		trigger = base // the member's, as for its other outcomes
		if s := r.step(name); s != nil {
			var err error
			if vars, err = r.memberVars(*s); err != nil {
				return err
			}
		}
	}
	if _, err := r.raise(trigger+".undone", vars); err != nil {
		return err
	}
	return r.resumeThreads(name+".undo", "")
}

// emitUndo undoes one step, or all members of a group, while the saga runs.
func (r *run) emitUndo(a *action, sc *scope, _ *member) (wait, error) {
	name := a.src.Name.Text
	if !r.running() {
		return wait{}, nil
	}
	if a.index != nil {
		return r.emitUndoMember(a, sc)
	}
	frames := r.popFrames(name)
	w := wait{step: name + ".undo"}
	if len(frames) == 0 {
		return w, r.raiseUndone(name)
	}
	n := len(frames) - 1
	return w, r.undoFrame(frames[n], edda.Undo{Explicit: true, Raise: name, Rest: frames[:n:n]})
}

// emitUndoMember undoes a member that an expression chooses. An event may choose it twice, or too
// early, and the handler of .undone may give money back. So .undone follows only an undo that ran;
// where there is none to run it is refused, and its seq ends. An index of no member is poison.
func (r *run) emitUndoMember(a *action, sc *scope) (wait, error) {
	x, err := a.index.eval(sc)
	if err != nil {
		return wait{}, err
	}
	group := a.src.Name.Text
	index, ok := x.(int)
	if !ok {
		return wait{}, r.poison("undo: the index of a member of %s is a whole number, not a %s", group, jsonvalue.TypeName(x))
	}
	s := r.step(group + "[" + strconv.Itoa(index) + "]")
	if s == nil {
		return wait{}, r.poison("undo: there is no %s[%d]", group, index)
	}
	if why := r.notUndone(*s); why != "" {
		r.output(edda.Output{Word: "refused", Name: s.ID + ".undo", Reason: why})
		return wait{ends: true}, nil
	}
	i := slices.IndexFunc(r.in.Frames, func(f edda.Frame) bool { return f.Command == s.Command })
	name, frame := s.ID, r.in.Frames[i]
	r.in.Frames = slices.Delete(r.in.Frames, i, i+1)
	return wait{step: name + ".undo"}, r.undoFrame(frame, edda.Undo{Explicit: true, Raise: name})
}

// notUndone says why nothing can undo the latest round of a step now; empty if its frame can.
func (r *run) notUndone(s edda.Step) string {
	ofIt := func(f edda.Frame) bool { return f.Command == s.Command }
	switch {
	case s.Status == edda.StepPending:
		return "its outcome is not known yet"
	case slices.ContainsFunc(r.in.Frames, ofIt):
		return ""
	case slices.ContainsFunc(r.in.Undos, func(u edda.Undo) bool { return ofIt(u.Frame) || slices.ContainsFunc(u.Rest, ofIt) }):
		return "it is being undone"
	}
	return "nothing to undo: it is " + string(s.Status)
}

// popFrames removes and returns the newest frame of a step, or all frames of a group.
func (r *run) popFrames(name string) []edda.Frame {
	var taken, kept []edda.Frame
	for i := len(r.in.Frames) - 1; i >= 0; i-- {
		f := r.in.Frames[i]
		group, _, _ := cutLast(f.Step, "[")
		if f.Step == name && len(taken) == 0 || f.Step != name && group == name && r.p.groups[name] {
			taken = append(taken, f)
			continue
		}
		kept = append(kept, f)
	}
	slices.Reverse(taken)
	slices.Reverse(kept)
	r.in.Frames = kept
	return taken
}

// undoing reports whether an explicit undo that a seq waits for is pending.
func (r *run) undoing(waits string) bool {
	for _, u := range r.in.Undos {
		if u.Raise != "" && u.Raise+".undo" == waits {
			return true
		}
	}
	return false
}

// endUndone runs saga.failed and ends the saga.
func (r *run) endUndone() error {
	r.unbounded = true
	guarded := r.guarded
	if h := r.p.plain["saga.failed"]; h != nil {
		if err := r.handle(h, nil); err != nil {
			return err
		}
	}
	r.guarded = guarded // its condition says nothing about the trigger
	switch {
	case len(r.in.Incomplete) > 0, !r.in.Unwound:
		r.end(edda.StatusFailed)
	default:
		r.end(edda.StatusUndone)
	}
	return nil
}

// end finishes the instance: it drops everything that the instance waits for, and sends a child's
// end to its parent.
func (r *run) end(s edda.Status) {
	in := r.in
	in.Status, in.Ended = s, r.now
	in.Timers, in.Frames, in.Undos = nil, nil, nil
	r.removeThreads(func(t edda.Thread) bool { return !t.Late })
	in.Incidents = slices.DeleteFunc(in.Incidents, func(i edda.Incident) bool { return !i.Orphan })
	r.output(edda.Output{Word: "end", Name: string(s), Reason: in.Reason, Incomplete: in.Incomplete, With: in.Result})
	if in.ParentCommand == "" {
		return
	}
	w := edda.Work{
		ID: r.id("end"), Kind: edda.WorkEnd, Target: in.Parent, CommandID: in.ParentCommand,
		Outcome: edda.Succeeded, Payload: in.Result, Name: in.Key.Saga,
	}
	if in.Status != edda.StatusDone {
		w.Outcome = edda.Failed
		w.Payload, _ = jsonvalue.Encode(map[string]any{"code": string(in.Status), "reason": in.Reason, "saga": in.Key.Saga, "key": in.Key.Correlation})
	}
	r.send(w)
}
