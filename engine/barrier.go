package engine

import (
	"context"
	"slices"
	"time"

	"edda"
	"edda/saga"
)

const (
	// maxBarrier bounds how long events wait for a timer that is due before them: a few
	// questions to the server. A server that does not answer in that time does not
	// stop the sagas; they take the event first, then, and the history says so.
	maxBarrier = 100 * time.Millisecond
	// barrierRest is how long nothing waits after one waited in vain.
	barrierRest = time.Second
)

// timerBarrier is the time while events wait because one of them was stored after something
// came due in its key that has not fired. It may fire once everything stored by then
// is applied: so of each stream what was stored by then still goes on, and a look at their ends
// says whether there is more.
type timerBarrier struct {
	due     time.Time            // what waits to fire; zero: nothing waits
	free    int                  // of the waiting events, how many at the front go on
	blocked map[string]time.Time // streams whose next event was stored then, after due; "" for results that were handed in
	number  int                  // tells the barriers apart
	rest    time.Time            // nothing waits before
}

func (t *timerBarrier) on() bool { return !t.due.IsZero() }

// raiseBarrier has events wait for what is due at that time.
func (v *loop) raiseBarrier(due time.Time) {
	v.barrier.due, v.barrier.free, v.barrier.blocked = due, 0, map[string]time.Time{}
	v.barrier.number++
	v.metrics.turns.Inc()
	waiting := v.events
	v.events = make([]*item, 0, len(waiting))
	for _, it := range waiting {
		v.enqueue(it)
	}
	v.watermark.goal = nil // what it needs may wait here
	v.endPoller.ask()
	number := v.barrier.number
	time.AfterFunc(maxBarrier, func() {
		_ = v.post(context.Background(), func(v *loop) { v.barrierTimeout(number) }) // fails only when the engine stops
	})
	v.advance()
}

// enqueue puts an event behind those that wait, and in front of those that wait for
// their turn where it need not.
func (v *loop) enqueue(it *item) {
	switch stream, at := it.origin(); {
	case !v.barrier.on():
		v.events = append(v.events, it)
	case v.barrier.blocks(stream, at):
		v.events = append(v.events, it)
	default:
		v.events = slices.Insert(v.events, v.barrier.free, it)
		v.barrier.free++
	}
}

// blocks tells whether an event has to wait, as all of its stream behind it.
func (t *timerBarrier) blocks(stream string, at time.Time) bool {
	if _, ok := t.blocked[stream]; ok {
		return true
	}
	if at.After(t.due) {
		t.blocked[stream] = at
		return true
	}
	return false
}

// origin is the stream that an event is of, and when it was stored there; a result that
// was handed in is of none, and has the time at which it came.
func (it *item) origin() (stream string, at time.Time) {
	if it.handed != nil {
		return "", it.event.Time
	}
	p := it.position()
	return p.Stream, p.Time
}

// goingOn is how many of the waiting events may be evaluated now.
func (v *loop) goingOn() int {
	if v.barrier.on() {
		return v.barrier.free
	}
	return len(v.events)
}

// lowerBarrier ends the waiting once everything that was stored when the timer was due is
// applied, as the goal tells: the timer is within the horizon then.
func (v *loop) lowerBarrier() {
	g := v.watermark.goal
	if !v.barrier.on() || v.barrier.free > 0 || g == nil {
		return
	}
	for stream, need := range g.need {
		if _, blocked := v.barrier.blocked[stream]; !blocked && v.applied[stream].Seq < need {
			return
		}
	}
	reached := g.at
	for _, next := range v.barrier.blocked {
		reached = earlier(reached, next.Add(-1))
	}
	if reached.After(v.watermark.reached) {
		v.watermark.reached = reached
	}
	v.barrier.due = time.Time{}
}

// barrierTimeout ends a turn that took too long.
func (v *loop) barrierTimeout(number int) {
	if v.barrier.on() && v.barrier.number == number {
		v.barrier.due, v.barrier.rest = time.Time{}, time.Now().Add(barrierRest)
	}
}

// patient tells whether events may wait for a timer now.
func (v *loop) patient(now time.Time) bool { return !now.Before(v.barrier.rest) }

// decideLive applies an event behind what was due in the cell when it was stored, where
// that is within the horizon; else it tells what has to come there first. What is not
// due by our own clock is due before nothing.
func (l *lane) decideLive(cell edda.Cell, target saga.Target, it *item) (edda.Cell, []edda.Transition) {
	before := l.lagging.within(target.Key, firedBefore(&it.event))
	if l.hasToWait(cell, before) {
		return cell, nil
	}
	cell, fired := l.fire(cell, earlier(before, l.horizon), it)
	if len(fired) > 0 && l.hasToWait(cell, before) {
		return cell, nil
	}
	cell, applied := l.sagas.Apply(cell, target, it.event)
	return cell, behind(fired, applied)
}

// hasToWait tells whether something was due before that is beyond the horizon.
func (l *lane) hasToWait(cell edda.Cell, before time.Time) bool {
	row, due := dueBy(cell, before)
	if !due || !l.patient || !row.After(l.horizon) || row.After(l.now) {
		return false
	}
	l.first = row
	return true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
