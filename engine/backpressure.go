package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

// PausedStore is why nothing is taken in while the store fails; the other
// reasons are those of [Options.Full].
const PausedStore = "store"

// backpressure has new events wait while there is no room for the work they make, so that a
// destination that is slow or gone slows what leads to it, and the streams keep what would
// fill memory and disk here. A saga that has its share of a destination, for one tenant,
// falls behind the streams by itself. Where a destination is full nothing new is taken in
// at all. Time stands still with what waits: what is due after an event that waits fires
// after it. The intake owns the backpressure, and it looks before every fetch: what was taken in
// before passes the bound, at most the fetches and batches in memory.
type backpressure struct {
	*Engine
	full    []string
	crowded map[Pair]string
	paused  map[string]bool // reasons that are shown
	since   time.Time
}

func (b *backpressure) look(ctx context.Context) {
	full := b.opts.Full()
	for _, reason := range full {
		if !slices.Contains(b.full, reason) {
			b.log.Warn("new events stay in their streams: there is no room for more work", zap.String("reason", reason))
		}
	}
	for _, reason := range b.full {
		if !slices.Contains(full, reason) {
			b.log.Info("there is room for more work again", zap.String("reason", reason))
		}
	}
	b.hold(ctx, len(full) > 0)
	b.full = full
	b.pass(ctx)
	b.show()
}

// pass tells the evaluator who has to fall behind, and who may go on.
func (b *backpressure) pass(ctx context.Context) {
	var crowded map[Pair]string
	if b.opts.CatchUp.open() {
		crowded = b.opts.Crowded()
	}
	if len(crowded)+len(b.crowded) == 0 || maps.Equal(crowded, b.crowded) {
		return
	}
	b.crowded = crowded
	_ = b.post(ctx, func(v *evaluator) { v.pause(crowded) }) // fails only when the engine stops
}

// show says for which reasons something is paused.
func (b *backpressure) show() {
	if len(b.full)+len(b.crowded)+len(b.paused) == 0 {
		return
	}
	now := map[string]bool{}
	for _, reason := range b.full {
		now[reason] = true
	}
	for _, reason := range b.crowded {
		now[reason] = true
	}
	for reason := range now {
		if !b.paused[reason] {
			b.metrics.pause(reason, true)
		}
	}
	for reason := range b.paused {
		if !now[reason] {
			b.metrics.pause(reason, false)
		}
	}
	b.paused = now
}

func (b *backpressure) hold(ctx context.Context, yes bool) {
	if was := len(b.full) > 0; was == yes {
		return
	}
	b.opts.Hold(yes)
	_ = b.post(ctx, func(v *evaluator) { v.held = yes; v.goOn() }) // fails only when the engine stops
	if yes {
		b.since = time.Now()
		return
	}
	b.log.Info("new events are taken in again", zap.Duration("after", time.Since(b.since)))
}
