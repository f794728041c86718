package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/store/format"
)

// sweep removes what has expired, and returns how much that was.
func (o *opened) sweep(t testing.TB, kind RowKind, cut Cutoffs) (total Portion) {
	t.Helper()
	s := o.Sweep(kind, cut)
	for !s.Done() {
		p, err := s.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if p.Rows > maxRemovedRows {
			t.Errorf("%d rows in one portion", p.Rows)
		}
		o.commit(t, Change{Remove: p.Removal})
		total.Rows += p.Rows
		total.Bytes += p.Bytes
	}
	return total
}

// finished is a step that ends its instance.
func finished(k edda.Key, revision uint64, status edda.Status) edda.Transition {
	t := step(k, revision)
	t.Instance.Status, t.Instance.Ended = status, noon
	return t
}

func before(cut time.Time) Cutoffs {
	return Cutoffs{Ended: func(string, edda.Status) time.Time { return cut }}
}

func TestFinishedInstancesExpireByTheTimeOfTheirCommit(t *testing.T) {
	clock := noon
	db := open(t, t.TempDir(), Options{Now: func() time.Time { return clock }})
	old := finished(key("old"), 1, edda.StatusDone)
	old.Instance.Armed, old.Arm = noon.Add(time.Hour), []time.Time{noon.Add(time.Hour)} // a deadline that was never disarmed
	db.commit(t, Change{Transitions: []edda.Transition{old, finished(key("failed"), 1, edda.StatusFailed), step(key("runs"), 1)}})
	clock = noon.Add(48 * time.Hour)
	// Its event is as old as the others: it was read from far back in the stream.
	db.commit(t, Change{Transitions: []edda.Transition{finished(key("young"), 1, edda.StatusDone)}})
	db.check(t)

	got := db.sweep(t, KindInstances, Cutoffs{Ended: func(saga string, s edda.Status) time.Time {
		if s == edda.StatusDone {
			return noon.Add(time.Hour)
		}
		return noon.Add(-time.Hour)
	}})
	same(t, "rows", got.Rows, 1)
	db.check(t)
	checkIndex(t, db.DB)
	same(t, "the old one", db.cell(t, key("old")), edda.Cell{Key: key("old")})
	same(t, "its history", len(must(db.History(key("old"), 10))), 1)
	for _, k := range []string{"failed", "runs", "young"} {
		if db.cell(t, key(k)).Instance == nil {
			t.Errorf("%s is gone", k)
		}
	}
	rows, _, _ := db.Due(noon.Add(24*time.Hour), 10)
	same(t, "due", len(rows), 0)
	same(t, "again", db.sweep(t, KindInstances, before(noon)).Rows, 0)
}

func TestHeadsAreRemovedWithTheirHistory(t *testing.T) {
	clock := noon
	db := open(t, t.TempDir(), Options{Now: func() time.Time { return clock }})
	entry := edda.Entry{N: 1, Event: event("e1"), Expires: noon.Add(time.Hour)}
	db.commit(t, Change{Transitions: []edda.Transition{
		finished(key("gone"), 1, edda.StatusDone),
		{Key: key("parked"), Event: entry.Event, Fate: edda.FateParked, Park: &entry},
		{Key: key("unparked"), Event: entry.Event, Fate: edda.FateParked},
		step(key("runs"), 1),
	}})
	clock = noon.Add(24 * time.Hour)
	db.commit(t, Change{Transitions: []edda.Transition{finished(key("later"), 1, edda.StatusDone)}})
	db.sweep(t, KindInstances, before(noon.Add(48*time.Hour)))
	db.check(t)
	p := must(db.Sweep(KindHistory, Cutoffs{History: clock}).Next(context.Background()))
	same(t, "forgotten", p.Forgotten, []edda.Key{key("gone"), key("unparked")})
	same(t, "rows", db.sweep(t, KindHistory, Cutoffs{History: clock}).Rows, 4)
	db.commit(t, Change{Remove: Removal{Forgotten: []edda.Key{key("parked"), key("runs"), key("later")}}})
	db.check(t)
	var heads []string
	for k := range dump(t, db.DB) {
		if strings.HasPrefix(k, "saga/") {
			heads = append(heads, k)
		}
	}
	same(t, "heads", len(heads), 3) // parked, runs, later
	same(t, "the running one", len(must(db.History(key("runs"), 10))), 0)
	db.commit(t, Change{Transitions: []edda.Transition{step(key("runs"), 2)}})
	db.check(t)
	db.sweep(t, KindInstances, before(noon.Add(48*time.Hour)))
	db.sweep(t, KindHistory, Cutoffs{History: noon.Add(96 * time.Hour)})
	db.check(t)
}

