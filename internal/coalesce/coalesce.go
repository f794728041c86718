// Package coalesce sends together what many goroutines request at once.
package coalesce

import (
	"context"
	"sync"
)

// The bounds of one batch. A longer one would keep a server from others, and this
// process from the first of its answers.
const (
	MaxBatch   = 64
	batchBytes = 1 << 20
	// inFlight batches are under way at once: what one brought is worked on while the
	// server does the others. Each beside the first leaves when worthABatch wait.
	inFlight    = 3
	worthABatch = MaxBatch / 4
)

// Coalescer batches requests: the first goroutine that waits sends what came while the
// batches before it were on their way. A request that comes alone does not wait. Its
// methods may be called concurrently.
type Coalescer[T any] struct {
	// Send sends a batch and notes in each request how it ended. It gets the context of
	// the goroutine whose request is the first.
	Send func(context.Context, []T)
	// Keys, where set, are what no two requests of a batch may have in common.
	Keys func(T) []string

	mu      sync.Mutex // guards what follows
	flying  int
	waiting []*request[T]
}

// request waits for its batch.
type request[T any] struct {
	what  T
	bytes int
	batch chan []*request[T] // the batch that it leads; none: it was sent
}

// Do returns when the request was sent. bytes is how large it is, about.
func (c *Coalescer[T]) Do(ctx context.Context, what T, bytes int) {
	r := &request[T]{what: what, bytes: bytes, batch: make(chan []*request[T], 1)}
	c.mu.Lock()
	c.waiting = append(c.waiting, r)
	c.dispatch()
	c.mu.Unlock()
	batch := <-r.batch
	if len(batch) == 0 {
		return
	}
	all := make([]T, len(batch))
	for i, r := range batch {
		all[i] = r.what
	}
	c.Send(ctx, all)
	c.mu.Lock()
	c.flying--
	c.dispatch()
	c.mu.Unlock()
	for _, r := range batch[1:] {
		r.batch <- nil
	}
}

// dispatch lets the next batch leave, if it may and is worth it; what waits for more to
// come leaves when a batch is back. c.mu is held.
func (c *Coalescer[T]) dispatch() {
	if c.flying == 0 || c.flying < inFlight && len(c.waiting) >= worthABatch {
		if next := c.next(); len(next) > 0 {
			c.flying++
			next[0].batch <- next
		}
	}
}

// next takes as many of the requests that wait as one batch holds, in their order. A
// request whose key another one of the batch has waits for the batch after.
func (c *Coalescer[T]) next() (batch []*request[T]) {
	bytes, left, taken := 0, c.waiting[:0], map[string]bool{}
	full := false
	for _, r := range c.waiting {
		full = full || len(batch) == MaxBatch || len(batch) > 0 && bytes+r.bytes > batchBytes
		if full || !c.claim(r, taken) {
			left = append(left, r)
			continue
		}
		bytes += r.bytes
		batch = append(batch, r)
	}
	clear(c.waiting[len(left):])
	c.waiting = left
	return batch
}

// claim takes the request's keys, if no other one has any of them.
func (c *Coalescer[T]) claim(r *request[T], taken map[string]bool) bool {
	if c.Keys == nil {
		return true
	}
	keys := c.Keys(r.what)
	for _, key := range keys {
		if taken[key] {
			return false
		}
	}
	for _, key := range keys {
		taken[key] = true
	}
	return true
}
