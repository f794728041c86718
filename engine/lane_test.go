package engine

import (
	"fmt"
	"slices"
	"testing"

	"edda"
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

// TestLanesOutliveASmallerBatch: most batches are of one input, or of many.
func TestLanesOutliveASmallerBatch(t *testing.T) {
	b := batch{db: stored{}}
	b.spread(4)
	was := slices.Clone(b.lanes)
	for _, lanes := range []int{1, 3, 4, 2, 6, 1, 6} {
		b.spread(lanes)
		for i, l := range b.lanes {
			if l == nil || l.cells == nil || i < len(was) && l != was[i] {
				t.Errorf("%d lanes: the %d. is another", lanes, i)
			}
		}
		if len(b.lanes) > len(was) {
			was = slices.Clone(b.lanes)
		}
	}
}