// TestAnInstanceRemovedMeanwhileIsWrittenWhole: the engine had read it before its removal, and
// decides on that state.
func TestAnInstanceRemovedMeanwhileIsWrittenWhole(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	one := finished(key("1"), 1, edda.StatusDone)
	one.Instance.Armed, one.Arm = noon.Add(time.Hour), []time.Time{noon.Add(time.Hour)}
	db.commit(t, Change{Transitions: []edda.Transition{one}})
	s := db.Sweep(KindInstances, before(noon.Add(time.Hour)))
	p := must(s.Next(context.Background()))
	late := finished(key("1"), 2, edda.StatusDone)
	late.Instance.Armed = noon.Add(time.Hour)
	db.commit(t, Change{Remove: p.Removal})
	db.commit(t, Change{Transitions: []edda.Transition{late}})
	db.check(t)
	checkIndex(t, db.DB)
	same(t, "it", db.cell(t, key("1")).Instance.Revision, uint64(2))
	rows, _, _ := db.Due(noon.Add(24*time.Hour), 10)
	same(t, "due", len(rows), 1)
}

// TestRowsChangedSinceTheSweepAreNotRemoved covers the gap between look and commit.
func TestRowsChangedSinceTheSweepAreNotRemoved(t *testing.T) {
	clock := noon
	db := open(t, t.TempDir(), Options{Now: func() time.Time { return clock }})
	letter := edda.DeadLetter{ID: "d1", Time: noon.Add(-time.Hour)}
	db.commit(t, Change{Transitions: []edda.Transition{finished(key("1"), 1, edda.StatusDone)}, Dead: []edda.DeadLetter{letter}})
	cut := before(noon.Add(time.Hour))
	cut.DeadLetters = noon.Add(time.Hour)
	instances := must(db.Sweep(KindInstances, cut).Next(context.Background()))
	letters := must(db.Sweep(KindDeadLetters, cut).Next(context.Background()))
	same(t, "found", []int{instances.Rows, letters.Rows}, []int{1, 1})
	clock = noon.Add(2 * time.Hour)
	restarted := finished(key("1"), 2, edda.StatusDone)
	restarted.Instance.Generation = 2
	db.commit(t, Change{Transitions: []edda.Transition{restarted}, Dead: []edda.DeadLetter{letter}})
	db.commit(t, Change{Remove: instances.Removal})
	db.commit(t, Change{Remove: letters.Removal})
	db.check(t)
	if db.cell(t, key("1")).Instance == nil {
		t.Error("the new generation is gone")
	}
	same(t, "letters", len(must(db.DeadLetters("", 10))), 1)
}

func TestALateChangeKeepsTheEnd(t *testing.T) {
	clock := noon
	db := open(t, t.TempDir(), Options{Now: func() time.Time { return clock }})
	db.commit(t, Change{Transitions: []edda.Transition{finished(key("1"), 1, edda.StatusDone)}})
	clock = noon.Add(48 * time.Hour)
	db.commit(t, Change{Transitions: []edda.Transition{finished(key("1"), 2, edda.StatusDone)}})
	db.check(t)
	same(t, "rows", db.sweep(t, KindInstances, before(noon.Add(time.Hour))).Rows, 1)
}

// TestOutstandingRowsAreNotRemoved: held and waiting rows do not expire.
func TestOutstandingRowsAreNotRemoved(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	waits := finished(key("waits"), 1, edda.StatusDone)
	waits.Instance.Steps = []edda.Step{{ID: "mail", Kind: edda.StepEffect, Status: edda.StepPending, Late: true}}
	held := finished(key("held"), 1, edda.StatusDone)
	held.Instance.Held, held.Hold = "d1", &edda.Entry{N: 1, Event: event("e"), DeadLetter: "d1"}
	held.Dead = &edda.DeadLetter{ID: "d1", Key: key("held"), Time: noon}
	db.commit(t, Change{Transitions: []edda.Transition{waits, held}})
	cut := before(noon.Add(time.Hour))
	cut.DeadLetters = noon.Add(time.Hour)
	same(t, "instances", db.sweep(t, KindInstances, cut).Rows, 0)
	same(t, "letters", db.sweep(t, KindDeadLetters, cut).Rows, 0)
	db.check(t)
}

