package outbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"edda"
	"edda/store"
)

// TestMissedRowsComeBeforeLaterOnes: the relay misses the second of three rows.
func TestMissedRowsComeBeforeLaterOnes(t *testing.T) {
	db := newMemStore()
	db.put(fact("w1", "a"))
	first := <-db.Added()
	db.put(fact("w2", "a"))
	<-db.Added() // lost
	db.put(fact("w3", "a"))
	third := <-db.Added()
	third.Missed = true
	r, err := newRelay(db, Options{Routes: []Route{newFakeDestination(t).route("stream", edda.WorkFact)}})
	if err != nil {
		t.Fatal(err)
	}
	r.take(first)
	r.take(third)
	for r.scan() {
	}
	var got []string
	for _, it := range r.chains[first.Rows[0].Work.From].items {
		got = append(got, it.row.Work.ID)
	}
	if want := []string{"w1", "w2", "w3"}; !slices.Equal(got, want) || r.routes[0].cursor != third.Rows[0].ID {
		t.Errorf("held %v, want %v", got, want)
	}
	third.Missed = false
	if r.take(third); r.routes[0].held != 3 {
		t.Errorf("%d rows are held", r.routes[0].held)
	}
}

func TestNoTwoInstancesShareAChain(t *testing.T) {
	h := newFakeDestination(t)
	r, err := newRelay(newMemStore(), Options{Routes: []Route{h.route("nats", edda.WorkFact)}})
	if err != nil {
		t.Fatal(err)
	}
	hold := func(n byte, instance string) *item {
		row := rowAt(n, fact("f", instance))
		r.hold(row, r.routes[0])
		return r.chains[row.Work.From].items[len(r.chains[row.Work.From].items)-1]
	}
	first, second, other := hold(1, "A"), hold(2, "A"), hold(3, "B")
	if first.chain != second.chain || first.chain == other.chain {
		t.Error("chains are not those of their instances")
	}
	r.accept(first)
	r.accept(second)
	r.accept(second) // accepts it twice, by mistake
	if n := len(r.chains); n != 1 || r.chains[first.row.Work.From] != nil {
		t.Errorf("%d chains are in use", n)
	}
	again, third := hold(4, "C"), hold(5, "A")
	if third.chain == again.chain || third.chain == other.chain || third.chain == first.chain {
		t.Error("a chain is of two instances, or one that went is used again")
	}
	if again.state != ready || third.state != ready {
		t.Errorf("the rows stand at %d and %d, nothing is before them", again.state, third.state)
	}
}

// rowAt makes a row as the store returns it.
func rowAt(n byte, w edda.Work) store.NewRow { return store.NewRow{ID: ulid.ULID{15: n}, Work: &w} }

func TestHeldRowsAreBoundedInBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		h.refuse = alwaysNo
		large, err := json.Marshal(strings.Repeat("x", 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		const rows = 100
		for i := range rows {
			w := fact(fmt.Sprintf("w%03d", i), fmt.Sprint(i))
			w.Payload = large
			db.put(w)
		}
		r := start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		time.Sleep(time.Hour)
		synctest.Wait()
		if most := maxHeldBytes + len(large); r.routes[0].bytes > most || r.routes[0].held == 0 {
			t.Errorf("%d rows of %d bytes held, want some and at most %d bytes", r.routes[0].held, r.routes[0].bytes, most)
		}
		h.refusing(yes)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(h.ids()) != rows || db.size() != 0 || r.routes[0].bytes != 0 {
			t.Errorf("%d of %d accepted, %d left, %d bytes held", len(h.ids()), rows, db.size(), r.routes[0].bytes)
		}
	})
}

func TestPagesOfLargeRowsAreDelivered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := openStore(t), newFakeDestination(t)
		large, err := json.Marshal(strings.Repeat("x", 400<<10))
		if err != nil {
			t.Fatal(err)
		}
		ids := names("w", 30) // 12 MB
		for _, id := range ids {
			w := fact(id, id)
			w.Payload = large
			emit(t, db, id, nil, w)
		}
		rows, err := db.Outbox([16]byte{}, scanRows)
		if err != nil || len(rows) == 0 || len(rows) > 12 {
			t.Fatalf("a page of %d rows (%v), want at most 12", len(rows), err)
		}
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		time.Sleep(time.Second)
		wantIDs(t, h, ids...)
	})
}

func TestRowsMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h, reg := newMemStore(), newFakeDestination(t), prometheus.NewRegistry()
		db.put(effect("e", "a"), effect("f", "a"))
		start(t, db, Options{Max: 7, Routes: []Route{h.route("nats", facts...)}, Metrics: reg})
		want := `
# HELP edda_outbox_rows Rows in the outbox for a destination, with the effects that wait for their result.
# TYPE edda_outbox_rows gauge
edda_outbox_rows{destination="nats"} 2
# HELP edda_outbox_rows_limit Rows of one destination at which no new events are taken in.
# TYPE edda_outbox_rows_limit gauge
edda_outbox_rows_limit 7
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "edda_outbox_rows", "edda_outbox_rows_limit"); err != nil {
			t.Error(err)
		}
	})
}
