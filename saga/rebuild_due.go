package saga

import (
	"cmp"
	"time"

	"edda"
)

// asItWas is a key as it stood before each row of its history, by the versions
// that decided then. Live processing fires what is due late, behind events that
// were stored after its time, where it was busy or down: what still waited here
// before a row had not fired by then.
type asItWas struct {
	rebuild
	lost bool // a version is not kept: from here on nobody knows
}

func (r *rebuild) asItWas() *asItWas {
	out := &asItWas{rebuild: rebuild{Rebuilder: r.Rebuilder, Rebuilt: Rebuilt{Cell: edda.Cell{Key: r.Cell.Key}}, marks: r.marks}}
	out.Repin = Pin{}
	return out
}

// step applies an input and what it released.
func (w *asItWas) step(rows []Past, version int) {
	if w.lost {
		return
	}
	if err := w.again(rows, version); err != nil {
		w.lose()
	}
	w.Work, w.Dead = nil, nil // they went out then
}

func (w *asItWas) lose() { w.lost, w.Cell = true, edda.Cell{Key: w.Cell.Key} }

// marked is the cell that a replay put in place, whose mark is the last row. Each
// is built once, however many there are.
func (w *asItWas) marked(rows []Past) {
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

// notBefore is the horizon for what fires in a cell: earlier where the cell waits
// for what it waited for then, too. A key that was held then fired nothing, and
// whether it would have is what the other version is to tell.
func notBefore(cell, then edda.Cell, horizon time.Time) time.Time {
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

// waiting names what comes due, alike in every version of a saga: the ids of steps
// and timers stay, those of commands may not.
type waiting struct {
	kind  edda.TimerKind // parkedDue for a parked event
	name  string
	every time.Duration
}

const parkedDue edda.TimerKind = "parked"

// pending lists what a cell waits for, and until when.
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
		return waiting{d.kind, d.timer.Name, d.timer.Every}
	}
	return waiting{kind: d.kind, name: d.step}
}

// same is what came due at a row of history, as this cell names it: none where it
// does not wait for it as the key did then. Of several rounds of a step the one
// whose command it was, else the first.
func (r *rebuild) same(row edda.Event, then edda.Cell) (edda.Event, bool) {
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
