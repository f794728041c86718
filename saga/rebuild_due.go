package saga

import (
	"cmp"
	"slices"
	"time"

	"edda"
)

// original rebuilds a key in step with the repinned one, with the versions that decided then. Its cell is
// the key as it was before the current row. A busy or stopped process fires due timers late, after
// events that were stored later than they were due. A timer that is pending here had not fired yet.
type original struct {
	rebuild
	lost bool // a version is not stored: the cell is unknown until the next mark
}

func (r *rebuild) newOriginal() *original {
	out := &original{rebuild: rebuild{Rebuilder: r.Rebuilder, Rebuilt: Rebuilt{Cell: edda.Cell{Key: r.Cell.Key}}, marks: r.marks}}
	out.Repin = Pin{}
	return out
}

// step applies an input and what it released.
func (w *original) step(rows []Past, version int) {
	if w.lost {
		return
	}
	if err := w.reapply(rows, version); err != nil {
		w.lose()
	}
	w.Work, w.Dead = nil, nil // they were sent at the time
}

func (w *original) lose() { w.lost, w.Cell = true, edda.Cell{Key: w.Cell.Key} }

// marked takes the cell that a replay put in place; its mark is the last row. Each such cell is
// built once.
func (w *original) marked(rows []Past) {
	cell, known := w.marks[len(rows)]
	if !known {
		built, err := w.Rebuilder.rebuild(w.Cell.Key, rows, w.marks)
		if err != nil {
			w.lose()
			return
		}
		cell = built.Cell
		w.marks[len(rows)] = cell
	}
	w.lost, w.Cell = false, cell
}

// firingHorizon returns the horizon up to which a cell fires. It lies just before the first thing
// that both cells still wait for, because that fires at a later row. While the original is held it
// fires nothing, so the horizon stays and the cell's version decides.
func firingHorizon(cell, then edda.Cell, horizon time.Time) time.Time {
	if len(then.Held) > 0 {
		return horizon
	}
	waited := pending(then)
	for thing, at := range pending(cell) {
		if was, both := waited[thing]; both && was.Equal(at) && !at.After(horizon) {
			horizon = at.Add(-1)
		}
	}
	return horizon
}

// waiting identifies what comes due, alike in every version of a saga. It has the ids of steps and
// timers; those of commands may differ.
type waiting struct {
	kind  edda.TimerKind // parkedDue for a parked event
	name  string
	every string // of a repeating timer
}

const parkedDue edda.TimerKind = "parked"

// pending returns what a cell waits for, with the time at which each is due.
func pending(c edda.Cell) map[waiting]time.Time {
	out := map[waiting]time.Time{}
	for _, e := range c.Parked {
		out[waiting{kind: parkedDue, name: e.Event.ID}] = e.Expires
	}
	if c.Instance == nil || c.Instance.Status.Finished() {
		return out
	}
	eachDue(c.Instance, func(d dueItem) {
		w := d.waiting()
		if at, there := out[w]; !d.at.IsZero() && (!there || d.at.Before(at)) {
			out[w] = d.at
		}
	})
	return out
}

func (d dueItem) waiting() waiting {
	if d.timer != nil {
		w := waiting{kind: d.kind, name: d.timer.Name, every: d.timer.Every.String()}
		if c := d.timer.Calendar; c != nil {
			w.every = c.Every
		}
		return w
	}
	return waiting{kind: d.kind, name: d.step}
}

// sameDue returns the event of a history row that came due, as this cell makes it; false if the cell
// does not wait for it. Of several rounds of a step it takes the one with the same command, or else
// the first.
func (r *rebuild) sameDue(row edda.Event, then edda.Cell) (edda.Event, bool) {
	in := r.Cell.Instance
	if in == nil || in.Status.Finished() || len(r.Cell.Held) > 0 {
		return edda.Event{}, false
	}
	var found *dueItem
	waited := pending(then)
	eachDue(in, func(d dueItem) {
		w := d.waiting()
		was, both := waited[w]
		switch {
		case w.kind != row.Timer || w.name != cmp.Or(row.Type, row.Step) || !both || !was.Equal(d.at) || d.at.After(row.Time):
		case found == nil, found.cmd != row.CommandID && (d.cmd == row.CommandID || d.before(*found)):
			found = &d
		}
	})
	if found == nil {
		return edda.Event{}, false
	}
	return found.event(in, row.Time), true
}

// dueAsRecorded returns the cell with the timer that a history row fired, due at the recorded time.
// Zone data of another release compute another time from the same event: without this the firing
// would be late, or its occurrence would fire again.
func dueAsRecorded(cell edda.Cell, row Past) edda.Cell {
	t := namedTimer(cell, row.Event.Type)
	if row.Event.Kind != edda.KindTimer || row.Event.Timer != edda.TimerNamed || row.Fate == edda.FateLate || t == nil {
		return cell
	}
	recorded := *t
	switch {
	case t.Calendar != nil:
		c := *t.Calendar
		c.N = nearest(t, row.Event.Time)
		recorded.Calendar, recorded.Due = &c, row.Event.Time
	case t.Every == 0 && t.Due.After(row.Event.Time):
		recorded.Due = row.Event.Time
	default:
		return cell
	}
	cell.Instance = clone(cell.Instance)
	*namedTimer(cell, row.Event.Type) = recorded
	return cell
}

// nearest returns the number of the occurrence that is nearest to a recorded time. Rules of a zone
// change by hours, and the occurrences of a calendar are days apart.
func nearest(t *edda.Timer, recorded time.Time) int {
	at, n := latest(t, recorded)
	next := *t.Calendar
	next.N = n + 1
	if after := occurs(next); after.Sub(recorded) < recorded.Sub(at) {
		return next.N
	}
	return n
}

// sameTimer reports whether two cells wait for the same timer of a name.
func sameTimer(a, b edda.Cell, name string) bool {
	x, y := namedTimer(a, name), namedTimer(b, name)
	return x != nil && y != nil && x.Due.Equal(y.Due) && sameSeries(x, y)
}

func namedTimer(cell edda.Cell, name string) *edda.Timer {
	if cell.Instance == nil {
		return nil
	}
	i := slices.IndexFunc(cell.Instance.Timers, func(t edda.Timer) bool { return t.Name == name && !t.Deadline })
	if i < 0 {
		return nil
	}
	return &cell.Instance.Timers[i]
}
