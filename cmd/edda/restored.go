package main

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"edda/internal/lifecycle"
)

// tellEvery is how often a restored store that catches up says how far it is.
const tellEvery = 10 * time.Second

// restoredPart has the work of a restored store wait until what its streams have since
// the backup was applied: most of it was done then, and the streams say so.
func (p *process) restoredPart() lifecycle.Part {
	return lifecycle.Part{Name: "restored store", Stage: lifecycle.Connections, Run: func(ctx context.Context) error {
		select {
		case <-p.joined:
		case <-ctx.Done():
			return nil
		}
		p.log.Info("this store was restored: what its streams have since is applied first, and nothing goes out until then")
		started := time.Now()
		if !p.catchUp(ctx, p.pipeline.Load().source.CaughtUp()) {
			return nil
		}
		if err := p.db.CaughtUp(); err != nil { // the next start waits once more
			p.log.Warn("the restored store has caught up, but is not marked so", zap.Error(err))
			return idle(ctx)
		}
		p.log.Info("the restored store has caught up with its streams: its work goes out now", zap.Duration("after", time.Since(started)))
		return idle(ctx)
	}}
}

// catchUp waits, and tells how far it is; false says that ctx ended before.
func (p *process) catchUp(ctx context.Context, done <-chan struct{}) bool {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return true
		case <-tick.C:
			p.log.Info("the restored store catches up", zap.Uint64("messages_left", p.pipeline.Load().source.Behind()))
		case <-ctx.Done():
			return false
		}
	}
}

func idle(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// afterRestore is what the relay waits for; nil where the store was not restored.
func (p *process) afterRestore(l *pipeline) <-chan struct{} {
	if !p.restored {
		return nil
	}
	return l.source.CaughtUp()
}

// findRestored looks whether the store was restored and has not caught up.
func (p *process) findRestored() (err error) {
	if p.restored, err = p.db.Restored(); err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	return nil
}
