package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"edda/store"
)

func partOf(state, problem string, begun, ended int64, p Summary) *Report {
	r := &Report{Replay: store.Replay{ID: "R", State: state, Error: problem, Begun: time.Unix(begun, 0)}, Progress: p}
	if ended > 0 {
		r.Ended = time.Unix(ended, 0)
	}
	return r
}

// TestAReplayIsTheSumOfItsParts: it runs as long as one of them does, and has failed if one has.
func TestAReplayIsTheSumOfItsParts(t *testing.T) {
	counts := Summary{
		KeysTotal: 1, KeysDone: 2, EventsTotal: 3, EventsDone: 4, Same: 5, Changed: 6, Exchanged: 7, Before: 8, Extra: 9,
		Expired: 10, Unbuilt: 11, NewWork: 12, GoneWork: 13, AllWork: 14, Sent: 15, Notes: []string{"a", "b"},
	}
	other := counts
	other.Notes, other.Phase = []string{"b", "c"}, PhaseBuild
	got := Whole([]*Report{partOf(StateDone, "", 5, 9, counts), partOf(StateRunning, "", 4, 0, other), partOf(StateDone, "", 6, 7, counts)})
	if got.State != StateRunning || got.Progress.Phase != PhaseBuild || !got.Ended.IsZero() || !got.Begun.Equal(time.Unix(4, 0)) {
		t.Errorf("%+v", got)
	}
	want := Summary{
		Phase: PhaseBuild, KeysTotal: 3, KeysDone: 6, EventsTotal: 9, EventsDone: 12, Same: 15, Changed: 18, Exchanged: 21, Before: 24, Extra: 27,
		Expired: 30, Unbuilt: 33, NewWork: 36, GoneWork: 39, AllWork: 42, Sent: 45, Notes: []string{"a", "b", "c"},
	}
	if fmt.Sprint(got.Progress) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got.Progress, want)
	}
	if done := Whole([]*Report{partOf(StateDone, "", 5, 9, counts), partOf(StateDone, "", 4, 8, counts)}); done.State != StateDone || !done.Ended.Equal(time.Unix(9, 0)) {
		t.Errorf("%+v", done)
	}
	for _, parts := range [][]*Report{
		{partOf(StateDone, "", 1, 2, counts), partOf(StateFailed, "it broke", 1, 3, counts)},
		{partOf(StateFailed, "it broke", 1, 3, counts), partOf(StateDone, "", 1, 2, counts)},
	} {
		if got := Whole(parts); got.State != StateFailed || !strings.Contains(got.Error, "it broke") || !strings.HasPrefix(got.Error, "shard ") {
			t.Errorf("%+v", got)
		}
	}
	if running := Whole([]*Report{partOf(StateFailed, "it broke", 1, 3, counts), partOf(StateRunning, "", 1, 0, counts)}); running.State != StateRunning || !running.Ended.IsZero() {
		t.Errorf("%+v", running)
	}
}

func TestOnlyTheFirstDifferencesOfAllPartsAreShown(t *testing.T) {
	many := Summary{Differences: make([]Difference, MaxShown-1), Work: make([]WorkItem, MaxShown)}
	got := Whole([]*Report{partOf(StateDone, "", 1, 2, many), partOf(StateDone, "", 1, 3, many)})
	if len(got.Progress.Differences) != MaxShown || len(got.Progress.Work) != MaxShown {
		t.Errorf("%d differences, %d pieces of work", len(got.Progress.Differences), len(got.Progress.Work))
	}
}

// TestAReplayThatLacksAPartHasFailed: it has done less than it was asked to.
// It runs as long as a part of it does.
func TestAReplayThatLacksAPartHasFailed(t *testing.T) {
	done := partOf(StateDone, "", 1, 2, Summary{Same: 1})
	done.Shards = 3
	if got := Whole([]*Report{done, nil, nil}); got.State != StateFailed || !strings.Contains(got.Error, "shard 1 ") || !strings.Contains(got.Error, "with the id") {
		t.Errorf("%+v", got)
	}
	dry := partOf(StateDone, "", 1, 2, Summary{Same: 1})
	dry.DryRun, dry.Shards = true, 2
	if got := Whole([]*Report{nil, dry}); got.State != StateFailed || !strings.Contains(got.Error, "shard 0 ") {
		t.Errorf("%+v", got)
	}
	if got := Whole([]*Report{partOf(StateRunning, "", 1, 0, Summary{}), nil}); got.State != StateRunning || got.Error != "" {
		t.Errorf("%+v", got)
	}
	if done.State != StateDone {
		t.Error("the part was changed")
	}
}

// TestAPartThatIsNotKnownMayBeForgotten: to repeat the call would begin it again there.
func TestAPartThatIsNotKnownMayBeForgotten(t *testing.T) {
	done := partOf(StateDone, "", 1, 2, Summary{})
	done.Shards = 2
	got := Whole([]*Report{done, nil})
	if got.State != StateFailed || !strings.HasPrefix(got.Error, "shard 1 does not know its part") || !strings.Contains(got.Error, "it keeps the newest 100") {
		t.Errorf("%+v", got)
	}
}

// TestAReplayWasDoneWhileHalvesOfASplitRan: and while they failed. A split of the shards copied the parts.
func TestAReplayWasDoneWhileHalvesOfASplitRan(t *testing.T) {
	of := func(shards int, state string, ended int64) *Report {
		r := partOf(state, "", 1, ended, Summary{Same: 1})
		r.Shards = shards
		return r
	}
	one, two, late := of(2, StateDone, 2), of(2, StateDone, 3), of(2, StateDone, 9)
	for name, c := range map[string]struct {
		parts []*Report
		state string
		same  int
	}{
		"ended before it":        {[]*Report{one, two, one, two}, StateDone, 2},
		"ended before two":       {[]*Report{one, two, one, two, one, two, one, two}, StateDone, 2},
		"ended between two":      {[]*Report{one, two, late, two, one, two, late, two}, StateDone, 3},
		"runs in a half":         {[]*Report{one, two, one, of(2, StateRunning, 0)}, StateRunning, 3},
		"failed in a half":       {[]*Report{one, two, late, of(2, StateFailed, 8)}, StateFailed, 4},
		"both":                   {[]*Report{one, two, of(2, StateRunning, 0), of(2, StateFailed, 8)}, StateRunning, 4},
		"of one store, ended":    {[]*Report{of(0, StateDone, 2), of(0, StateDone, 2)}, StateDone, 1},
		"of one store, in one":   {[]*Report{nil, of(0, StateDone, 2)}, StateDone, 1},
		"of one store, runs on":  {[]*Report{of(0, StateRunning, 0), of(0, StateFailed, 8)}, StateRunning, 2},
		"of one store, half bad": {[]*Report{of(0, StateDone, 2), of(0, StateFailed, 8)}, StateFailed, 2},
		"forgotten by a copy":    {[]*Report{one, two, nil, two}, StateDone, 2},
	} {
		if got := Whole(c.parts); got.State != c.state || got.Progress.Same != c.same {
			t.Errorf("%s: %s with %d instances, want %s with %d", name, got.State, got.Progress.Same, c.state, c.same)
		}
	}
}
