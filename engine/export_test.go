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
