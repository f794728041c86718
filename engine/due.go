package engine

import (
	"context"
	"time"

	"edda"
	"edda/saga"
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

// Exchange changes one cell without an event of a stream. In the order of the key's inputs it
// calls change with the newest cell, and commits the transitions that change returns. It
// returns when they are durable. Change must be pure apart from recording its decision: after a failed
// commit it is called again with the cell of that moment. When change panics, Exchange
// returns an error and changes nothing.
func (e *Engine) Exchange(ctx context.Context, k edda.Key, change func(edda.Cell) (edda.Cell, []edda.Transition)) error {
	x := &exchange{key: k, change: change}
	err := e.ask(ctx, func(v *loop, done report) {
		v.enqueueDue(newExchange(x, &handover{left: 1, done: done}))
	})
	if err == nil {
		err = x.failed // set before the report was sent
	}
	return err
}

// exchange is one call of Exchange, and why it could not change the cell.
type exchange struct {
	key    edda.Key
	change func(edda.Cell) (edda.Cell, []edda.Transition)
	failed error
}

// newExchange makes an item that is due at once: the zero time is below any watermark.
func newExchange(x *exchange, h *handover) *item {
	return &item{due: &due{exchange: x, time: time.Time{}, handed: h}, targets: []saga.Target{{Key: x.key}}}
}

// decide calls change. A panic changes nothing.
func (x *exchange) decide(cell edda.Cell) (next edda.Cell, changed []edda.Transition) {
	defer func() {
		if cause := recover(); cause != nil {
			next, changed, x.failed = cell, nil, edda.Classify(edda.Permanent, "exchange %s: panic: %v", x.key, cause)
		}
	}()
	x.failed = nil
	next, changed = x.change(cell)
	// gofail: var engineExchanged struct{}
	return next, changed
}
