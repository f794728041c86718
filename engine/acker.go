package engine

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"edda"
)

// acker tells the source what is durable. Acks are a courtesy: they keep it
// from sending again, so a failed one is not repeated; the next position
// covers it.
type acker struct {
	*Engine
	mu   sync.Mutex                 // guards due
	due  map[string]edda.Checkpoint // the newest position of each stream not yet acknowledged
	wake chan struct{}
}

func newAcker(e *Engine) *acker {
	return &acker{Engine: e, due: map[string]edda.Checkpoint{}, wake: make(chan struct{}, 1)}
}

func (a *acker) put(done ...edda.Checkpoint) {
	a.mu.Lock()
	for _, c := range done {
		a.due[c.Stream] = c
	}
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *acker) take() []edda.Checkpoint {
	a.mu.Lock()
	defer a.mu.Unlock()
	done := make([]edda.Checkpoint, 0, len(a.due))
	for _, c := range a.due {
		done = append(done, c)
	}
	clear(a.due)
	return done
}

func (a *acker) run(ctx context.Context) error {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		}
		// gofail: var engineBeforeAck struct{}
		err := a.source.Ack(ctx, a.take())
		// gofail: var engineAcked struct{}
		if err != nil && !failing && ctx.Err() == nil {
			a.log.Warn("acknowledge to the streams failed", zap.Error(err))
		}
		failing = err != nil
	}
}
