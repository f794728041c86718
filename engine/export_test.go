package engine

import (
	"time"

	"edda"
	"edda/saga"
	"edda/store"
)

// ApplyPast applies an event of the past to a cell, as the engine does.
func ApplyPast(s Sagas, cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	l := lane{batch: &batch{sagas: s}}
	return l.decide(cell, t, arrival(ev, Fetched{Past: true}))
}

func cut(items []*item, created map[string]time.Time, n uint64) []*set {
	var enc store.Encoder
	for _, it := range items {
		it.encoded = make([][]store.Encoded, len(it.results))
		for i := range it.results {
			for j := range it.results[i] {
				it.encoded[i] = append(it.encoded[i], enc.Transition(&it.results[i][j]))
			}
		}
		if it.handed != nil {
			it.result = []store.Encoded{enc.Result(&it.handed.claim, &it.handed.echo)}
		}
	}
	c := cutter{created: created, n: n}
	return c.cut(items)
}

// items returns the items that end in the set.
func (s *set) items() (all []*item) {
	s.ended(func(it *item) { all = append(all, it) })
	return all
}

// changed returns the transitions of the set.
func (s *set) changed() (all []edda.Transition) {
	for _, t := range s.transitions() {
		all = append(all, *t)
	}
	return all
}

// NewFakeSource returns the source of the engine's own tests, and a function that stores in it.
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
