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
	// requests for end offsets. After that they are applied before the timer, and the
	// history shows it. So a server that does not answer does not stop the sagas.
	maxBarrier = 100 * time.Millisecond
	// barrierRetry is how long no barrier is raised after one timed out.
	barrierRetry = time.Second
)

// timerBarrier makes events wait for a timer of their key that was due before they were
// stored and has not fired. The timer fires when everything stored before it was due is
// applied. So such events pass the barrier, and the end offsets tell when there are no more.
type timerBarrier struct {
	due      time.Time            // of the timer; zero while no barrier is raised
	passing  int                  // events at the front of the queue that pass
	blocked  map[string]time.Time // by stream, when its first blocked event was stored; "" for handed-in results
	id       int                  // tells this barrier from earlier ones
	disabled time.Time            // until when none is raised, after a timeout
}

func (t *timerBarrier) raised() bool { return !t.due.IsZero() }

// raiseBarrier makes events wait for a timer that was due at that time.
func (v *loop) raiseBarrier(due time.Time) {
	v.barrier.due, v.barrier.passing, v.barrier.blocked = due, 0, map[string]time.Time{}
	v.barrier.id++
	v.metrics.barriers.Inc()
	waiting := v.queue.events
	v.queue.events = make([]*item, 0, len(waiting))
	for _, it := range waiting {
		v.enqueue(it)
	}
	v.watermark.goal = nil // it may need events that the barrier blocks
	v.endPoller.ask()
	id := v.barrier.id
	time.AfterFunc(maxBarrier, func() {
		_ = v.post(context.Background(), func(v *loop) { v.barrierTimeout(id) }) // fails only when the engine stops
	})
	v.advance()
}

// enqueue appends an event to the queue. An event that passes the barrier goes before the
// blocked ones.
func (v *loop) enqueue(it *item) {
	if stream, at := it.origin(); v.barrier.raised() && !v.barrier.blocks(stream, at) {
		v.queue.events = slices.Insert(v.queue.events, v.barrier.passing, it)
		v.barrier.passing++
		return
	}
	v.queue.events = append(v.queue.events, it)
}

// blocks tells whether an event must wait. All later events of its stream wait too.
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

// origin is the stream of an event, and when it was stored there. A handed-in result has no
// stream, and the time of the hand-off.
func (it *item) origin() (stream string, at time.Time) {
	if it.handed != nil {
		return "", it.event.Time
	}
	p := it.position()
	return p.Stream, p.Time
}

// eventsReady counts the waiting events that no barrier blocks.
func (v *loop) eventsReady() int {
	if v.barrier.raised() {
		return v.barrier.passing
	}
	return len(v.queue.events)
}

// lowerBarrier ends the barrier when everything stored before the timer was due is applied,
// as the goal tells. The watermark then covers the timer.
func (v *loop) lowerBarrier() {
	g := v.watermark.goal
	if !v.barrier.raised() || v.barrier.passing > 0 || g == nil {
		return
	}
	for stream, need := range g.need {
		if _, blocked := v.barrier.blocked[stream]; !blocked && v.positions.applied[stream].Seq < need {
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

// barrierTimeout ends the barrier of that id if it is still raised.
func (v *loop) barrierTimeout(id int) {
	if v.barrier.raised() && v.barrier.id == id {
		v.barrier.due, v.barrier.disabled = time.Time{}, time.Now().Add(barrierRetry)
	}
}

// barrierAllowed tells whether a lane may ask for a barrier.
func (v *loop) barrierAllowed(now time.Time) bool { return !now.Before(v.barrier.disabled) }

// decideLive applies an event after the timers of its cell that were due before it was
// stored. When such a timer is beyond the watermark, the lane asks for a barrier.
func (l *lane) decideLive(cell edda.Cell, target saga.Target, it *item) (edda.Cell, []edda.Transition) {
	before := l.laggards.within(target.Key, firedBefore(&it.event))
	if l.mustWait(cell, before) {
		return cell, nil
	}
	cell, fired := l.fire(cell, earlier(before, l.watermark), it)
	if len(fired) > 0 && l.mustWait(cell, before) {
		return cell, nil
	}
	cell, applied := l.sagas.Apply(cell, target, it.event)
	return cell, concat(fired, applied)
}

// mustWait tells whether a timer of the cell was due by then and is beyond the watermark,
// and asks for a barrier. A timer in the future of our own clock makes no event wait.
func (l *lane) mustWait(cell edda.Cell, before time.Time) bool {
	row, due := dueBy(cell, before)
	if !due || !l.barrierAllowed || !row.After(l.watermark) || row.After(l.now) {
		return false
	}
	l.waitFor = row
	return true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
