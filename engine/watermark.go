package engine

import (
	"time"

	"edda"
)

// watermark is how far time has come for the sagas: everything stored up to
// reached has been applied, so what is due up to there may fire.
//
// It moves from goal to goal: a goal is a survey, and is reached once each
// stream is applied up to what the survey needs. A goal stays until it is
// reached, so the watermark advances under constant load too; only a message
// that is gone from its stream makes it ask for less.
type watermark struct {
	reached time.Time
	goal    *goal
}

type goal struct {
	at   time.Time
	need map[string]uint64
}

// aim makes the survey the next goal, or lowers the present one where a stream
// has less than it needs.
func (h *watermark) aim(s endOffsets) {
	if h.goal == nil {
		h.goal = newGoal(s)
		return
	}
	for _, end := range s.ends {
		if need, ok := h.goal.need[end.Stream]; ok && end.Need < need {
			h.goal.need[end.Stream] = end.Need
		}
	}
}

func newGoal(s endOffsets) *goal {
	g := &goal{at: s.at, need: make(map[string]uint64, len(s.ends))}
	for _, end := range s.ends {
		g.need[end.Stream] = end.Need
	}
	return g
}

// advance moves to the goal if it is reached.
func (h *watermark) advance(applied map[string]edda.Checkpoint) {
	if h.goal == nil {
		return
	}
	for stream, need := range h.goal.need {
		if applied[stream].Seq < need {
			return
		}
	}
	h.reached = h.goal.at
	h.goal = nil
}
