package store

import (
	"errors"
	"testing"
	"time"

	"edda"
)

func TestReplaysAreKeptAndForgotten(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	r := Replay{
		ID: "r1", Tenant: "acme", Saga: "order", Correlation: "O1", Stream: "AGGREGATE_EVENTS", FromSeq: 7, FromTime: noon, Emit: "new", Version: 2, Hash: "abc",
		By: "ann", Reason: "<why>", Begun: noon, Ended: noon.Add(time.Second), State: "done", Error: "none", Summary: []byte(`{"same":3}`),
	}
	second := r
	second.ID = "r2"
	db.commit(t, Change{Replays: []Replay{r, second}})
	db.stop()
	db = open(t, dir, Options{})
	same(t, "replays", must(db.Replays()), []Replay{r, second})
	r.State = "failed"
	db.commit(t, Change{Replays: []Replay{r}, DropReplays: []string{"r2", "never"}})
	same(t, "replays", must(db.Replays()), []Replay{r})
}

// written commits n transitions of one key, a commit each.
func written(t *testing.T, db *opened, k edda.Key, n int) {
	t.Helper()
	for i := range n {
		ev := formatEvent(string(rune('a' + i)))
		in := &edda.Instance{Key: k, Version: 1, Generation: 1, Status: edda.StatusRunning, Revision: uint64(i + 1)}
		db.commit(t, Change{Transitions: []edda.Transition{{Key: k, Event: ev, Fate: edda.FateHandled, Instance: in}}})
	}
}

func TestAViewHasTheWholeHistoryOfAKeyOldestFirst(t *testing.T) {
	now := noon
	db := open(t, t.TempDir(), Options{Now: func() time.Time { now = now.Add(9 * time.Hour); return now }})
	k := edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}
	written(t, db, k, 5)
	written(t, db, edda.Key{Tenant: "acme", Saga: "order2", Correlation: "O1"}, 1)
	v := must(db.View())
	defer v.Close()
	rows, whole, err := v.History(k, 5)
	if err != nil || !whole || len(rows) != 5 || rows[0].Event.ID != "a" || rows[4].Event.ID != "e" {
		t.Errorf("%d rows, %t, %v", len(rows), whole, err)
	}
	if n, whole, err := v.HistorySize(k); n != 5 || !whole || err != nil {
		t.Errorf("%d rows, %t, %v", n, whole, err)
	}
	if _, _, err := v.History(k, 4); !errors.Is(err, edda.Permanent) {
		t.Errorf("more rows than wanted: %v", err)
	}
	if n, whole, err := v.HistorySize(edda.Key{Saga: "none"}); n != 0 || !whole || err != nil {
		t.Errorf("a key that is not there: %d, %t, %v", n, whole, err)
	}
}

func TestKeysOfOneSagaInPages(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for _, saga := range []string{"order", "order2"} {
		for _, id := range []string{"a", "b", "b\x00", "c"} {
			written(t, db, edda.Key{Tenant: "acme", Saga: saga, Correlation: id}, 1)
		}
	}
	parked := formatEntry(1, "e2")
	db.commit(t, Change{Transitions: []edda.Transition{{Key: edda.Key{Tenant: "acme", Saga: "order", Correlation: "d"}, Event: parked.Event, Fate: edda.FateParked, Park: parked}}})
	v := must(db.View())
	defer v.Close()
	var got []string
	after := edda.Key{}
	for range 3 { // pages of two
		n := 0
		if err := v.Keys("acme", "order", after, func(k edda.Key) bool {
			got, after = append(got, k.Correlation), k
			n++
			return n < 2
		}); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "keys", got, []string{"a", "b", "b\x00", "c", "d"})
	version, known, err := v.Known(after)
	same(t, "a key without an instance", []any{version, known, err}, []any{0, true, nil})
	version, known, err = v.Known(edda.Key{Tenant: "acme", Saga: "order", Correlation: "a"})
	same(t, "a key with an instance", []any{version, known, err}, []any{1, true, nil})
	version, known, err = v.Known(edda.Key{Tenant: "acme", Saga: "order", Correlation: "z"})
	same(t, "a key that is not there", []any{version, known, err}, []any{0, false, nil})
}
