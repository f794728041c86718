package engine

import "sync"

// pipelineDepth is how many batches may be evaluated and not yet durable: one
// that commits, one that is ready to follow it. A third would only wait longer.
const pipelineDepth = 2

// answers are those of the store to change sets, until the loop takes them. There are at
// most as many as there are sets in flight.
type answers struct {
	ready chan struct{} // capacity 1

	mu  sync.Mutex // guards what follows
	all []answer
}

// answer is what became of one set.
type answer struct {
	set *set
	err error
	// behind is set when it was not tried, because one before it failed.
	behind bool
}

func newAnswers() *answers { return &answers{ready: make(chan struct{}, 1)} }

// add never blocks: the store's committer calls it.
func (a *answers) add(one answer) {
	a.mu.Lock()
	a.all = append(a.all, one)
	a.mu.Unlock()
	signal(a.ready)
}

func (a *answers) take() []answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}
