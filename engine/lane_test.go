package engine

import (
	"fmt"
	"slices"
	"testing"

	"edda"
	"edda/store"
)

// What a lane keeps for the next batch holds nothing of the one before, and what is large
// is not cleared for each small one.
func TestARestingLaneHoldsNothingOfItsBatch(t *testing.T) {
	l := lane{cells: map[edda.Key]edda.Cell{}}
	work := func(n int) {
		for i := range n {
			l.jobs = append(l.jobs, job{it: &item{}})
			l.cells[key(fmt.Sprint(i))] = edda.Cell{Instance: &edda.Instance{}}
		}
		if len(l.room) < n {
			l.room = make([]edda.Transition, n)
		}
		for i := range n {
			l.room[i].Instance = &edda.Instance{}
		}
		l.rest()
		for i, j := range l.jobs[:cap(l.jobs)] {
			if j.it != nil {
				t.Fatalf("of %d: job %d is held", n, i)
			}
		}
		for i := range l.room {
			if l.room[i].Instance != nil {
				t.Fatalf("of %d: transition %d is held", n, i)
			}
		}
		if len(l.cells) > 0 || len(l.jobs) > 0 {
			t.Fatalf("of %d: %d cells, %d jobs", n, len(l.cells), len(l.jobs))
		}
	}
	work(500)
	if work(1); l.grown != 1 {
		t.Errorf("a map that had %d cells is kept for one", l.grown)
	}
	work(3)
	if work(maxBatch + 1); cap(l.jobs) > 0 || cap(l.room) > 0 {
		t.Errorf("room for %d jobs and %d transitions is kept", cap(l.jobs), cap(l.room))
	}
}

// A small batch takes nothing away from the next large one: neither lanes nor their room,
// and room for some more than there was is mostly there.
func TestWhatBatchesTookStaysForTheNext(t *testing.T) {
	v := &evaluator{}
	batchOf := func(lanes int) {
		b := &batch{lanes: v.lanes, db: stored{}}
		b.spread(lanes)
		v.rested(b)
	}
	batchOf(3)
	first := slices.Clone(v.lanes)
	if batchOf(1); !slices.Equal(v.lanes, first) {
		t.Errorf("of %d lanes %d are left", len(first), len(v.lanes))
	}
	var m spare
	was := m.take(100, 70)
	was.transitions, was.claims, was.work = was.transitions[:1], was.claims[:1], was.work[:1]
	was.work[0].ID, was.claims[0].Owner, was.transitions[0].Fate = "w1", "w", edda.FateHandled
	m.put(&set{change: store.Change{Transitions: was.transitions, Claims: was.claims, Work: was.work}})
	next := m.take(101, 71)
	next.transitions, next.claims, next.work = next.transitions[:1], next.claims[:1], next.work[:1]
	if &next.transitions[0] != &was.transitions[0] || &next.claims[0] != &was.claims[0] || &next.work[0] != &was.work[0] {
		t.Error("lists were made anew for one more")
	}
	if next.transitions[0].Fate != "" || next.claims[0].Owner != "" || next.work[0].ID != "" {
		t.Error("something is left in a list that is used again")
	}
	for n, want := range map[int]int{0: 0, 1: 1, 2: 2, 3: 4, 100: 128, maxBatch: maxBatch} {
		if got := ample(n); got != want {
			t.Errorf("room for %d is %d, not %d", n, got, want)
		}
	}
}
