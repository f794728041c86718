package engine

import (
	"context"
	"time"

	"edda"
	"edda/saga"
)

// Exchange changes one cell beside the streams: change is given the newest record
// of the key, once no other input of it is under way, and says what is to be
// committed. It returns when that is durable. Change must be pure but for noting
// what it decided: where a commit fails it is asked again, with the cell as it is
// then. A panic of it is returned, and nothing is changed.
func (e *Engine) Exchange(ctx context.Context, k edda.Key, change func(edda.Cell) (edda.Cell, []edda.Transition)) error {
	x := &exchange{key: k, change: change}
	err := e.ask(ctx, func(v *evaluator, done report) {
		v.hand(newExchange(x, &handover{left: 1, done: done}))
	})
	if err == nil {
		err = x.failed // written before the report was sent
	}
	return err
}

// exchange is one cell to be changed, and why it could not be.
type exchange struct {
	key    edda.Key
	change func(edda.Cell) (edda.Cell, []edda.Transition)
	failed error
}

// newExchange is due at once: the zero time is within every horizon.
func newExchange(x *exchange, h *handover) *item {
	return &item{due: &due{exchange: x, time: time.Time{}, handed: h}, targets: []saga.Target{{Key: x.key}}}
}

// decide asks for the change. What panics changes nothing.
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

// spoilt is set where the store can never write what the exchange wants.
func (x *exchange) spoilt(err error) (edda.Cell, []edda.Transition) {
	x.failed = err
	return edda.Cell{}, nil
}

// Apply gives one event to a cell as the engine does: a panic is a dead letter
// that holds the key.
func Apply(s Sagas, cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	l := lane{batch: &batch{sagas: s}}
	return l.decide(cell, t, &item{event: ev})
}
