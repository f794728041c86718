package saga

import (
	"slices"

	"edda"
)

// startSeq runs a seq until it must wait.
func (r *run) startSeq(a *action, sc *scope, _ *member) (wait, error) {
	return wait{}, r.runSeq([]edda.SeqPosition{{Seq: a.path}}, sc)
}

// runSeq continues from a position; it owns the stack. Each element waits for the one before it
// and sees what that one did. It stops when the saga ends.
func (r *run) runSeq(stack []edda.SeqPosition, sc *scope) error {
	status := r.in.Status
	for len(stack) > 0 && r.in.Status == status {
		top := &stack[len(stack)-1]
		seq := r.p.seqs[top.Seq]
		if top.Next >= len(seq) {
			stack = stack[:len(stack)-1]
			continue
		}
		a := seq[top.Next]
		top.Next++
		if a.src.Kind == verbSeq {
			ok, err := sc.isTrue(a.iff)
			if err != nil {
				return err
			}
			if ok {
				stack = append(stack, edda.SeqPosition{Seq: a.path})
			}
			continue
		}
		w, err := r.act(a, sc, nil)
		if err != nil {
			return err
		}
		if w.ends {
			return nil
		}
		if r.in.Status == status && r.mustWait(w) {
			return r.park(stack, w, sc)
		}
	}
	return nil
}

// mustWait reports whether what a seq waits for is pending.
func (r *run) mustWait(w wait) bool {
	switch {
	case w.step == "":
		return false
	case w.command != "":
		s := r.step(w.step)
		return s != nil && s.Command == w.command && s.Status == edda.StepPending
	case r.undoing(w.step):
		return true
	}
	return r.pendingIn(w.step) > 0
}

// park stores the remaining seq as a thread, with the values that it may refer to.
func (r *run) park(stack []edda.SeqPosition, w wait, sc *scope) error {
	kept, err := sc.keep(r.p.actions[stack[0].Seq].needs)
	if err != nil {
		return err
	}
	r.in.Threads = append(r.in.Threads, edda.Thread{
		N: r.ordinal(), Stack: slices.Clip(stack), Waits: w.step, Command: w.command, Scope: kept, Late: !r.running(),
	})
	return nil
}

// resumeThreads continues every seq that waited for a group, or for this round of a step.
func (r *run) resumeThreads(waits, command string) error {
	for _, t := range r.removeThreads(func(t edda.Thread) bool { return t.Waits == waits && t.Command == command }) {
		if !r.running() && !t.Late {
			continue
		}
		if err := r.runSeq(slices.Clone(t.Stack), r.resume(t.Scope)); err != nil {
			return err
		}
	}
	return nil
}

// removeThreads removes and returns the threads that match, oldest first.
func (r *run) removeThreads(match func(edda.Thread) bool) []edda.Thread {
	var taken, kept []edda.Thread
	for _, t := range r.in.Threads {
		if match(t) {
			taken = append(taken, t)
		} else {
			kept = append(kept, t)
		}
	}
	r.in.Threads = kept
	return taken
}
