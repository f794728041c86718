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
	"edda/internal/backoff"
)

const (
	// The pauses after failures of the store grow from commitBackoff to commitBackoffMax.
	commitBackoff    = 50 * time.Millisecond
	commitBackoffMax = 5 * time.Second
)

// recovery is the state of a failure of the store, or of sets that it refused.
type recovery struct {
	err       error  // of the store; nil again after the first commit that succeeds
	lost      []*set // not committed, to be evaluated again
	unwinding bool   // until nothing is in flight, before the loop starts over
	pausing   bool   // until the alarm, before the next attempt
	backoff   backoff.Exponential
	alarm     *time.Timer
}

func newRecovery() recovery {
	r := recovery{backoff: backoff.Exponential{First: commitBackoff, Most: commitBackoffMax}, alarm: time.NewTimer(0)}
	r.alarm.Stop()
	return r
}

// recovering tells whether evaluation is suspended by a failure.
func (v *loop) recovering() bool { return v.recovery.unwinding || v.recovery.pausing }

// notCommitted takes the answer to a set that was not committed.
func (v *loop) notCommitted(a answer) {
	v.recovery.lost = append(v.recovery.lost, a.set)
	v.catchUp.audits = append(v.catchUp.audits, a.set.audits...)
	v.recovery.unwinding = true
	switch {
	case a.behind: // the set before it has reported the failure
	case errors.Is(a.err, edda.Poison):
		a.set.suspect(a.err)
	default:
		v.fail(fmt.Errorf("commit: %w", a.err))
	}
}

// fail notes a failure of the store.
func (v *loop) fail(err error) {
	if v.recovery.err == nil {
		v.log.Error("the store fails: intake stops until it works again", zap.Error(err))
		v.metrics.pause(PausedStore, true)
	}
	v.recovery.err, v.recovery.unwinding = err, true
	v.status.setFailure(err)
}

// startOver follows a failure once nothing is in flight. It resets the loop to the durable
// state and puts the items of the lost sets back, to be evaluated again after a pause. It keeps
// their events in memory, because the source gives each only once.
func (v *loop) startOver() {
	r := &v.recovery
	if !r.unwinding || len(v.inFlight.sets) > 0 {
		return
	}
	clear(v.inFlight.overlay)
	v.cache.clear()
	v.positions.applied = maps.Clone(v.positions.durable)
	v.watermark = watermark{asked: v.watermark.asked} // inputs applied up to it may be lost
	v.resetLaggards()
	slices.SortFunc(r.lost, func(a, b *set) int { return cmp.Compare(a.n, b.n) })
	var items []*item
	for _, s := range r.lost {
		s.ended(func(it *item) { items = append(items, it) })
	}
	r.lost = nil
	v.putBack(items)
	v.inFlight.submitter, v.inFlight.refused = nil, nil
	r.unwinding = false
	if r.err != nil {
		r.pausing = true
		r.alarm.Reset(r.backoff.Next())
	}
	v.advance()
}

// suspect marks the items of a set that the store refuses to write, so that each is tried in
// a batch of its own. An item that was alone is the poison. Intake does not stop, because
// the store works.
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

// putBack returns items to the front of the queues that they were taken from.
func (v *loop) putBack(items []*item) {
	var events []*item
	past := map[*laggard][]*item{}
	for _, it := range items {
		if it.handed != nil && it.spoiled != nil {
			v.answerHanded(it, it.spoiled) // its echo in the stream becomes the dead letter
			continue
		}
		it.forget()
		if it.due != nil {
			v.queue.addDue(it)
			continue
		}
		if l := it.lag; l != nil {
			if v.catchUp.laggards[l.SagaTenant] != l { // see resetLaggards
				continue
			}
			l.read[it.event.Stream] = l.read[it.event.Stream].further(readWith(&it.event))
			past[l] = append(past[l], it)
			continue
		}
		events = append(events, it)
		v.queue.bytes += len(it.event.Payload)
	}
	for l, items := range past {
		l.queue = append(items, l.queue...)
	}
	v.queue.events = append(events, v.queue.events...)
	v.barrier.passing += len(events) // they had passed the barrier
}

// recovered follows a commit. After a failure it means that the store works again.
func (v *loop) recovered() {
	if v.recovery.err == nil || v.recovering() {
		return
	}
	v.log.Info("the store works again")
	v.metrics.pause(PausedStore, false)
	v.recovery.err = nil
	v.status.setFailure(nil)
	v.recovery.backoff.Reset()
}
