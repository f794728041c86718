package engine

import (
	"slices"
	"time"

	"edda"
	"edda/store"
)

// moveWithin is how long positions wait for a commit to be moved with, so that what comes
// next does not wait behind one of their own.
const moveWithin = 20 * time.Millisecond

// maxFill bounds what is put into one change set before its positions, of which
// there is one a stream, so that the whole stays within [store.MaxChange].
const maxFill = store.MaxChange - 16<<10

// unit is what is never split over change sets: everything an event changed, or
// one transition of a due row.
type unit struct {
	it          *item
	transitions []edda.Transition
	whole       bool      // all else that the item changed is of it, too
	size        int       // of all of it
	last        bool      // of its item
	time        time.Time // orders the units of what is due
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
	// patient is set on one that only moves positions, and is alone.
	patient bool
	notes   []store.Audit // of the audits, those that are written again where the set is lost
}

// cut turns evaluated items into change sets. What is due comes first, its
// transitions in due order across keys; then the events in their order.
func (c *cutter) cut(items []*item) []*set {
	all := units(items)
	var scratch store.Change
	for i := range all {
		all[i].measure(&scratch)
	}
	for i := range all {
		c.add(all[i:])
	}
	return c.close()
}

func units(items []*item) []unit {
	all := make([]unit, 0, len(items))
	times := make(map[edda.Key]time.Time, dues(items))
	for _, it := range items {
		switch {
		case it.due == nil:
		case it.isRow() && it.spoiled == nil:
			all = split(all, it, times)
		default:
			all = append(all, inOrder(whole(it), times))
		}
	}
	slices.SortStableFunc(all, func(a, b unit) int { return a.time.Compare(b.time) })
	for _, it := range items {
		if it.due == nil {
			all = append(all, whole(it))
		}
	}
	return all
}

// dues is how many of a batch's items are due: they are its first.
func dues(items []*item) int {
	n := slices.IndexFunc(items, func(it *item) bool { return it.due == nil })
	if n < 0 {
		return len(items)
	}
	return n
}

// whole is everything one item changed.
func whole(it *item) unit {
	u := unit{it: it, whole: true, last: true, time: it.event.Time}
	for i := range it.targets {
		u.transitions = behind(u.transitions, it.results[i])
	}
	if it.due != nil {
		u.time = it.due.time
	}
	return u
}

// rest adds what there is of the unit besides transitions.
func (u *unit) rest(to *store.Change) {
	it := u.it
	if !u.whole {
		return
	}
	for i := range it.targets {
		if dead := it.targets[i].Dead; dead != nil {
			to.Dead = append(to.Dead, *dead)
		}
	}
	if it.handed != nil {
		to.Claims, to.Work = append(to.Claims, it.handed.claim), append(to.Work, it.handed.echo)
	}
	switch {
	case it.due == nil:
		to.Audits = append(to.Audits, audits(it)...)
	case it.due.schedule != nil:
		to.Schedules = append(to.Schedules, *it.due.schedule)
	case it.due.row != nil:
		to.Disarm = append(to.Disarm, *it.due.row)
	}
}

// measure sets the size; scratch is for it to work in.
func (u *unit) measure(scratch *store.Change) {
	*scratch = store.Change{
		Transitions: u.transitions, Dead: scratch.Dead[:0], Claims: scratch.Claims[:0], Work: scratch.Work[:0],
		Audits: scratch.Audits[:0], Schedules: scratch.Schedules[:0], Disarm: scratch.Disarm[:0],
	}
	u.rest(scratch)
	u.size = scratch.Size()
}

// behind puts the transitions of one target behind those of others: mostly there are
// no others, and they stay where they are.
func behind(all, more []edda.Transition) []edda.Transition {
	if len(all) == 0 {
		return slices.Clip(more)
	}
	return append(all, more...)
}

// split makes a unit of each transition of a due row. A row that changed
// nothing is a unit all the same: it must go, and whoever handed it over waits.
func split(all []unit, it *item, times map[edda.Key]time.Time) []unit {
	ts := it.results[0]
	if len(ts) == 0 {
		return append(all, whole(it))
	}
	for i := range ts {
		all = append(all, inOrder(unit{
			it: it, transitions: ts[i : i+1 : i+1],
			last: i == len(ts)-1, time: firedAt(&ts[i], it.due.time),
		}, times))
	}
	return all
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
	ts := u.transitions
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
	spare   *spare
	n       uint64
	size    int
	open    *set
	done    []*set
}

// add takes the first of what is left.
func (c *cutter) add(left []unit) {
	u := &left[0]
	if c.open != nil && c.size+u.size > maxFill {
		c.finish()
	}
	if c.open == nil {
		c.begin(left)
	}
	c.size += u.size
	c.open.size = c.size
	c.open.take(u)
	if at := u.it.position(); u.it.due == nil && at.Stream != "" {
		at.Created = c.created[at.Stream]
		if l := u.it.lag; l != nil {
			c.open.cover(l.Pair, at)
		} else {
			c.open.move(at)
		}
	}
}

// begin opens a set with room for what will go into it of what is left.
func (c *cutter) begin(left []unit) {
	c.n++
	c.open, c.size = &set{n: c.n}, 0
	size, units, transitions, handed := 0, 0, 0, 0
	for i := range left {
		if size += left[i].size; i > 0 && size > maxFill {
			break
		}
		units++
		transitions += len(left[i].transitions)
		if left[i].it.handed != nil {
			handed++
		}
	}
	l := c.spare.take(transitions, handed)
	c.open.change.Transitions, c.open.change.Claims, c.open.change.Work = l.transitions, l.claims, l.work
	c.open.parts, c.open.items = make([]*item, 0, units), make([]*item, 0, units)
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

func (s *set) take(u *unit) {
	s.change.Transitions = append(s.change.Transitions, u.transitions...)
	if n := len(s.change.Transitions); u.whole {
		u.it.moved(s.change.Transitions[n-len(u.transitions) : n : n])
	}
	u.rest(&s.change)
	s.parts = append(s.parts, u.it)
	if u.last {
		s.items = append(s.items, u.it)
	}
}

// onlyMoves tells whether the set only moves positions: past copies, and events that no
// saga is for. If that were lost, nothing but these would be read again. Nobody waits for it,
// as who handed in what is due would.
func (s *set) onlyMoves() bool {
	if slices.ContainsFunc(s.items, func(it *item) bool { return it.due != nil }) {
		return false
	}
	c := &s.change
	return len(c.Transitions)+len(c.Claims)+len(c.Work)+len(c.Dead)+len(c.Audits)+len(c.Schedules)+len(c.Disarm) == 0
}

// within is how long the set may wait for a commit that it can go with.
func (s *set) within() time.Duration {
	if s.patient {
		return moveWithin
	}
	return 0
}

func (s *set) moves(stream string) bool {
	return slices.ContainsFunc(s.change.Checkpoints, func(c edda.Checkpoint) bool { return c.Stream == stream })
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
