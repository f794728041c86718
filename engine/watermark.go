package engine

import (
	"time"

	"edda"
)

// watermark is the time up to which every stream is applied: all that was stored before
// reached has been applied, so timers due by then may fire.
//
// It advances from goal to goal. A goal is made of end offsets, and is reached when each
// stream is applied up to what it needs. It stays until then, so that the watermark also
// advances under constant load. A message that expires lowers what a goal needs.
type watermark struct {
	reached time.Time
	goal    *goal
	asked   bool // the end poller, for the next goal
}

// goal is what each stream must be applied up to for the watermark to reach at.
type goal struct {
	at   time.Time
	need map[string]uint64
}

// aim makes the end offsets the next goal, or lowers what the present goal needs.
func (w *watermark) aim(s endOffsets) {
	if w.goal == nil {
		w.goal = &goal{at: s.at, need: make(map[string]uint64, len(s.ends))}
		for _, end := range s.ends {
			w.goal.need[end.Stream] = end.Need
		}
		return
	}
	for _, end := range s.ends {
		if need, ok := w.goal.need[end.Stream]; ok && end.Need < need {
			w.goal.need[end.Stream] = end.Need
		}
	}
}

// advance moves the watermark to its goal if every stream is applied that far.
func (w *watermark) advance(applied map[string]edda.Checkpoint) {
	for stream, need := range w.goal.need {
		if applied[stream].Seq < need {
			return
		}
	}
	w.reached, w.goal = w.goal.at, nil
}

// endsKnown takes the end offsets of the end poller. Results that were handed in before it
// asked for them are enqueued first.
func (v *loop) endsKnown(s endOffsets) {
	v.takeResults()
	v.watermark.asked = false
	v.positions.ends = s.ends
	for _, end := range s.ends {
		v.positions.created[end.Stream] = end.Last.Created
	}
	switch {
	case v.barrier.raised() && s.at.Before(v.barrier.due):
		v.endPoller.ask() // the request began before the timer was due
	case v.barrier.raised() || v.watermark.goal != nil || v.duesWait():
		v.watermark.aim(s)
	}
	v.tidy(s)
	v.advance()
}

// advance moves the watermark as far as it can, and asks for the next goal if a due input
// needs one.
func (v *loop) advance() {
	v.lowerBarrier()
	if g := v.watermark.goal; g != nil && !v.handedBefore(g.at) {
		v.watermark.advance(v.positions.applied)
	}
	if v.watermark.goal == nil && v.duesWait() && !v.watermark.asked {
		v.watermark.asked = true // a second request would only follow the one under way
		v.endPoller.ask()
	}
}
