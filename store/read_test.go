package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
)

// TestOutboxOrderSurvivesTheClock lets the clock step back, over a restart too.
func TestOutboxOrderSurvivesTheClock(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i, clock := range []time.Time{noon, noon.Add(-time.Hour), noon.Add(-48 * time.Hour), noon.Add(time.Second)} {
		db := open(t, dir, Options{Now: func() time.Time { return clock }})
		for n := range 2 {
			id := fmt.Sprint("c", i, n)
			db.commit(t, Change{Transitions: []edda.Transition{working("1", uint64(2*i+n+1), id)}})
			want = append(want, id)
		}
		db.stop()
	}
	db := open(t, dir, Options{})
	var got []string
	for _, r := range must(db.Outbox(ulid.ULID{}, 100)) {
		got = append(got, r.Work.ID)
	}
	same(t, "outbox", got, want)
	same(t, "history", len(must(db.History(key("1"), 100))), 8)
	db.check(t)
}

// TestTheEchoOfAResultPrecedesItsWork: after the loss of the store only the echo explains the work.
func TestTheEchoOfAResultPrecedesItsWork(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, Change{
		Transitions: []edda.Transition{working("1", 1, "follows")},
		Work:        []edda.Work{{ID: "copy", Kind: edda.WorkResult, From: key("1"), Name: "call", CommandID: "c0", Time: noon}},
	})
	var got []string
	for _, r := range must(db.Outbox(ulid.ULID{}, 100)) {
		got = append(got, r.Work.ID)
	}
	same(t, "outbox", got, []string{"copy", "follows"})
	db.check(t)
}

// TestOrderSurvivesAnEmptyOutbox delivers everything before the restart: later
// rows still come after a position that a relay kept.
func TestOrderSurvivesAnEmptyOutbox(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 1, "c1")}})
	first := must(db.Outbox(ulid.ULID{}, 1))[0].ID
	db.commit(t, Change{Delivered: []ulid.ULID{first, first, {1}}})
	n, oldest := db.OutboxSize()
	same(t, "size", n, 0)
	same(t, "oldest", oldest, time.Time{})
	db.stop()
	db = open(t, dir, Options{Now: func() time.Time { return noon.Add(-time.Hour) }})
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 2, "c2")}})
	rows := must(db.Outbox(first, 10))
	same(t, "rows after", len(rows), 1)
}

// TestAResultForAnotherInstanceRemovedTheWaitingEffect: the command id in a result is the
// publisher's choice, who may be another tenant.
func TestAResultForAnotherInstanceRemovedTheWaitingEffect(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 1, "c1")}})
	for _, other := range []edda.Key{key("2"), {Tenant: "evil", Saga: "order", Correlation: "1"}} {
		stray := step(other, 1)
		stray.Settled = []string{"c1"}
		db.commit(t, Change{Transitions: []edda.Transition{stray}})
		if _, ok := db.Waiting("c1"); !ok {
			t.Fatalf("a result for %s settled the command of %s", other, key("1"))
		}
	}
	mine := step(key("1"), 2)
	mine.Settled = []string{"c1"}
	db.commit(t, Change{Transitions: []edda.Transition{mine}})
	if _, ok := db.Waiting("c1"); ok {
		t.Error("its own result did not settle it")
	}
	db.check(t)
}

// TestEffectSettledInItsOwnChange stands for a result that the engine applies in
// the batch that emitted the effect.
func TestEffectSettledInItsOwnChange(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	applied := step(key("1"), 2)
	applied.Settled = []string{"c1"}
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 1, "c1"), applied}})
	same(t, "outbox", len(must(db.Outbox(ulid.ULID{}, 10))), 0)
	if _, ok := db.Waiting("c1"); ok {
		t.Error("still waits")
	}
	checkIndex(t, db.DB)
}

// TestEffectEmittedAgain replaces the row: a command waits once.
func TestEffectEmittedAgain(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 1, "c1")}})
	db.commit(t, Change{Transitions: []edda.Transition{working("1", 2, "c1"), working("1", 3, "c1")}})
	same(t, "rows", len(must(db.Outbox(ulid.ULID{}, 10))), 1)
	checkIndex(t, db.DB)
	settled := step(key("1"), 4)
	settled.Settled = []string{"c1", "unknown"}
	db.commit(t, Change{Transitions: []edda.Transition{settled}})
	same(t, "rows after the result", len(must(db.Outbox(ulid.ULID{}, 10))), 0)
	checkIndex(t, db.DB)
}

// TestStaleRowArmedAnew: a change disarms a stale row, and a transition in it arms the row again:
// the row stays.
func TestStaleRowArmedAnew(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	row := Due{Time: noon, Key: key("1")}
	db.commit(t, Change{Arm: []Due{row}})
	one := step(key("1"), 1)
	one.Arm, one.Instance.Armed = []time.Time{noon}, noon
	db.commit(t, Change{Transitions: []edda.Transition{one}, Disarm: []Due{row}})
	db.check(t)
	rows, _, err := db.Due(noon, 10)
	same(t, "due", rows, []Due{row})
	same(t, "error", err, nil)
}

