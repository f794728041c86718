package engine

import (
	"iter"
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
	encoded     []store.Encoded
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
	change store.Change
	units  []unit
	begun  time.Time // when it was submitted
	// encoders are those of its batch, where it is the last one.
	encoders []*store.Encoder
	// patient is set on one that only moves positions, and is alone.
	patient bool
	notes   []store.Audit // of the audits, those that are written again where the set is lost
}

// ended calls do with the items that end in this set: once it is durable they are done.
func (s *set) ended(do func(*item)) {
	for i := range s.units {
		if s.units[i].last {
			do(s.units[i].it)
		}
	}
}

// transitions are those of all units.
func (s *set) transitions() iter.Seq2[int, *edda.Transition] {
	return func(yield func(int, *edda.Transition) bool) {
		for i := range s.units {
			for j := range s.units[i].transitions {
				if !yield(j, &s.units[i].transitions[j]) {
					return
				}
			}
		}
	}
}

// cut turns evaluated items into change sets. What is due comes first, its
// transitions in due order across keys; then the events in their order.
func (c *cutter) cut(items []*item) []*set {
	all, from := units(items), 0
	for i := range all {
		all[i].measure()
		if size := all[i].size; i > from && c.size+size > maxFill {
			c.close(all[from:i])
			from = i
		}
		c.size += all[i].size
	}
	c.close(all[from:])
	c.done[len(c.done)-1].last = true
	return c.done
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
		u.encoded = behind(u.encoded, it.encoded[i])
	}
	u.encoded = behind(u.encoded, it.result)
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
	if it.handed != nil && len(it.result) == 0 { // no lane had it
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

// measure sets the size.
func (u *unit) measure() {
	var rest store.Change
	u.rest(&rest)
	u.size = rest.Size()
	for i := range u.encoded {
		u.size += u.encoded[i].Size()
	}
}

// behind puts what one target changed behind what others did: mostly there are no others,
// and it stays where it is.
func behind[T any](all, more []T) []T {
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
			it: it, transitions: ts[i : i+1 : i+1], encoded: it.encoded[0][i : i+1 : i+1],
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
	n       uint64
	size    int // of the open set
	done    []*set
}

// close makes a set of units.
func (c *cutter) close(units []unit) {
	c.n++
	s := &set{n: c.n, size: c.size, units: units}
	n := 0
	for i := range units {
		n += len(units[i].encoded)
	}
	s.change.Whole = len(units) == 1
	s.change.Encoded = make([]store.Encoded, 0, n)
	for i := range units {
		u := &units[i]
		s.change.Encoded = append(s.change.Encoded, u.encoded...)
		u.rest(&s.change)
		if at := u.it.position(); u.it.due == nil && at.Stream != "" {
			at.Created = c.created[at.Stream]
			if l := u.it.lag; l != nil {
				s.cover(l.SagaTenant, at)
			} else {
				s.move(at)
			}
		}
	}
	c.done, c.size = append(c.done, s), 0
}

// onlyMoves tells whether the set only moves positions: past copies, and events that no
// saga is for. If that were lost, nothing but these would be read again. Nobody waits for it,
// as who handed in what is due would.
func (s *set) onlyMoves() bool {
	if slices.ContainsFunc(s.units, func(u unit) bool { return u.it.due != nil }) {
		return false
	}
	c := &s.change
	return len(c.Encoded)+len(c.Claims)+len(c.Work)+len(c.Dead)+len(c.Audits)+len(c.Schedules)+len(c.Disarm) == 0
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
