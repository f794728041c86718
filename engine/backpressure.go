package engine

import (
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

// PausedStore is why no event is taken in while the store fails; the other
// reasons are names of destinations.
const PausedStore = "store"

// backpressure has new events wait while there is no room for the work they make, so that a
// destination that is slow or gone slows what leads to it, and the streams keep what would
// fill memory and disk here. A saga that has its share of a destination, for one tenant,
// falls behind the streams by itself. Where a destination is full no event is taken in
// at all. Time stands still with what waits: what is due after an event that waits fires
// after it. The loop looks before it takes events: what was taken in before passes the
// bound, at most the events and batches in memory.
type backpressure struct {
	full    []string
	crowded map[SagaTenant]string
	paused  map[string]bool // reasons that are shown
	since   time.Time
}

// press looks for room, and pauses what has none.
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
	if held := len(full) > 0; held != v.held {
		v.hold(held)
	}
	b.full = full
	var crowded map[SagaTenant]string
	if v.opts.CatchUp.open() {
		crowded = v.outbox.crowded()
	}
	if len(crowded)+len(b.crowded) > 0 && !maps.Equal(crowded, b.crowded) {
		b.crowded = crowded
		v.pause(crowded)
	}
	v.showPaused()
}

func (v *loop) hold(yes bool) {
	v.held = yes
	v.source.Hold(yes)
	v.goOn()
	if yes {
		v.pressure.since = time.Now()
		return
	}
	v.log.Info("new events are taken in again", zap.Duration("after", time.Since(v.pressure.since)))
}

// showPaused says in the metrics for which reasons something is paused.
func (v *loop) showPaused() {
	b := &v.pressure
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
			v.metrics.pause(reason, true)
		}
	}
	for reason := range b.paused {
		if !now[reason] {
			v.metrics.pause(reason, false)
		}
	}
	b.paused = now
}