// TestHeldBeforeThereIsAnInstance stands for a poison event that would have started it.
func TestHeldBeforeThereIsAnInstance(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	first := edda.Entry{N: 1, Event: event("e1"), DeadLetter: "d1"}
	second := edda.Entry{N: 2, Event: event("e2")}
	db.commit(t, Change{Transitions: []edda.Transition{
		{Key: key("1"), Event: first.Event, Fate: edda.FateDead, Hold: &first},
		{Key: key("1"), Event: second.Event, Fate: edda.FateHeld, Hold: &second},
	}})
	same(t, "cell", db.cell(t, key("1")), edda.Cell{Key: key("1"), Held: []edda.Entry{first, second}})
	db.check(t)
	redriven := step(key("1"), 1)
	redriven.Release = []uint64{1, 2}
	db.commit(t, Change{Transitions: []edda.Transition{redriven}})
	same(t, "cell", db.cell(t, key("1")), edda.Cell{Key: key("1"), Instance: redriven.Instance})
	same(t, "history", len(must(db.History(key("1"), 10))), 3)
	db.check(t)
}

func TestClaimsAreFoundAndDroppedByHour(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	const shaped = "0195510d-e400-7abc-8def-0123456789ab"                                         // a UUIDv7 of 2025-03-01 11:57 UTC
	early := edda.Claim{CommandID: shaped, Claimed: time.Date(2025, 2, 28, 0, 0, 0, 0, time.UTC)} // a clock behind
	plain := edda.Claim{CommandID: "plain", Claimed: noon}
	db.commit(t, Change{Claims: []edda.Claim{early, plain}})
	plain.Done, plain.Outcome = true, edda.Succeeded
	db.commit(t, Change{Claims: []edda.Claim{plain}})
	for _, want := range []edda.Claim{early, plain} {
		got, found, err := db.Claim(want.Tenant, want.CommandID)
		same(t, "found", found && err == nil, true)
		same(t, "claim", got, want)
	}
	if _, found, _ := db.Claim("another", "plain"); found {
		t.Error("one tenant's claim is another's")
	}
	_, found, err := db.Claim("", "other")
	same(t, "another", found || err != nil, false)

	db.commit(t, Change{Remove: Removal{Claims: ClaimPlace{Hour: noon}}})
	if _, found, _ := db.Claim("", shaped); found {
		t.Error("not dropped")
	}
	if _, found, _ := db.Claim("", "plain"); !found {
		t.Error("dropped with the hours before")
	}
	db.check(t)
}

func TestDuePages(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	var rows []Due
	for i := range 5 {
		rows = append(rows, Due{Time: noon.Add(time.Duration(i)), Key: key("1")})
	}
	db.commit(t, Change{Arm: rows})
	for _, test := range []struct {
		until time.Time
		limit int
		want  []Due
		next  time.Time
	}{
		{noon.Add(-1), 10, nil, noon},
		{noon.Add(2), 10, rows[:3], noon.Add(3)},
		{noon.Add(9), 2, rows[:2], noon.Add(2)},
		{noon.Add(9), 10, rows, time.Time{}},
	} {
		got, next, err := db.Due(test.until, test.limit)
		same(t, "due", got, test.want)
		same(t, "next", next, test.next)
		same(t, "error", err, nil)
	}
}

func TestDeadLettersPageByID(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	letter := func(id string, at int) edda.DeadLetter {
		return edda.DeadLetter{ID: id, Reason: edda.DeadNoKey, Time: noon.Add(time.Duration(at))}
	}
	db.commit(t, Change{Dead: []edda.DeadLetter{letter("b", 1), letter("a", 2), letter("c", 3)}})
	db.commit(t, Change{Dead: []edda.DeadLetter{letter("b", 4)}}) // again: it replaces
	same(t, "all", must(db.DeadLetters("", 10)), []edda.DeadLetter{letter("a", 2), letter("c", 3), letter("b", 4)})
	same(t, "a page", must(db.DeadLetters(DeadPlace(letter("a", 2)), 1)), []edda.DeadLetter{letter("c", 3)})
	same(t, "the end", len(must(db.DeadLetters(DeadPlace(letter("b", 4)), 1))), 0)
	same(t, "after one that is gone", must(db.DeadLetters(DeadPlace(letter("b", 1)), 1)), []edda.DeadLetter{letter("a", 2)})
	for _, place := range []string{"a", "%", DeadPlace(letter("a", 2))[:6], DeadPlace(letter("a", 2)) + "AAAA"} {
		if _, err := db.DeadLetters(place, 1); !errors.Is(err, edda.Permanent) {
			t.Errorf("after %q: %v", place, err)
		}
	}
	got, found, err := db.DeadLetter("c")
	same(t, "one", got, letter("c", 3))
	same(t, "found", found && err == nil, true)
	_, found, err = db.DeadLetter("gone")
	same(t, "none", found || err != nil, false)
}

