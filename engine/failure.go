package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"edda"
)

const (
	// A store that fails is tried again after these.
	commitBackoff    = 50 * time.Millisecond
	commitBackoffMax = 5 * time.Second
)

// crashed takes a set that was not committed.
func (v *evaluator) crashed(r answer) {
	v.lost = append(v.lost, r.set)
	v.notes = append(v.notes, r.set.notes...)
	v.failing = true
	switch {
	case r.behind: // its failure is that of the one before
	case errors.Is(r.err, edda.Poison):
		r.set.suspect(r.err)
	default:
		v.fail(fmt.Errorf("commit: %w", r.err))
	}
}

// fail notes a failure of the store.
func (v *evaluator) fail(err error) {
	if v.failure == nil {
		v.log.Error("the store fails: intake stops until it works again", zap.Error(err))
		v.metrics.pause(PausedStore, true)
	}
	v.failure, v.failing = err, true
	v.status.failed(err)
}

// beginAnew follows a failure, once nothing is in flight any more: everything
// that was lost goes back to where it came from, to be evaluated again on top
// of what is durable, after a pause. The events stay in memory, because the
// source gives each only once.
func (v *evaluator) beginAnew() {
	if !v.failing || len(v.inFlight) > 0 {
		return
	}
	clear(v.overlay)
	v.cache.clear()
	v.applied = maps.Clone(v.durable)
	v.watermark = watermark{} // what had been applied up to it may be lost
	v.fallBack()
	v.recall()
	v.line, v.refused = nil, nil
	v.failing = false
	if v.failure != nil {
		v.pausing = true
		v.alarm.Reset(v.backoff.Next())
	}
	v.reach()
}

// recall puts the items of the lost sets back, in order.
func (v *evaluator) recall() {
	slices.SortFunc(v.lost, func(a, b *set) int { return cmp.Compare(a.n, b.n) })
	var items []*item
	for _, s := range v.lost {
		s.ended(func(it *item) { items = append(items, it) })
	}
	v.lost = nil
	v.putBack(items)
}

// suspect marks the items of a set that the store can never write, to be tried
// alone. One that was alone is found. Nothing stops for it: the disk is well.
func (s *set) suspect(err error) {
	for i := range s.units {
		if it := s.units[i].it; it.alone {
			it.spoiled = err
		}
	}
	for i := range s.units { // an item may have several units
		s.units[i].it.alone = true
	}
}

// putBack puts items where they were taken from.
func (v *evaluator) putBack(items []*item) {
	var events []*item
	past := map[*laggard][]*item{}
	for _, it := range items {
		if it.handed != nil && it.spoiled != nil {
			v.answer(it, it.spoiled) // the stream's way makes a dead letter of it
			continue
		}
		it.forget()
		if it.due != nil {
			v.addDue(it)
			continue
		}
		if l := it.lag; l != nil {
			l.given[it.event.Stream] = max(l.given[it.event.Stream], it.event.Seq)
			past[l] = append(past[l], it)
			continue
		}
		events = append(events, it)
		v.bytes += len(it.event.Payload)
	}
	for l, items := range past {
		l.queue = append(items, l.queue...)
	}
	v.events = append(events, v.events...)
	v.barrier.free += len(events) // they were evaluated before what waits came to it
}

// recovered follows a commit: if the store had failed, it works again.
func (v *evaluator) recovered() {
	if v.failure == nil || v.halted() {
		return
	}
	v.log.Info("the store works again")
	v.metrics.pause(PausedStore, false)
	v.failure = nil
	v.status.failed(nil)
	v.backoff.Reset()
}
