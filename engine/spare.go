package engine

import (
	"math/bits"

	"edda"
)

// maxSpare sets are under way at once, as a rule: a few for each batch of small instances.
const maxSpare = 4 * pipelineDepth

// spare is the memory of change sets that are durable, for the next ones. The store has
// no part of it any more, and whoever was told of the transitions keeps none of the
// list. The evaluator owns it, and keeps that of as many sets as may be under way.
type spare struct {
	lists [maxSpare]lists
	n     int
}

type lists struct {
	transitions []edda.Transition
	claims      []edda.Claim
	work        []edda.Work
}

// take is empty lists with room for as many transitions, and results that were handed in.
func (m *spare) take(transitions, handed int) lists {
	var l lists
	if m.n > 0 {
		m.n--
		l, m.lists[m.n] = m.lists[m.n], lists{}
	}
	return lists{room(l.transitions, transitions), room(l.claims, handed), room(l.work, handed)}
}

// room is an empty list with room for n, where there is none in the one that was.
func room[T any](was []T, n int) []T {
	if cap(was) < n {
		return make([]T, 0, ample(n))
	}
	return was[:0]
}

// ample is a power of two: what grows by a few from batch to batch is not made anew for each.
func ample(n int) int {
	if n == 0 {
		return 0
	}
	return 1 << bits.Len(uint(n-1))
}

// put takes the lists of a set that is over.
func (m *spare) put(s *set) {
	l := lists{s.change.Transitions, s.change.Claims, s.change.Work}
	s.change.Transitions, s.change.Claims, s.change.Work = nil, nil, nil
	if m.n == len(m.lists) || max(cap(l.transitions), cap(l.claims), cap(l.work)) > maxBatch {
		return
	}
	clear(l.transitions)
	clear(l.claims)
	clear(l.work)
	m.lists[m.n] = l
	m.n++
}
