package demo

import (
	"context"
	"sync"
	"time"
)

// orderFlow sends orders at a steady pace until it is ended.
type orderFlow struct {
	began  time.Time
	cancel context.CancelFunc
	ended  chan struct{} // closed at the end; err may be read after it
	err    error

	mu   sync.Mutex // guards sent
	sent int
}

// send begins to send orders.
func (r *run) send(ctx context.Context) *orderFlow {
	sending, cancel := context.WithCancel(ctx)
	s := &orderFlow{began: time.Now(), cancel: cancel, ended: make(chan struct{})}
	go func() { defer close(s.ended); s.err = s.run(sending, func(i int) error { return r.order(ctx, i) }) }()
	return s
}

func (s *orderFlow) run(ctx context.Context, send func(i int) error) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := send(i); err != nil {
			return err
		}
		s.mu.Lock()
		s.sent++
		s.mu.Unlock()
	}
	return nil
}

// count is the number of orders that were sent.
func (s *orderFlow) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// end ends the flow of orders. It may be called again.
func (s *orderFlow) end() error {
	s.cancel()
	<-s.ended
	return s.err
}
