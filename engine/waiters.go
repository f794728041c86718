package engine

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"edda"
)

// maxWaiters bounds the calls that wait for a commit, about a kilobyte each.
// Beyond it the caller is told to come again.
const maxWaiters = 4096

// EventResult is what became of an event.
type EventResult struct {
	Key  edda.Key // of the first instance that took it; zero when none did
	Fate edda.Fate
	// Outputs are those of every transition that the event caused.
	Outputs []edda.Output
	// Status is the instance's after; empty when there is none or it did not change.
	Status edda.Status
	Dead   *edda.DeadLetter // set when it is dead
	// Released is what became of the events that this one let go, in order:
	// those that were held or parked, and that of a dead letter.
	Released []Released
}

// Released is one event that another let go.
type Released struct {
	Event string // its id
	Fate  edda.Fate
	Dead  *edda.DeadLetter // set when it is dead (again)
}

type waitKey struct{ tenant, event string }

// waiters are those who wait for the outcome of one event.
type waiters struct {
	gauge prometheus.Gauge
	mu    sync.Mutex // guards all below
	n     int
	byKey map[waitKey][]chan EventResult
}

func newWaiters(g prometheus.Gauge) *waiters {
	return &waiters{gauge: g, byKey: map[waitKey][]chan EventResult{}}
}

// Await calls publish, which is to publish the event with that id, and returns
// what became of it once that is durable. It waits from before publish is
// called, so the outcome cannot be missed. An event that the stream already had
// has no second outcome: publish should return an error then.
func (e *Engine) Await(ctx context.Context, tenant, eventID string, publish func(context.Context) error) (EventResult, error) {
	k := waitKey{tenant, eventID}
	ch, err := e.waiters.add(k)
	if err != nil {
		return EventResult{}, err
	}
	defer e.waiters.remove(k, ch)
	if err := publish(ctx); err != nil {
		return EventResult{}, err
	}
	select {
	case o := <-ch:
		return o, nil
	case <-ctx.Done():
		return EventResult{}, ctx.Err()
	case <-e.stopped:
		return EventResult{}, ErrStopped
	}
}

func (w *waiters) add(k waitKey) (chan EventResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n >= maxWaiters {
		return nil, edda.Classify(edda.Temporary, "%d calls already wait for a commit", w.n)
	}
	ch := make(chan EventResult, 1)
	w.byKey[k] = append(w.byKey[k], ch)
	w.count(1)
	return ch, nil
}

func (w *waiters) remove(k waitKey, ch chan EventResult) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.byKey[k]
	for i := range left {
		if left[i] != ch {
			continue
		}
		w.byKey[k] = append(left[:i:i], left[i+1:]...)
		w.count(-1)
		break
	}
	if len(w.byKey[k]) == 0 {
		delete(w.byKey, k)
	}
}

func (w *waiters) count(d int) {
	w.n += d
	w.gauge.Set(float64(w.n))
}

// signal tells those who wait for the item's event.
func (w *waiters) signal(it *item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ch := range w.byKey[waitKey{it.event.Tenant, it.event.ID}] {
		select {
		case ch <- it.outcome():
		default: // it has its answer and is about to go
		}
	}
}
