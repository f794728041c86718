package engine

import (
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

// PausedStore is the reason of the pause while the store fails. All other reasons are names of
// destinations.
const PausedStore = "store"

// backpressure pauses new events while their work has no room. So a slow or dead destination
// slows its input, and the streams keep what would fill memory and disk. A saga that has used
// up its share of a destination, for one tenant, falls behind the streams alone. While a
// destination is full, the source holds all new events. Timers wait with the events: one that
// is due after a paused event fires after it. The loop looks for room before it takes events,
// so the events and batches in memory may exceed the bound.
type backpressure struct {
	full      []string              // destinations
	overShare map[SagaTenant]string // sagas that have used up their share of a destination
	shown     map[string]bool       // reasons of a pause in the metrics
	since     time.Time             // when the source began to hold
}

// holds tells whether the source holds all new events. Catch-up stops then too.
func (b *backpressure) holds() bool { return len(b.full) > 0 }

// press looks for room, and pauses or resumes accordingly.
func (v *loop) press() {
	b, full := &v.pressure, v.outbox.full()
	for _, reason := range full {
		if !slices.Contains(b.full, reason) {
			v.log.Warn("new events stay in their streams: there is no room for more work", zap.String("reason", reason))
		}
	}
	for _, reason := range b.full {
		if !slices.Contains(full, reason) {
			v.log.Info("there is room for more work again", zap.String("reason", reason))
		}
	}
	held := b.holds()
	b.full = full
	if holds := b.holds(); holds != held {
		v.source.Hold(holds)
		v.serveReaders()
		if holds {
			b.since = time.Now()
		} else {
			v.log.Info("new events are taken in again", zap.Duration("after", time.Since(b.since)))
		}
	}
	var overShare map[SagaTenant]string
	if v.opts.CatchUp.open() {
		overShare = v.outbox.overShare()
	}
	if len(overShare)+len(b.overShare) > 0 && !maps.Equal(overShare, b.overShare) {
		b.overShare = overShare
		v.pause(overShare)
	}
	v.showPauses()
}

// showPauses shows the reasons of the pauses in the metrics.
func (v *loop) showPauses() {
	b := &v.pressure
	if len(b.full)+len(b.overShare)+len(b.shown) == 0 {
		return
	}
	reasons := map[string]bool{}
	for _, reason := range b.full {
		reasons[reason] = true
	}
	for _, reason := range b.overShare {
		reasons[reason] = true
	}
	for reason := range reasons {
		if !b.shown[reason] {
			v.metrics.pause(reason, true)
		}
	}
	for reason := range b.shown {
		if !reasons[reason] {
			v.metrics.pause(reason, false)
		}
	}
	b.shown = reasons
}
