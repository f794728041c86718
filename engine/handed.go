package engine

import (
	"context"
	"sync"
	"time"

	"edda"
)

const (
	// maxHanded bounds the results that were handed in and are not yet durable: a
	// few batches of them. What finds no room takes its way through the stream.
	maxHanded = 2048
	// maxHandedBytes bounds their payloads; one always fits.
	maxHandedBytes = 16 << 20
)

// ErrFull is returned for a result that finds no room.
var ErrFull = edda.Classify(edda.Temporary, "engine: %d results wait already", maxHanded)

// Handed is a result that comes from within the process and not from a stream.
type Handed struct {
	// Event is the result as the stream would give it, but for where it lies and
	// when it was stored: the engine says when it came.
	Event edda.Event
	// Claim is the ledger's entry with the result, and Copy the message for all
	// others; both are written with what the result changes, and say when it came.
	Claim edda.Claim
	Echo  edda.Work
}

// Result applies a result as if a stream had given it. It returns when all of it
// is durable, in one change set. Any error says that the caller must see to the
// result himself: it was not applied, or, where ctx ended, nobody knows. What is
// here is applied before timers that are due later.
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

// results are what was handed in, for the evaluator to take.
type results struct {
	ready chan struct{} // capacity 1

	mu      sync.Mutex // guards what follows
	waiting []*item
	n       int // with those that the evaluator has
	bytes   int
	closed  bool
}

func newResults() *results { return &results{ready: make(chan struct{}, 1)} }

// add stamps a result under the lock: whoever takes what waits has everything
// that is stamped earlier. The copy and the claim get the same stamp: whoever reads
// the result from the stream, such as this store once it is restored, makes of it what
// was made of it here.
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
	q.waiting = append(q.waiting, handedIn(r, done))
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

// close refuses whatever comes later.
func (q *results) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// gone makes room.
func (q *results) gone(it *item) {
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

// handed is what goes with a result that no stream gave.
type handed struct {
	claim edda.Claim
	echo  edda.Work
	done  report
}

// handedIn is the item of a result that was handed in.
func handedIn(r Handed, done report) *item {
	return &item{event: r.Event, handed: &handed{claim: r.Claim, echo: r.Echo, done: done}}
}

// answer tells who handed the item in; others wait for nothing here.
func (e *Engine) answer(it *item, err error) {
	if it.handed != nil {
		e.results.gone(it)
		it.handed.done <- err
	}
}

// takeResults puts what was handed in behind what waits.
func (v *evaluator) takeResults() {
	for _, it := range v.results.take() {
		v.enqueue(it)
		v.bytes += len(it.event.Payload)
	}
}

// handedBefore tells whether a result that came before t waits to be evaluated.
func (v *evaluator) handedBefore(t time.Time) bool {
	for _, it := range v.events {
		if it.handed != nil {
			return !it.event.Time.After(t) // the first that waits is the oldest
		}
	}
	return false
}
