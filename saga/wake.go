package saga

import (
	"fmt"
	"slices"
	"time"

	"edda"
	"edda/internal/jsonvalue"
)

// missedAfter is how late a repeating timer with catchup: none may be without counting as missed.
const missedAfter = time.Minute

// maxFired bounds what one Wake fires, because a timer that arms itself for now, or very many
// missed ones, would occupy a worker for ever. The next wake follows at once.
const maxFired = 256

// Wake fires what is due in a cell at or before the horizon, in due order, one transition each.
// The last transition also removes the due row that woke the cell and arms the next one. If
// nothing was due, that transition has no fate.
func (s *Set) Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition) {
	a := &application{set: s, cell: cell, versions: s.allVersions(cell.Key.Saga)}
	own := func() bool { return a.cell.Instance != nil && a.cell.Instance.Armed.Equal(row) }
	used := own() // the row is the instance's, and not a stale one
	if used {
		a.cell.Instance = clone(a.cell.Instance)
		a.cell.Instance.Armed = time.Time{}
	}
	for range maxFired {
		if !a.fireNext(horizon) {
			break
		}
	}
	switch {
	case used && !slices.ContainsFunc(a.out, func(tr edda.Transition) bool { return tr.Instance != nil }):
		a.add(edda.Transition{Instance: a.cell.Instance})
	case len(a.out) == 0:
		a.add(edda.Transition{})
	}
	a.rearm()
	expires := func(e edda.Entry) bool { return e.Expires.Equal(row) }
	if len(a.cell.Held) > 0 || !own() && !slices.ContainsFunc(a.cell.Parked, expires) {
		last := &a.out[len(a.out)-1]
		last.Disarm = append(last.Disarm, row)
	}
	return a.cell, a.out
}

// fireNext fires the earliest due item, and reports whether there was one.
func (a *application) fireNext(horizon time.Time) bool {
	if len(a.cell.Held) > 0 {
		return false // the timer waits behind the poison event, too
	}
	if a.expireParked(horizon) {
		return true
	}
	in := a.cell.Instance
	if in == nil {
		return false
	}
	d, ok := earliest(in, horizon)
	if !ok || d.at.After(horizon) {
		return false
	}
	if t := d.timer; t != nil && repeats(t) && t.Catchup == "none" && horizon.Sub(d.at) > missedAfter {
		skipped := clone(in) // the timer moves on and does not fire
		for i := range skipped.Timers {
			if moved := &skipped.Timers[i]; moved.Name == t.Name && !moved.Deadline {
				moveOn(moved, d.at)
			}
		}
		a.add(edda.Transition{Instance: skipped})
		return true
	}
	a.apply(d.event(in, d.at))
	return true
}

// occurrence is when a timer fires next. A repeating timer fires its latest missed time up to the
// horizon, unless it catches up all of them. So other items that were due earlier fire before it.
func occurrence(t *edda.Timer, horizon time.Time) time.Time {
	if !repeats(t) || t.Catchup == "all" || !t.Due.Before(horizon) {
		return t.Due
	}
	at, _ := latest(t, horizon)
	return at
}

// expireParked makes a dead letter of the first parked event that has expired.
func (a *application) expireParked(horizon time.Time) bool {
	for _, e := range a.cell.Parked {
		if e.Expires.After(horizon) {
			continue
		}
		a.cell.Parked = withoutEntry(a.cell.Parked, e.N)
		d := deadLetter(e.Event, a.cell.Key, edda.DeadUnmatched, "no instance began before it expired")
		d.Time = e.Expires
		a.dead(e.Event, d)
		a.out[len(a.out)-1].Unpark = []uint64{e.N}
		return true
	}
	return false
}

// dueItem is one item that comes due.
type dueItem struct {
	at    time.Time
	order int
	kind  edda.TimerKind
	timer *edda.Timer
	step  string
	cmd   string
}

func (d dueItem) before(other dueItem) bool {
	if d.at.Equal(other.at) {
		return d.order < other.order
	}
	return d.at.Before(other.at)
}

func (d dueItem) event(in *edda.Instance, at time.Time) edda.Event {
	ev := edda.Event{
		Kind: edda.KindTimer, Timer: d.kind, Tenant: in.Key.Tenant, Key: in.Key, Time: at,
		Step: d.step, CommandID: d.cmd, Correlation: in.Correlation, Trace: in.Trace,
	}
	name := d.cmd
	if d.timer != nil {
		name, ev.Type = d.timer.Name, d.timer.Name
		ev.Payload, _ = jsonvalue.Encode(map[string]any{"name": name, "due": edda.FormatTime(at)})
	}
	ev.ID = timerID(d.kind, name, at, d.order)
	return ev
}

