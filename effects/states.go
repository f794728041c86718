package effects

import (
	"sync"

	"go.uber.org/zap"
)

// breakerStates shows the states of breakers: a gauge, and a line in the log
// when one opens and when all is well again.
type breakerStates struct {
	w *Worker

	mu   sync.Mutex // guards shut
	shut map[string]bool
}

func (s *breakerStates) changed(name string, state int) {
	s.w.metrics.breaker(name, state)
	s.mu.Lock()
	was := s.shut[name]
	s.shut[name] = state != breakerClosed
	s.mu.Unlock()
	switch {
	case state == breakerOpen && !was:
		s.w.o.Log.Warn("a breaker opened: what would be called waits", zap.String("breaker", name))
	case state == breakerClosed && was:
		s.w.o.Log.Info("a breaker closed: the other side is well again", zap.String("breaker", name))
	}
}
