package node

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"edda/internal/lifecycle"
)

// tellEvery is how often the catch-up of a restored store logs its progress.
const tellEvery = 10 * time.Second

// restoredPart holds the outbox of a restored store until the catch-up has applied the
// events since the backup. Most of that work was done before the restore, and the
// streams have its results.
func (p *process) restoredPart() lifecycle.Component {
	return lifecycle.Component{Name: "restored store", Stage: lifecycle.Connections, Run: func(ctx context.Context) error {
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
		if err := p.db.CaughtUp(); err != nil { // the next start catches up again
			p.log.Warn("the restored store has caught up, but is not marked so", zap.Error(err))
			return idle(ctx)
		}
		p.log.Info("the restored store has caught up with its streams: its work goes out now", zap.Duration("after", time.Since(started)))
		return idle(ctx)
	}}
}

// catchUp waits for the end of the catch-up and logs its progress. It returns false if ctx
// ended first.
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

// afterRestore returns the channel that the relay waits for; nil without a restore.
func (p *process) afterRestore(l *pipeline) <-chan struct{} {
	if !p.restored {
		return nil
	}
	return l.source.CaughtUp()
}

// findRestored finds out whether the store was restored and has not caught up.
func (p *process) findRestored() (err error) {
	if p.restored, err = p.db.Restored(); err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	return nil
}
