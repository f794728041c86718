package runner

import (
	"sync"
	"time"
)

// linger is how long a goroutine that has run a job waits for the next one.
const linger = time.Second

// hands are the goroutines that jobs are worked on in. One that is done takes the
// next job: a new goroutine's stack has to grow first, which costs as much as a short
// job does.
type hands struct {
	next chan func()
	quit chan struct{}
	all  sync.WaitGroup
}

func newHands() *hands { return &hands{next: make(chan func()), quit: make(chan struct{})} }

// do begins the work in a goroutine that waits for some, or in a new one. How many
// there are is bounded by the places that jobs have.
func (h *hands) do(work func()) {
	select {
	case h.next <- work:
	default:
		h.all.Go(func() { h.serve(work) })
	}
}

func (h *hands) serve(work func()) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		work()
		idle.Reset(linger)
		select {
		case work = <-h.next:
		case <-idle.C:
			return
		case <-h.quit:
			return
		}
	}
}

// close waits for the goroutines to end; nothing is begun any more.
func (h *hands) close() {
	close(h.quit)
	h.all.Wait()
}
