package engine

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"edda"
)

// maxWaiters bounds the calls that wait for a commit, about a kilobyte each. Beyond it the
// caller gets a temporary error.
const maxWaiters = 4096

// EventResult is the outcome of an event.
type EventResult struct {
	Key  edda.Key // of the first instance that took it; zero when none did
	Fate edda.Fate
	// Outputs are those of every transition that the event caused.
	Outputs []edda.Output
	// Status is the instance's status after the event; empty when nothing changed.
	Status edda.Status
	Dead   *edda.DeadLetter // set when the fate is dead
	// Released lists the events that this one released, in order: held and parked ones, and
	// that of a dead letter.
	Released []Released
}

// Released is an event that was held, parked or dead, and that another event released.
type Released struct {
	Event string // its id
	Fate  edda.Fate
	Dead  *edda.DeadLetter // set when the fate is dead
}

type waitKey struct{ tenant, event string }

// waiters are the calls of Await, by the event whose outcome they wait for.
type waiters struct {
	gauge prometheus.Gauge
	mu    sync.Mutex // guards all below
	n     int
	byKey map[waitKey][]chan EventResult
}

func newWaiters(g prometheus.Gauge) *waiters {
	return &waiters{gauge: g, byKey: map[waitKey][]chan EventResult{}}
}

// Await calls publish, which must publish the event with that id, and returns the outcome of
// the event once it is durable. It registers before it calls publish, so that it cannot miss
// the outcome. A duplicate has no second outcome, so publish must return an error for it.
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

// notify gives the outcome of the item's event to its waiters.
func (w *waiters) notify(it *item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ch := range w.byKey[waitKey{it.event.Tenant, it.event.ID}] {
		select {
		case ch <- it.outcome():
		default: // it has an outcome already
		}
	}
}
