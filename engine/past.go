package engine

import (
	"time"

	"edda"
	"edda/saga"
)

// maxPastFired bounds the transitions of timers that fire before one past event and commit
// with it. Timers beyond it fire after the event, as they do in a late process.
const maxPastFired = 1024

// decidePast applies an event of the past, before which everything stored earlier is applied.
// The timers of the cell that were due by then fire first. So a store that was restored, or
// whose process was down, applies a timer before the results of the timer's commands.
func (l *lane) decidePast(cell edda.Cell, target saga.Target, it *item) (edda.Cell, []edda.Transition) {
	before := firedBefore(&it.event)
	if it.lag == nil {
		before = l.laggards.within(target.Key, before)
	}
	cell, fired := l.fire(cell, before, it)
	cell, applied := l.sagas.Apply(cell, target, it.event)
	return cell, concat(fired, applied)
}

// fire fires the timers of a cell that are due by a time.
func (l *lane) fire(cell edda.Cell, by time.Time, it *item) (edda.Cell, []edda.Transition) {
	var fired []edda.Transition
	for len(fired) < maxPastFired {
		row, due := dueBy(cell, by)
		if !due {
			break
		}
		upTo := by
		if it.lived { // the occurrences of a repeating timer fired one by one
			upTo = row
		}
		next, changed := l.sagas.Wake(cell, row, upTo)
		cell, fired = next, append(fired, changed...)
	}
	return cell, fired
}

// MaxSkew bounds how far the clock of the streams' server may be behind ours.
const MaxSkew = time.Minute

// firedBefore is the time up to which timers fire before an event: those due earlier than it
// was stored. A result comes after its command whatever the server's clock says, so timers
// due by the time of the command fire before the result.
func firedBefore(ev *edda.Event) time.Time {
	before := ev.Time.Add(-1)
	if ev.Kind != edda.KindResult {
		return before
	}
	if sent := saga.CommandTime(ev.CommandID); sent.After(before) && sent.Before(ev.Time.Add(MaxSkew)) {
		return sent
	}
	return before
}

// dueBy returns a row of the cell in the due index that is due by a time. A held key fires
// nothing.
func dueBy(cell edda.Cell, by time.Time) (row time.Time, due bool) {
	if len(cell.Held) > 0 {
		return row, false
	}
	if in := cell.Instance; in != nil && !in.Armed.IsZero() && !in.Armed.After(by) {
		return in.Armed, true
	}
	for _, e := range cell.Parked {
		if !e.Expires.After(by) {
			return e.Expires, true
		}
	}
	return row, false
}
