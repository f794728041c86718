package engine

import (
	"time"

	"edda"
	"edda/saga"
)

// ApplyPast applies an event of the past to a cell, as the engine does with what its
// source gives.
func ApplyPast(s Sagas, cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	l := lane{sagas: s}
	return l.decide(cell, t, newArrival(ev, Fetched{Past: true}))
}

func cut(items []*item, created map[string]time.Time, n uint64) []*set {
	c := cutter{created: created, spare: &spare{}, n: n}
	return c.cut(items)
}

// NewFakeSource is the source of the engine's own tests, and what stores in it.
func NewFakeSource() (Source, func(ev edda.Event) edda.Checkpoint) {
	s := newStreams("A", "B")
	return s, func(ev edda.Event) edda.Checkpoint {
		stream := "A"
		if ev.AggregateID == "order-1" {
			stream = "B"
		}
		return edda.Checkpoint{Stream: stream, Seq: s.publish(stream, ev)}
	}
}