func TestClaimsLettersAndAuditsExpireInPortions(t *testing.T) {
	clock := noon
	db := open(t, t.TempDir(), Options{Now: func() time.Time { return clock }})
	const n = 3 * maxRemovedRows / 2
	fill := func(at time.Time) (c Change) {
		for i := range n {
			id := fmt.Sprint(at.Unix(), "-", i)
			c.Claims = append(c.Claims, edda.Claim{Tenant: "acme\x00", CommandID: id, Claimed: at, Result: json.RawMessage(`1`)})
			c.Dead = append(c.Dead, edda.DeadLetter{ID: id, Time: noon.Add(-1000 * time.Hour)})
			c.Audits = append(c.Audits, Audit{Time: at, Verb: "retry"})
		}
		return c
	}
	db.commit(t, fill(noon))
	clock = noon.Add(3 * time.Hour)
	db.commit(t, fill(clock))
	cut := Cutoffs{Claims: noon.Add(2 * time.Hour), DeadLetters: noon.Add(2 * time.Hour), Audits: noon.Add(2 * time.Hour)}
	for _, kind := range []RowKind{KindClaims, KindDeadLetters, KindAudit} {
		before := db.dry(t, kind, cut)
		got := db.sweep(t, kind, cut)
		same(t, string(kind), got.Rows, n)
		same(t, string(kind)+" were told before", []int64{before.Bytes, int64(before.Rows)}, []int64{got.Bytes, int64(got.Rows)})
		same(t, string(kind)+" again", db.sweep(t, kind, cut).Rows, 0)
	}
	db.check(t)
	same(t, "letters", len(must(db.DeadLetters("", 1000))), n)
	same(t, "audits", len(must(db.Audits(1000))), n)
	_, found, err := db.Claim("acme\x00", fmt.Sprint(clock.Unix(), "-1"))
	same(t, "the young claim", found && err == nil, true)
	if cut.Claims = (time.Time{}); db.sweep(t, KindClaims, cut).Rows != 0 {
		t.Error("no cutoff, and yet something went")
	}
}

// dry looks only.
func (o *opened) dry(t testing.TB, kind RowKind, cut Cutoffs) (total Portion) {
	t.Helper()
	s := o.Sweep(kind, cut)
	for !s.Done() {
		p, err := s.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		total.Rows += p.Rows
		total.Bytes += p.Bytes
	}
	return total
}

func TestRetentionClockIsKept(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	at, kept, err := db.RetentionClock()
	same(t, "at first", []any{at, kept, err}, []any{noon, false, nil})
	db.commit(t, Change{Remove: Removal{Clock: noon.Add(time.Hour)}})
	db.stop()
	db = open(t, dir, Options{})
	at, kept, err = db.RetentionClock()
	same(t, "kept", []any{at, kept, err}, []any{noon.Add(time.Hour), true, nil})
	db.check(t)
}

// TestAnAgeBeforeTheEpochRemovedEverything: a cutoff in 1969 came out as a day
// four billion days ahead.
func TestAnAgeBeforeTheEpochRemovedEverything(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, Change{Transitions: []edda.Transition{step(key("1"), 1)}, Claims: []edda.Claim{{CommandID: "c", Claimed: noon}}})
	old := time.Unix(-1000, 0)
	for _, kind := range []RowKind{KindHistory, KindClaims} {
		same(t, string(kind), db.sweep(t, kind, Cutoffs{History: old, Claims: old}).Rows, 0)
	}
}

// TestAKeyTooLongToEndIsRefusedAtTheStart: the row of an end has a longer key
// than the instance.
func TestAKeyTooLongToEndIsRefusedAtTheStart(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for n, want := range map[int]error{format.MaxKey - 20: edda.Poison, format.MaxKey - 100: nil} {
		k := key(strings.Repeat("k", n))
		err := db.Commit(context.Background(), Change{Transitions: []edda.Transition{step(k, 1)}})
		if !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if want == nil {
			db.commit(t, Change{Transitions: []edda.Transition{finished(k, 2, edda.StatusFailed)}})
		}
	}
	db.check(t)
}
