package saga

import (
	"slices"
	"time"

	"edda"
)

// missedAfter is how late a repeating timer with catchup: none may be before
// its occurrence counts as missed.
const missedAfter = time.Minute

// Wake fires what is due in a cell at or before the horizon, in due order, one
// transition each, and settles the due row that woke it: the last transition
// removes the row and arms the next. Where nothing was due that transition has
// no fate.
func (s *Set) Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition) {
	a := &application{set: s, cell: cell, versions: s.allVersions(cell.Key.Saga)}
	moved := a.takeRow(row)
	for a.fireNext(horizon) {
		a.followUp()
	}
	if moved && !a.changed() {
		a.add(edda.Transition{Instance: a.cell.Instance})
	}
	if len(a.out) == 0 {
		a.add(edda.Transition{})
	}
	a.rearm()
	last := &a.out[len(a.out)-1]
	last.Disarm = append(last.Disarm, row)
	last.Arm = slices.DeleteFunc(last.Arm, func(t time.Time) bool { return t.Equal(row) })
	return a.cell, a.out
}

// takeRow marks the instance's own row as used up; a stale row is nobody's.
func (a *application) takeRow(row time.Time) bool {
	in := a.cell.Instance
	if in == nil || !in.Armed.Equal(row) {
		return false
	}
	a.cell.Instance = clone(in)
	a.cell.Instance.Armed = time.Time{}
	return true
}

func (a *application) changed() bool {
	return slices.ContainsFunc(a.out, func(tr edda.Transition) bool { return tr.Instance != nil })
}

// fireNext fires the earliest thing that is due.
func (a *application) fireNext(horizon time.Time) bool {
	if len(a.cell.Held) > 0 {
		return false // it waits behind the poison event, too
	}
	if a.expireParked(horizon) {
		return true
	}
	in := a.cell.Instance
	if in == nil {
		return false
	}
	d, ok := earliest(in)
	if !ok || d.at.After(horizon) {
		return false
	}
	if d.timer != nil && d.timer.Every > 0 {
		return a.fireEvery(d, horizon)
	}
	a.apply(d.event(in, d.at))
	return true
}

// fireEvery fires a repeating timer for its latest occurrence, each of them, or
// none that was missed.
func (a *application) fireEvery(d dueItem, horizon time.Time) bool {
	at := d.at
	if d.timer.Catchup != "all" {
		at = at.Add(horizon.Sub(at) / d.timer.Every * d.timer.Every)
	}
	if d.timer.Catchup == "none" && horizon.Sub(at) > missedAfter {
		a.skipTo(d.timer.Name, at.Add(d.timer.Every))
		return true
	}
	a.apply(d.event(a.cell.Instance, at))
	return true
}

// skipTo moves a repeating timer without firing it.
func (a *application) skipTo(name string, at time.Time) {
	in := clone(a.cell.Instance)
	for i := range in.Timers {
		if in.Timers[i].Name == name && !in.Timers[i].Deadline {
			in.Timers[i].Due = at
		}
	}
	a.add(edda.Transition{Instance: in})
}

// expireParked turns the first parked event that expired into a dead letter.
func (a *application) expireParked(horizon time.Time) bool {
	for _, e := range a.cell.Parked {
		if e.Expires.After(horizon) {
			continue
		}
		a.cell.Parked = withoutEntry(a.cell.Parked, e.N)
		d := deadLetter(e.Event, a.cell.Key, edda.DeadUnmatched, "no instance began before it expired")
		d.Time = e.Expires
		a.add(edda.Transition{
			Event: e.Event, Fate: edda.FateDead, Dead: d, Unpark: []uint64{e.N},
			Outputs: []edda.Output{{Word: "dead", Name: nameOf(e.Event), Reason: d.Reason}},
		})
		return true
	}
	return false
}

// dueItem is one thing that comes due.
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
		ev.Payload, _ = edda.Encode(map[string]any{"name": name, "due": edda.FormatTime(at)})
	}
	ev.ID = timerID(d.kind, name, at, d.order)
	return ev
}

// earliest is what comes due first; things due at one instant fire in the
// order in which they were armed.
func earliest(in *edda.Instance) (dueItem, bool) {
	var first dueItem
	found := false
	if in.Status.Finished() {
		return first, false
	}
	eachDue(in, func(d dueItem) {
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

// rearm moves the instance's row of the due index when it now wakes earlier. A
// row that is too early is left: it looks, finds nothing, and re-arms.
func (a *application) rearm() {
	in := a.cell.Instance
	if in == nil || len(a.cell.Held) > 0 {
		return
	}
	last := a.lastChange()
	first, ok := earliest(in)
	if last == nil || !ok || !in.Armed.IsZero() && !first.at.Before(in.Armed) {
		return
	}
	if !in.Armed.IsZero() {
		last.Disarm = append(last.Disarm, in.Armed)
	}
	last.Arm = append(last.Arm, first.at)
	in.Armed = first.at
}

func (a *application) lastChange() *edda.Transition {
	for i := len(a.out) - 1; i >= 0; i-- {
		if a.out[i].Instance == a.cell.Instance {
			return &a.out[i]
		}
	}
	return nil
}

// timer fires one timer, deadline or due. One that is no longer armed is stale.
func (r *run) timer() error {
	switch r.ev.Timer {
	case edda.TimerDue:
		return r.expire(r.ev.CommandID, r.ev.Step)
	case edda.TimerDeadline:
		return r.deadline()
	}
	for i := range r.in.Timers {
		t := &r.in.Timers[i]
		if t.Name != r.ev.Type || t.Deadline || t.Due.After(r.ev.Time) {
			continue
		}
		if t.Every > 0 {
			t.Due = r.ev.Time.Add(t.Every)
		} else {
			r.in.Timers = slices.Delete(r.in.Timers, i, i+1)
		}
		r.output(edda.Output{Word: "fired", Name: r.ev.Type})
		_, err := r.raise("timer."+r.ev.Type, nil)
		return err
	}
	return nil
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
