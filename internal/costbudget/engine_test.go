package costbudget

import (
	"context"
	"errors"
	"testing"

	"edda"
	"edda/engine"
	"edda/stream/wire"
)

// together is how many orders the engine gets at once. The next are handed out when
// these are durable: what shares a batch must not depend on the moment.
const together = 64

// queue is a source of orders that were placed before the engine began.
type queue struct {
	waiting []edda.Event
	next    chan struct{} // those handed out are durable
}

func (q *queue) Ready() <-chan struct{} { return q.next }

func (q *queue) Hold(bool) {}

func (q *queue) Take(most int) engine.Fetched {
	n := min(most, together, len(q.waiting))
	got := q.waiting[:n]
	q.waiting = q.waiting[n:]
	return engine.Fetched{Events: got}
}

func (q *queue) Ends(context.Context) ([]engine.End, error) { return nil, nil }

// throughEngine takes n orders from their source to the durable commit. How many
// of its change sets share a commit depends on the moment, so commits are not counted.
func throughEngine(tb testing.TB, n int) (func(), *books) {
	db, _ := opened(tb)
	q := &queue{next: make(chan struct{}, 1)}
	q.next <- struct{}{}
	for i := range n {
		m := placed(orderID(i))
		m.Seq = uint64(i + 1)
		q.waiting = append(q.waiting, wire.Codec{}.Event(m))
	}
	durable, all := 0, make(chan struct{})
	e := engine.New(q, db, program(tb), engine.Options{Observe: func(ts []edda.Transition) {
		if durable += len(ts); durable == n {
			close(all)
		} else if durable%together == 0 {
			select {
			case q.next <- struct{}{}:
			default: // the loop looked by itself meanwhile, and the last signal is still there
			}
		}
	}})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		select {
		case <-all:
		case <-ctx.Done():
		}
		err := context.Cause(ctx)
		cancel()
		if err := errors.Join(err, <-ended); err != nil {
			tb.Fatal(err)
		}
	}, nil
}
