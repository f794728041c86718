package engine

import (
	"iter"
	"slices"
	"time"

	"edda"
	"edda/store"
)

// moveWithin is how long a set that only moves positions may wait for another commit to join.
// So the next input does not wait behind a commit that only moves positions.
const moveWithin = 20 * time.Millisecond

// maxFill bounds a change set without its positions. Each stream adds one, so that the whole
// stays within [store.MaxChange].
const maxFill = store.MaxChange - 16<<10

// unit is never split over change sets: everything an event changed, or one transition of a
// due row.
type unit struct {
	it          *item
	transitions []edda.Transition
	encoded     []store.Encoded
	whole       bool // has everything that its item changed
	size        int
	last        bool      // of its item
	time        time.Time // orders the units of due inputs
}

// set is a change set on its way into the store.
type set struct {
	n         uint64 // counts up
	last      bool   // of its batch
	size      int    // roughly, in bytes
	change    store.Change
	units     []unit
	submitted time.Time
	encoders  []*store.Encoder // of its batch, if the set is the last one
	deferred  bool             // its commit may wait moveWithin; at most one such set is in flight
	audits    []store.Audit    // of the loop itself, to be written again if the set fails
}

// ended calls do with the items that are durable once this set is.
func (s *set) ended(do func(*item)) {
	for i := range s.units {
		if s.units[i].last {
			do(s.units[i].it)
		}
	}
}

// transitions iterates over the transitions of all units.
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

