package engine

import "edda"

// spare is the memory of change sets that are durable, for the next ones. The store has
// no part of it any more, and whoever was told of the transitions keeps none of the
// list. The evaluator owns it, and keeps that of as many sets as may be under way.
type spare struct {
	lists [pipelineDepth]lists
	n     int
}

type lists struct {
	transitions []edda.Transition
	claims      []edda.Claim
}

// take is empty lists with room for as many.
func (m *spare) take(transitions, claims int) ([]edda.Transition, []edda.Claim) {
	var l lists
	if m.n > 0 {
		m.n--
		l, m.lists[m.n] = m.lists[m.n], lists{}
	}
	return room(l.transitions, transitions), room(l.claims, claims)
}

// room is an empty list with room for n, where there is none in the one that was.
func room[T any](was []T, n int) []T {
	if cap(was) < n {
		return make([]T, 0, n)
	}
	return was[:0]
}

// put takes the lists of a set that is over.
func (m *spare) put(s *set) {
	l := lists{s.change.Transitions, s.change.Claims}
	s.change.Transitions, s.change.Claims = nil, nil
	if m.n == len(m.lists) || cap(l.transitions) > maxBatch || cap(l.claims) > maxBatch {
		return
	}
	clear(l.transitions)
	clear(l.claims)
	m.lists[m.n] = l
	m.n++
}
