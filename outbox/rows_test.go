package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestADeadDestinationHoldsFewBytes(t *testing.T) {
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

func TestAPageOfLargeRowsEndsEarlyAndTheRestFollows(t *testing.T) {
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

func TestTheBoundOfTheOutboxIsShown(t *testing.T) {
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
