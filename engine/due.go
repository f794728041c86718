package engine

import (
	"context"
	"slices"
	"time"

	"edda"
	"edda/store"
)

// MaxRows bounds the rows of one Wake: of several batches, so that one is evaluated while
// those before it are committed. Whoever hands in has nothing of his own under way when
// the last of them is.
const MaxRows = 8 * maxDue

// Wake looks at keys whose due rows have come, and returns when what was due in
// them has fired and is durable. It may take as long as the streams are behind.
// The rows must be due, and at most MaxRows.
func (e *Engine) Wake(ctx context.Context, rows []store.Due) error {
	if len(rows) > MaxRows {
		return edda.Classify(edda.Permanent, "wake %d rows: more than %d", len(rows), MaxRows)
	}
	if len(rows) == 0 {
		return nil
	}
	return e.ask(ctx, func(v *loop, done report) {
		h := &handover{left: len(rows), done: done}
		for _, row := range rows {
			v.hand(newRow(row, h))
		}
		v.advance()
	})
}

// Start applies the event of a schedule and records how far the schedule has
// come, in one change set. It returns when that is durable.
func (e *Engine) Start(ctx context.Context, ev edda.Event, s edda.ScheduleState) error {
	return e.ask(ctx, func(v *loop, done report) {
		v.hand(newStart(ev, s, &handover{left: 1, done: done}))
		v.advance()
	})
}

// hand takes something due in.
func (v *loop) hand(it *item) {
	if v.draining {
		it.due.handed.refuse()
		return
	}
	if it.isRow() && v.lagging.within(it.due.row.Key, it.due.time).Before(it.due.time) {
		it.due.handed.settle() // it stays in the index
		return
	}
	v.addDue(it)
}

// addDue keeps the dues by time, and those of one time in the order they came.
func (v *loop) addDue(it *item) {
	v.dues = slices.Insert(v.dues, until(v.dues, it.due.time), it)
}

// until is how many of the dues are at or before t.
func until(dues []*item, t time.Time) int {
	n, _ := slices.BinarySearchFunc(dues, t, func(it *item, t time.Time) int {
		if it.due.time.After(t) {
			return 1
		}
		return -1
	})
	return n
}

// dueNow is how many of the dues are within the horizon.
func (v *loop) dueNow() int { return until(v.dues, v.watermark.reached) }

// dueBeyond tells whether something waits for the horizon.
func (v *loop) dueBeyond() bool { return v.dueNow() < len(v.dues) }