// earliest returns the item that comes due first. Items due at one instant fire in the order in
// which they were armed. A repeating timer counts with its occurrence at the horizon; a zero
// horizon leaves it where it is.
func earliest(in *edda.Instance, horizon time.Time) (dueItem, bool) {
	var first dueItem
	found := false
	if in.Status.Finished() {
		return first, false
	}
	eachDue(in, func(d dueItem) {
		if d.timer != nil {
			d.at = occurrence(d.timer, horizon)
		}
		if !d.at.IsZero() && (!found || d.before(first)) {
			first, found = d, true
		}
	})
	return first, found
}

func eachDue(in *edda.Instance, visit func(dueItem)) {
	for i := range in.Timers {
		t := &in.Timers[i]
		kind := edda.TimerNamed
		if t.Deadline {
			kind = edda.TimerDeadline
		}
		visit(dueItem{at: t.Due, order: t.Order, kind: kind, timer: t})
	}
	for _, s := range in.Steps {
		if s.Status == edda.StepPending && !s.Late {
			visit(dueItem{at: s.Due, order: s.Order, kind: edda.TimerDue, step: s.ID, cmd: s.Command})
		}
	}
	for _, s := range in.Older {
		visit(dueItem{at: s.Due, order: s.Order, kind: edda.TimerDue, step: s.ID, cmd: s.Command})
	}
	for _, u := range in.Undos {
		if !u.Failed {
			visit(dueItem{at: u.Due, order: u.Order, kind: edda.TimerDue, step: u.Step, cmd: u.Command})
		}
	}
}

// rearm moves the instance's row of the due index if the instance now wakes earlier. A row that is
// too early stays: its wake finds nothing and re-arms.
func (a *application) rearm() {
	in := a.cell.Instance
	if in == nil || len(a.cell.Held) > 0 {
		return
	}
	var last *edda.Transition // that changed the instance
	for i := range a.out {
		if a.out[i].Instance == in {
			last = &a.out[i]
		}
	}
	first, ok := earliest(in, time.Time{})
	if last == nil || !ok || !in.Armed.IsZero() && !first.at.Before(in.Armed) {
		return
	}
	if !in.Armed.IsZero() {
		last.Disarm = append(last.Disarm, in.Armed)
	}
	last.Arm = append(last.Arm, first.at)
	in.Armed = first.at
}

// timer fires one timer, deadline or due. A timer that is not armed any more is stale.
func (r *run) timer() error {
	switch r.ev.Timer {
	case edda.TimerDue:
		return r.expire(r.ev.CommandID, r.ev.Step)
	case edda.TimerDeadline:
		return r.deadline()
	}
	if !r.consumeTimer(*r.ev) {
		r.late("timer." + r.ev.Type)
		return nil
	}
	r.output(edda.Output{Word: "fired", Name: r.ev.Type})
	_, err := r.raise("timer."+r.ev.Type, nil)
	return err
}

// consumeTimer removes a named timer that came due, or moves a repeating one on. It reports
// whether the timer was armed.
func (r *run) consumeTimer(ev edda.Event) bool {
	for i := range r.in.Timers {
		t := &r.in.Timers[i]
		switch {
		case t.Name != ev.Type || t.Deadline || t.Due.After(ev.Time):
			continue
		case repeats(t):
			moveOn(t, ev.Time)
		default:
			r.in.Timers = slices.Delete(r.in.Timers, i, i+1)
		}
		return true
	}
	return false
}

func (r *run) deadline() error {
	r.in.Timers = slices.DeleteFunc(r.in.Timers, func(t edda.Timer) bool { return t.Deadline })
	if r.p.plain["saga.deadline"] == nil {
		return r.fail(deadlineName)
	}
	r.output(edda.Output{Word: "fired", Name: deadlineName})
	_, err := r.raise("saga.deadline", nil)
	return err
}

// Why describes in a few words what an instance waits for.
func Why(cell edda.Cell) []string {
	var out []string
	if len(cell.Held) > 0 {
		out = append(out, fmt.Sprintf("an operator: dead letter %s holds it since %s, %d events behind it",
			cell.Held[0].DeadLetter, edda.FormatTime(cell.Held[0].Event.Time), len(cell.Held)-1))
	}
	in := cell.Instance
	if in == nil {
		if len(cell.Parked) > 0 {
			out = append(out, fmt.Sprintf("an event that starts it: %d parked", len(cell.Parked)))
		}
		return out
	}
	for _, i := range in.Incidents {
		out = append(out, fmt.Sprintf("an operator: %s (%s): retry or skip %s", i.Step, i.Reason, i.Step))
	}
	if in.Status.Finished() {
		return out
	}
	return append(out, waits(in)...)
}

func waits(in *edda.Instance) []string {
	var out []string
	eachDue(in, func(d dueItem) {
		switch {
		case d.timer != nil:
			out = append(out, fmt.Sprintf("timer %s at %s", d.timer.Name, edda.FormatTime(d.at)))
		case d.at.IsZero():
			out = append(out, "step "+d.step)
		default:
			out = append(out, fmt.Sprintf("step %s until %s", d.step, edda.FormatTime(d.at)))
		}
	})
	if len(out) == 0 && in.Status == edda.StatusRunning {
		out = append(out, "an event")
	}
	return out
}