// cut turns evaluated items into change sets: first the due inputs, their transitions in due
// order across keys, then the events in their order.
func (c *cutter) cut(items []*item) []*set {
	all, from, bound := units(items), 0, maxFill
	// gofail: var cutBound int
	// bound = cutBound
	for i := range all {
		all[i].measure()
		if size := all[i].size; i > from && c.size+size > bound {
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

// dues counts the due inputs of a batch, which are its first items.
func dues(items []*item) int {
	n := slices.IndexFunc(items, func(it *item) bool { return it.due == nil })
	if n < 0 {
		return len(items)
	}
	return n
}

// whole is the unit of everything that one item changed.
func whole(it *item) unit {
	u := unit{it: it, whole: true, last: true, time: it.event.Time}
	for i := range it.targets {
		u.transitions = concat(u.transitions, it.results[i])
		u.encoded = concat(u.encoded, it.encoded[i])
	}
	u.encoded = concat(u.encoded, it.result)
	if it.due != nil {
		u.time = it.due.time
	}
	return u
}

// addPlain adds the rows of the unit that no lane encoded.
func (u *unit) addPlain(to *store.Change) {
	it := u.it
	if !u.whole {
		return
	}
	for i := range it.targets {
		if dead := it.targets[i].Dead; dead != nil {
			to.Dead = append(to.Dead, *dead)
		}
	}
	if it.handed != nil && len(it.result) == 0 { // without targets it came to no lane
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

func (u *unit) measure() {
	var plain store.Change
	u.addPlain(&plain)
	u.size = plain.Size()
	for i := range u.encoded {
		u.size += u.encoded[i].Size()
	}
}

// concat appends more to all. If all is empty, it returns more without a copy.
func concat[T any](all, more []T) []T {
	if len(all) == 0 {
		return slices.Clip(more)
	}
	return append(all, more...)
}

// split makes a unit of each transition of a due row. A row that changed nothing is a unit
// too, because the row must be removed and its caller be answered.
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

// firedAt is when a transition was due. One that only removes a row has the row's time.
func firedAt(t *edda.Transition, row time.Time) time.Time {
	if t.Event.Time.IsZero() {
		return row
	}
	return t.Event.Time
}

// inOrder raises the unit's time to that of earlier units of its keys, so that it does not
// overtake them.
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

// cutter builds the change sets of a batch.
type cutter struct {
	created map[string]time.Time
	applied map[string]edda.Checkpoint // positions of the main line before the batch
	n       uint64
	size    int // of the open set
	done    []*set
}

// close makes a set of the units.
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
		u.addPlain(&s.change)
		if at := u.it.position(); u.it.due == nil && at.Stream != "" {
			at.Created = c.created[at.Stream]
			if u.it.event.More {
				at = c.partly(s, u.it, at)
			}
			if l := u.it.lag; l != nil {
				s.moveLaggard(l.SagaTenant, at)
			} else {
				s.move(at)
			}
		}
	}
	c.done, c.size = append(c.done, s), 0
}

// partly is the position within a message whose last member is yet to be applied: the position
// before it, and the members.
func (c *cutter) partly(s *set, it *item, at edda.Checkpoint) edda.Checkpoint {
	from, known := c.before(s, it.lag, at.Stream)
	if !known {
		from = edda.Checkpoint{Stream: at.Stream, Seq: at.Seq - 1}
	}
	from.Created, from.Partly = at.Created, &edda.Partly{Seq: at.Seq, Time: at.Time, Members: it.event.Member}
	return from
}

// before is the position so far: that of the open set, of those before it, or before the batch.
func (c *cutter) before(open *set, l *laggard, stream string) (at edda.Checkpoint, known bool) {
	for _, s := range slices.Backward(append(slices.Clip(c.done), open)) {
		if at, known := s.position(l, stream); known {
			return at, true
		}
	}
	if l != nil {
		at, known = l.applied[stream]
	} else {
		at, known = c.applied[stream]
	}
	return at, known
}

// position is where the set moves a stream, for the main line or for a laggard.
func (s *set) position(l *laggard, stream string) (at edda.Checkpoint, moved bool) {
	if l == nil {
		i := slices.IndexFunc(s.change.Checkpoints, func(c edda.Checkpoint) bool { return c.Stream == stream })
		if i < 0 {
			return at, false
		}
		return s.change.Checkpoints[i], true
	}
	i := slices.IndexFunc(s.change.Positions, func(p store.SagaPosition) bool {
		return p.Tenant == l.Tenant && p.Saga == l.Saga && p.Stream == stream
	})
	if i < 0 {
		return at, false
	}
	return s.change.Positions[i].Checkpoint, true
}

// onlyMoves tells whether the set only moves positions, past echoes and ignored events. If it
// were lost, only these would be read again. A set with a due input is none, because a caller
// waits for it.
func (s *set) onlyMoves() bool {
	if slices.ContainsFunc(s.units, func(u unit) bool { return u.it.due != nil }) {
		return false
	}
	c := &s.change
	return len(c.Encoded)+len(c.Claims)+len(c.Work)+len(c.Dead)+len(c.Audits)+len(c.Schedules)+len(c.Disarm) == 0
}

// within is how long the commit of the set may wait for another to join.
func (s *set) within() time.Duration {
	if s.deferred {
		return moveWithin
	}
	return 0
}

func (s *set) moves(stream string) bool {
	return slices.ContainsFunc(s.change.Checkpoints, func(c edda.Checkpoint) bool { return c.Stream == stream })
}

// move sets the position of one stream.
func (s *set) move(c edda.Checkpoint) {
	for i := range s.change.Checkpoints {
		if s.change.Checkpoints[i].Stream == c.Stream {
			s.change.Checkpoints[i] = c
			return
		}
	}
	s.change.Checkpoints = append(s.change.Checkpoints, c)
}

// moveLaggard sets the position of a laggard in one stream.
func (s *set) moveLaggard(p SagaTenant, at edda.Checkpoint) {
	for i := range s.change.Positions {
		if q := &s.change.Positions[i]; q.Tenant == p.Tenant && q.Saga == p.Saga && q.Stream == at.Stream {
			q.Checkpoint = at
			return
		}
	}
	s.change.Positions = append(s.change.Positions, store.SagaPosition{Tenant: p.Tenant, Saga: p.Saga, Checkpoint: at})
}

func (s *set) movesLaggard(p SagaTenant) bool {
	return slices.ContainsFunc(s.change.Positions, func(q store.SagaPosition) bool { return q.Tenant == p.Tenant && q.Saga == p.Saga })
}
