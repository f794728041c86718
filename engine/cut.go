package engine

import (
	"slices"
	"time"

	"edda"
	"edda/store"
)

// maxFill bounds what is put into one change set before its positions, of which
// there is one a stream, so that the whole stays within [store.MaxChange].
const maxFill = store.MaxChange - 16<<10

// unit is what is never split over change sets: everything an event changed, or
// one transition of a due row.
type unit struct {
	it     *item
	change store.Change
	last   bool      // of its item
	time   time.Time // orders the units of what is due
}

// set is a change set on its way into the store.
type set struct {
	n      uint64 // counts up
	last   bool   // of its batch
	size   int    // about, in bytes
	retry  int    // how often the evaluator had begun anew
	change store.Change
	// items are those that end in this set: once it is durable they are done.
	items []*item
	parts []*item   // all that changed something in it
	begun time.Time // when it was submitted
}

// cut turns evaluated items into change sets. What is due comes first, its
// transitions in due order across keys; then the events in their order.
func cut(items []*item, created map[string]time.Time, n uint64) []*set {
	c := cutter{created: created, n: n}
	for _, u := range units(items) {
		c.add(u)
	}
	return c.close()
}

func units(items []*item) []unit {
	var dues, events []unit
	times := map[edda.Key]time.Time{}
	for _, it := range items {
		switch {
		case it.due == nil:
			events = append(events, whole(it))
		case it.isRow() && it.spoiled == nil:
			dues = append(dues, split(it, times)...)
		default:
			dues = append(dues, inOrder(whole(it), times))
		}
	}
	slices.SortStableFunc(dues, func(a, b unit) int { return a.time.Compare(b.time) })
	return append(dues, events...)
}

// whole is everything one item changed.
func whole(it *item) unit {
	u := unit{it: it, last: true, time: it.event.Time}
	for i, target := range it.targets {
		if target.Dead != nil {
			u.change.Dead = append(u.change.Dead, *target.Dead)
		}
		u.change.Transitions = append(u.change.Transitions, it.results[i]...)
	}
	if it.due == nil {
		u.change.Audits = audits(it)
		return u
	}
	u.time = it.due.time
	switch {
	case it.due.schedule != nil:
		u.change.Schedules = []edda.Schedule{*it.due.schedule}
	case it.due.row != nil:
		u.change.Disarm = []store.Due{*it.due.row}
	}
	return u
}

// split makes a unit of each transition of a due row. A row that changed
// nothing is a unit all the same: it must go, and whoever handed it over waits.
func split(it *item, times map[edda.Key]time.Time) []unit {
	ts := it.results[0]
	if len(ts) == 0 {
		return []unit{whole(it)}
	}
	us := make([]unit, len(ts))
	for i := range ts {
		us[i] = inOrder(unit{
			it: it, change: store.Change{Transitions: ts[i : i+1 : i+1]},
			last: i == len(ts)-1, time: firedAt(&ts[i], it.due.time),
		}, times)
	}
	return us
}

// firedAt is when a transition was due; one that only settles a row has no time
// of its own.
func firedAt(t *edda.Transition, row time.Time) time.Time {
	if t.Event.Time.IsZero() {
		return row
	}
	return t.Event.Time
}

// inOrder gives the unit a time at which it does not overtake what came before
// it for one of its keys.
func inOrder(u unit, times map[edda.Key]time.Time) unit {
	ts := u.change.Transitions
	for i := range ts {
		if t := times[ts[i].Key]; t.After(u.time) {
			u.time = t
		}
	}
	for i := range ts {
		times[ts[i].Key] = u.time
	}
	return u
}

// cutter fills one change set after the other.
type cutter struct {
	created map[string]time.Time
	n       uint64
	size    int
	open    *set
	done    []*set
}

func (c *cutter) add(u unit) {
	size := u.change.Size()
	if c.open != nil && c.size+size > maxFill {
		c.finish()
	}
	if c.open == nil {
		c.n++
		c.open, c.size = &set{n: c.n}, 0
	}
	c.size += size
	c.open.size = c.size
	c.open.take(u)
	if u.it.due == nil {
		c.open.move(edda.Checkpoint{
			Stream: u.it.event.Stream, Seq: u.it.event.Seq, Time: u.it.event.Time,
			Created: c.created[u.it.event.Stream],
		})
	}
}

func (c *cutter) finish() {
	c.open.change.Whole = len(c.open.parts) == 1
	c.done = append(c.done, c.open)
	c.open = nil
}

func (c *cutter) close() []*set {
	c.finish()
	c.done[len(c.done)-1].last = true
	return c.done
}

func (s *set) take(u unit) {
	to := &s.change
	to.Transitions = append(to.Transitions, u.change.Transitions...)
	to.Dead = append(to.Dead, u.change.Dead...)
	to.Schedules = append(to.Schedules, u.change.Schedules...)
	to.Disarm = append(to.Disarm, u.change.Disarm...)
	to.Audits = append(to.Audits, u.change.Audits...)
	s.parts = append(s.parts, u.it)
	if u.last {
		s.items = append(s.items, u.it)
	}
}

// move sets the position of one stream; there are few streams.
func (s *set) move(c edda.Checkpoint) {
	for i := range s.change.Checkpoints {
		if s.change.Checkpoints[i].Stream == c.Stream {
			s.change.Checkpoints[i] = c
			return
		}
	}
	s.change.Checkpoints = append(s.change.Checkpoints, c)
}
