package list

import (
	"context"
	"sync"
	"time"
)

// linger is how long an idle worker waits for the next work.
const linger = time.Second

// Workers bounds how much work runs at once. Several consumers may share them. A worker
// that has finished takes the next work, because the stack of a new goroutine has to grow
// first, which costs as much as a short job.
type Workers struct {
	slots chan struct{}
	next  chan func()
	quit  chan struct{}
	all   sync.WaitGroup
}

// NewWorkers makes workers with that many slots. No goroutine starts before the first work.
func NewWorkers(slots int) *Workers {
	return &Workers{slots: make(chan struct{}, slots), next: make(chan func()), quit: make(chan struct{})}
}

// Acquire waits for a slot; false means that ctx ended.
func (w *Workers) Acquire(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case w.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// TryAcquire takes a slot if one is free.
func (w *Workers) TryAcquire() bool {
	select {
	case w.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// Release frees a slot.
func (w *Workers) Release() { <-w.slots }

// Go begins work for which a slot was acquired. It does not block. The slot is free
// when the work ends.
func (w *Workers) Go(work func()) {
	bounded := func() {
		defer w.Release()
		work()
	}
	select {
	case w.next <- bounded:
	default:
		w.all.Go(func() { w.serve(bounded) })
	}
}

func (w *Workers) serve(work func()) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		work()
		idle.Reset(linger)
		select {
		case work = <-w.next:
		case <-idle.C:
			return
		case <-w.quit:
			return
		}
	}
}

// Close waits until all work has ended. Call it once, after the last Go.
func (w *Workers) Close() {
	close(w.quit)
	w.all.Wait()
}
