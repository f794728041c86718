package engine

import (
	"slices"
	"time"

	"go.uber.org/zap"
)

// PausedStore is why nothing is taken in while the store fails; the other
// reasons are those of [Options.Full].
const PausedStore = "store"

// brake holds new events back while there is no room for the work they make, so
// that a destination that is slow or gone slows the intake, and the streams
// keep what would fill memory and disk here. Time stands still with them: what
// is due after an event that waits fires after it. The intake owns it, and it
// looks before every fetch: what was taken in before passes the bound, at most
// the fetches and batches in memory.
type brake struct {
	*Engine
	full  []string
	since time.Time
}

func (b *brake) look() {
	full := b.opts.Full()
	for _, reason := range full {
		if !slices.Contains(b.full, reason) {
			b.metrics.pause(reason, true)
			b.log.Warn("new events stay in their streams: there is no room for more work", zap.String("reason", reason))
		}
	}
	for _, reason := range b.full {
		if !slices.Contains(full, reason) {
			b.metrics.pause(reason, false)
			b.log.Info("there is room for more work again", zap.String("reason", reason))
		}
	}
	b.hold(len(full) > 0)
	b.full = full
}

func (b *brake) hold(yes bool) {
	if was := len(b.full) > 0; was == yes {
		return
	}
	b.opts.Hold(yes)
	if yes {
		b.since = time.Now()
		return
	}
	b.log.Info("new events are taken in again", zap.Duration("after", time.Since(b.since)))
}