// TestViewsAreSnapshots reads a snapshot while commits go on.
func TestViewsAreSnapshots(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, Change{Transitions: []edda.Transition{step(key("1"), 1)}})
	v := must(db.View())
	db.commit(t, Change{Transitions: []edda.Transition{step(key("1"), 2)}})
	same(t, "in the snapshot", must(v.Cell(key("1"))).Instance.Revision, uint64(1))
	v.Close()
	v.Close()
	same(t, "now", db.cell(t, key("1")).Instance.Revision, uint64(2))
}

func TestHistoryEndsAtDroppedDays(t *testing.T) {
	clock := noon
	db := open(t, t.TempDir(), Options{Now: func() time.Time { return clock }})
	for i := range 4 {
		db.commit(t, Change{Transitions: []edda.Transition{step(key("1"), uint64(i+1))}})
		clock = clock.Add(24 * time.Hour)
	}
	same(t, "a page", len(must(db.History(key("1"), 3))), 3)
	db.sweep(t, KindHistory, Cutoffs{History: noon.Add(24 * time.Hour)})
	same(t, "what is left", len(must(db.History(key("1"), 10))), 3)
	db.check(t)
}

func TestHistoryComesInPages(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for i := range 5 {
		db.commit(t, Change{Transitions: []edda.Transition{step(key("1"), uint64(i+1))}})
		db.commit(t, Change{Transitions: []edda.Transition{step(key("2"), uint64(i+1))}})
	}
	all := must(db.History(key("1"), 10))
	var got []Record
	place := ""
	for pages := 1; ; pages++ {
		page, next, err := db.HistoryFrom(key("1"), place, 2)
		if err != nil || len(page) > 2 {
			t.Fatalf("a page of %d: %v", len(page), err)
		}
		got = append(got, page...)
		if place = next; next == "" {
			same(t, "pages", pages, 3)
			break
		}
	}
	same(t, "history in pages", got, all)
	_, place, _ = db.HistoryFrom(key("2"), "", 1)
	for _, bad := range []string{"x", "AAAA", place} { // the last is another key's
		if _, _, err := db.HistoryFrom(key("1"), bad, 10); !errors.Is(err, edda.Permanent) {
			t.Errorf("a place %q: %v", bad, err)
		}
	}
}

func TestPagesOfLargeRowsEndEarly(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	state, err := json.Marshal(map[string]string{"text": strings.Repeat("x", 600<<10)})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20 // 12 MB
	for i := range n {
		for _, k := range []edda.Key{key("history"), key(fmt.Sprint("list-", i))} {
			tr := step(k, uint64(i+1))
			tr.Instance.State = state
			db.commit(t, Change{Transitions: []edda.Transition{tr}})
		}
	}
	seen := 0
	for place := ""; ; {
		page, next, err := db.HistoryFrom(key("history"), place, 1000)
		if err != nil || len(page) == 0 || len(page) > 8 {
			t.Fatalf("a page of %d: %v", len(page), err)
		}
		seen += len(page)
		if place = next; next == "" {
			break
		}
	}
	same(t, "history in pages", seen, n)
	seen = 0
	for q := (Query{Limit: 1000}); ; {
		page := must(db.Instances(q))
		if len(page) == 0 {
			break
		}
		if len(page) > 8 {
			t.Fatalf("a page of %d instances", len(page))
		}
		seen, q.After = seen+len(page), page[len(page)-1].Key
	}
	same(t, "instances in pages", seen, n+1)
}

func TestParkedEventsAreCountedOnce(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	change := func(park, unpark uint64, want int) {
		t.Helper()
		tr := edda.Transition{Key: key("1"), Fate: edda.FateParked, Event: edda.Event{ID: "e", Time: noon}}
		if park > 0 {
			tr.Park = &edda.Entry{N: park, Event: tr.Event}
		}
		if unpark > 0 {
			tr.Unpark = []uint64{unpark}
		}
		db.commit(t, Change{Transitions: []edda.Transition{tr}})
		same(t, "parked", db.Parked(key("1").Tenant), want)
		same(t, "parked in all", db.ParkedInAll(), want)
	}
	change(1, 0, 1)
	change(1, 0, 1) // the same place again
	change(2, 0, 2)
	change(0, 7, 2) // is not there
	change(0, 1, 1)
	change(3, 3, 2)
	db.stop()
	db = open(t, dir, Options{})
	same(t, "parked after a restart", db.Parked(key("1").Tenant), 2)
	change(0, 2, 1)
}
