package engine

import (
	"time"

	"edda"
	"edda/saga"
)

// maxPastFired bounds what fires before one event of the past, which is committed with
// it. What is due even then fires behind the event, as it does where a process is late.
const maxPastFired = 1024

// decidePast applies an event before which everything that was stored before it has
// been applied: what was due in the cell by then fires first, as it did or would have
// done. So a store that is behind its streams, because it was restored or its process
// was down, meets the answers to what a timer did after the timer.
func (l *lane) decidePast(cell edda.Cell, target saga.Target, it *item) (edda.Cell, []edda.Transition) {
	before := firedBefore(&it.event)
	if it.lag == nil {
		before = l.lagging.within(target.Key, before)
	}
	cell, fired := l.fire(cell, before, it)
	cell, applied := l.sagas.Apply(cell, target, it.event)
	return cell, behind(fired, applied)
}

// fire does what is due in a cell at or before then.
func (l *lane) fire(cell edda.Cell, then time.Time, it *item) (edda.Cell, []edda.Transition) {
	var fired []edda.Transition
	for len(fired) < maxPastFired {
		row, due := dueBy(cell, then)
		if !due {
			break
		}
		horizon := then
		if it.lived { // each occurrence of a repeating timer fired by itself
			horizon = row
		}
		next, changed := l.sagas.Wake(cell, row, horizon)
		cell, fired = next, append(fired, changed...)
	}
	return cell, fired
}

// MaxSkew bounds how far the clock of the streams' server may be behind ours.
const MaxSkew = time.Minute

// firedBefore is until when what is due has fired before an event. Of one moment the
// event comes first; but a result comes after the command that it answers, whatever
// the server's clock says, and so after what was due when that was sent.
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

// dueBy is a row of the cell's in the due index that has come by then. A key that is
// held fires nothing.
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
