package engine

import (
	"context"
	"time"

	"edda"
	"edda/saga"
)

// Exchange changes one cell without an event of a stream. It calls change with the newest
// cell of the key, in the order of the key's inputs, commits what change returns, and returns
// when that is durable. Change must be pure apart from recording its decision: after a failed
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

// Apply applies one event to a cell as the engine does: a panic becomes a dead letter that
// holds the key.
func Apply(s Sagas, cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	l := lane{batch: &batch{sagas: s}}
	return l.decide(cell, t, &item{event: ev})
}
