package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// pipelineDepth is how many batches may be evaluated and not yet durable: one
// that commits, one that is ready to follow it. A third would only wait longer.
const pipelineDepth = 2

// writer submits change sets to the store, which encodes them meanwhile, in the
// writer's time and not the evaluator's. Each was evaluated on top of those
// before it: when one fails, so do all behind it, until the evaluator begins
// anew.
type writer struct {
	*Engine
	queue chan []*set // has room for every batch of the pipeline, and for positions that wait
	// queued is how many were put there and are not yet submitted: whoever writes beside
	// run would overtake them.
	queued atomic.Int64

	// Held by whoever writes: run, or the evaluator where nothing is under way.
	writing sync.Mutex
	line    line  // of the present retry
	retry   int   // its number
	failure error // why nothing more of it can be submitted

	mu      sync.Mutex // guards reports
	reports []verdict
	told    chan struct{} // capacity 1
}

// verdict is what became of one set.
type verdict struct {
	set *set
	err error
	// behind is set when it was not tried, because one before it failed.
	behind bool
}

func newWriter(e *Engine) *writer {
	return &writer{Engine: e, queue: make(chan []*set, pipelineDepth+1), told: make(chan struct{}, 1)}
}

// run submits until the queue is closed. Of each set there is one report.
func (w *writer) run() error {
	for sets := range w.queue {
		w.write(sets)
		w.queued.Add(-1)
	}
	return nil
}

// put queues the sets for run.
func (w *writer) put(sets []*set) {
	w.queued.Add(1)
	w.queue <- sets
}

// write submits the sets. Nothing that was queued before may wait still.
func (w *writer) write(sets []*set) {
	w.writing.Lock()
	defer w.writing.Unlock()
	for _, s := range sets {
		w.submit(s)
	}
}

// submit does not end with a context: whether a change became durable must be
// known. The store answers always, also when it stops.
func (w *writer) submit(s *set) {
	if w.line == nil || s.retry != w.retry {
		w.line, w.retry, w.failure = w.db.line(), s.retry, nil
	}
	if w.failure != nil {
		w.report(verdict{set: s, err: w.failure, behind: true})
		return
	}
	s.begun = time.Now()
	w.failure = w.line.SubmitWithin(context.Background(), s.change, s.within(), func(err error) { w.report(verdict{set: s, err: err}) })
	// gofail: var engineSubmitted struct{}
	if w.failure != nil {
		w.report(verdict{set: s, err: w.failure})
	}
}

// report never blocks: the store's committer calls it.
func (w *writer) report(r verdict) {
	if r.err == nil {
		w.metrics.commit.Observe(time.Since(r.set.begun).Seconds())
	}
	w.mu.Lock()
	w.reports = append(w.reports, r)
	w.mu.Unlock()
	select {
	case w.told <- struct{}{}:
	default:
	}
}

func (w *writer) take() []verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.reports
	w.reports = nil
	return all
}
