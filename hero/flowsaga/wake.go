package flowsaga

import (
	"strconv"
	"time"

	"edda"
)

// wake does what is due at or before the horizon, in due order, one transition
// each, and settles the due row that woke it: the last transition removes the
// row and arms the next.
func (a *application) wake(row, horizon time.Time) {
	if in := a.cell.Instance; in != nil && in.Armed.Equal(row) {
		used := *in
		used.Armed = time.Time{}
		a.cell.Instance = &used
	}
	a.look(horizon)
	if len(a.out) == 0 {
		a.add(edda.Transition{Instance: a.cell.Instance})
	}
	a.rearm()
	if in := a.cell.Instance; in == nil || !in.Armed.Equal(row) {
		last := &a.out[len(a.out)-1]
		last.Disarm = append(last.Disarm, row)
	}
}

// look gives the flow the times that have come.
func (a *application) look(horizon time.Time) {
	for range maxLooks {
		in := a.cell.Instance
		if in == nil || in.Status.Finished() {
			return
		}
		state, err := a.state()
		if err != nil {
			return
		}
		due := state.Next()
		if due.IsZero() || due.After(horizon) {
			return
		}
		ev := dueEvent(in, due)
		next, acts := state.Tick(due)
		a.step(copyOf(in, due), ev, next, acts)
	}
}

func dueEvent(in *edda.Instance, due time.Time) edda.Event {
	return edda.Event{
		Kind: edda.KindTimer, Timer: edda.TimerNamed, Type: "due", Tenant: in.Key.Tenant, Key: in.Key, Time: due,
		ID:          "timer/flow/" + strconv.FormatInt(due.UnixMilli(), 10),
		Correlation: in.Correlation, Trace: in.Trace,
	}
}

// rearm moves the flow's row of the due index when it now wakes earlier. A row
// that is too early is left: it looks, finds nothing, and re-arms.
func (a *application) rearm() {
	in := a.cell.Instance
	if in == nil || in.Status.Finished() || len(a.out) == 0 {
		return
	}
	last := &a.out[len(a.out)-1]
	state, err := a.state()
	if err != nil || last.Instance != in {
		return
	}
	due := state.Next()
	if due.IsZero() || !in.Armed.IsZero() && !due.Before(in.Armed) {
		return
	}
	if !in.Armed.IsZero() {
		last.Disarm = append(last.Disarm, in.Armed)
	}
	last.Arm = append(last.Arm, due)
	in.Armed = due
}
