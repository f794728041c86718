package saga

import "edda"

// cancel cancels a timer, an ask, a pending step or a group. It does nothing if there is none of
// that name.
func (r *run) cancel(a *action, _ *scope, _ *member) error {
	name := a.src.Name.Text
	if r.dropTimer(name) {
		r.output(edda.Output{Word: "cancel", Name: name})
	}
	if s := r.step(name); s != nil && s.Status == edda.StepPending {
		r.output(edda.Output{Word: "cancel", Name: name})
		r.cancelStep(s)
		return r.afterCancelled(*s)
	}
	if r.pendingIn(name) > 0 {
		r.output(edda.Output{Word: "cancel", Name: name})
		r.cancelGroup(name)
	}
	return nil
}

// cancelStep ends the round of a pending step: its seq ends, and a result that still comes is
// late.
func (r *run) cancelStep(s *edda.Step) {
	before := *s
	r.withdraw(&before)
	before.Status = edda.StepPending
	r.supersede(before)
	s.Status, s.Revoked = edda.StepCancelled, true
}

// afterCancelled lets a group continue without its cancelled member.
func (r *run) afterCancelled(s edda.Step) error {
	if s.Group == "" {
		return nil
	}
	return r.afterGroup(s)
}

// cancelGroup cancels all members of a group's round; none of its triggers is raised.
func (r *run) cancelGroup(group string) {
	for i := range r.in.Steps {
		if s := &r.in.Steps[i]; s.Group == group && s.Status == edda.StepPending {
			r.cancelStep(s)
		}
	}
	r.dropThreads(func(t edda.Thread) bool { return t.Waits == group && t.Command == "" })
}
