package engine

import (
	"context"
	"sync"
	"time"

	"edda"
)

const (
	// maxHanded bounds the handed-in results that are not yet durable: a few batches. A result
	// beyond it goes through its stream.
	maxHanded = 2048
	// maxHandedBytes bounds their payloads. A single result always has room.
	maxHandedBytes = 16 << 20
)

// ErrFull is returned for a result beyond the bound.
var ErrFull = edda.Classify(edda.Temporary, "engine: %d results wait already", maxHanded)

// Handed is a result of a worker in the same process, which comes without its stream.
type Handed struct {
	// Event is the result as its stream would give it, without stream, sequence and time. The
	// engine sets the time.
	Event edda.Event
	// Claim is the ledger's entry with the result, and Echo the result's message for its
	// stream. Both commit with what the result changes, and get the time of the event.
	Claim edda.Claim
	Echo  edda.Work
}

// Result applies a result as if a stream had given it, and returns when all of it is durable,
// in one change set. It is applied before timers that are due later. On an error the caller
// must publish the result himself: it was not applied, or, when ctx ended, that is unknown.
func (e *Engine) Result(ctx context.Context, r Handed) error {
	done := make(report, 1)
	if err := e.results.add(r, done); err != nil {
		return err
	}
	// gofail: var engineHanded struct{}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.stopped:
		return done.orStopped()
	}
}

// results are the handed-in results that the loop has not taken yet.
type results struct {
	ready chan struct{} // capacity 1

	mu      sync.Mutex // guards all below
	waiting []*item
	n       int // waiting, or taken and not durable
	bytes   int // of their payloads
	closed  bool
}

func newResults() *results { return &results{ready: make(chan struct{}, 1)} }

// add sets the time of a result under the lock, so that a later take returns every result of
// an earlier time. The echo and the claim get the same time. So a reader of the echo, such as
// this store after a restore, applies the result as it was applied here.
func (q *results) add(r Handed, done report) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch size := len(r.Event.Payload); {
	case q.closed:
		return ErrDraining
	case q.n > 0 && (q.n >= maxHanded || q.bytes+size > maxHandedBytes):
		return ErrFull
	}
	r.Event.Time = time.Now().UTC().Round(0)
	r.Claim.Taken, r.Echo.Time = r.Event.Time, r.Event.Time
	q.waiting = append(q.waiting, &item{event: r.Event, handed: &handed{claim: r.Claim, echo: r.Echo, done: done}})
	q.n++
	q.bytes += len(r.Event.Payload)
	signal(q.ready)
	return nil
}

func (q *results) take() []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.waiting
	q.waiting = nil
	return out
}

// close refuses later results.
func (q *results) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// release makes the room of a result free.
func (q *results) release(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.n--
	q.bytes -= len(it.event.Payload)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// handed is what a handed-in result has besides its event.
type handed struct {
	claim edda.Claim
	echo  edda.Work
	done  report
}

// answerHanded answers the caller of Result, if the item is a handed-in result.
func (e *Engine) answerHanded(it *item, err error) {
	if it.handed != nil {
		e.results.release(it)
		it.handed.done <- err
	}
}

// takeResults enqueues the handed-in results.
func (v *loop) takeResults() {
	for _, it := range v.results.take() {
		v.enqueue(it)
		v.queue.bytes += len(it.event.Payload)
	}
}

// handedBefore tells whether the queue has a result that was handed in by t.
func (v *loop) handedBefore(t time.Time) bool {
	for _, it := range v.queue.events {
		if it.handed != nil {
			return !it.event.Time.After(t) // the first one is the oldest
		}
	}
	return false
}
