package engine

import (
	"context"

	"edda"
	"edda/store"
)

// MaxRows bounds the rows of one Wake. It is several batches, so that one is evaluated while
// those before it commit: the caller has no more under way when the last one commits.
const MaxRows = 8 * maxDue

// Wake fires the timers of due rows, and returns when all that came of them is durable. This
// may take as long as the streams are behind. The rows must be due, and at most MaxRows.
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
			v.enqueueDue(newRow(row, h))
		}
		v.advance()
	})
}

// Start applies the event of a schedule and records the schedule's state, in one change set.
// It returns when that is durable.
func (e *Engine) Start(ctx context.Context, ev edda.Event, s edda.ScheduleState) error {
	return e.ask(ctx, func(v *loop, done report) {
		v.enqueueDue(newStart(ev, s, &handover{left: 1, done: done}))
		v.advance()
	})
}

// enqueueDue queues a due input. While the engine drains it refuses the input. A row that a
// laggard's bound keeps from firing stays in the due index, and its caller is answered.
func (v *loop) enqueueDue(it *item) {
	switch {
	case v.draining.on:
		it.due.handed.refuse()
	case v.beyondBound(it):
		it.due.handed.settle()
	default:
		v.queue.addDue(it)
	}
}
