package outbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"edda"
	"edda/store"
)

func wantFull(t *testing.T, r *Relay, want ...string) {
	t.Helper()
	if got := r.Full(); !slices.Equal(got, want) {
		t.Errorf("full: %v, want %v", got, want)
	}
}

func TestADestinationIsFullUntilAFifthIsFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, nats, gateway := newMemStore(), newFakeDestination(t), newFakeDestination(t)
		gateway.refuse = alwaysNo
		r := start(t, db, Options{Max: 10, Lanes: []Lane{nats.lane("nats", facts...), gateway.lane("gateway", edda.WorkCommand)}})
		for i := range 9 {
			db.put(command(fmt.Sprintf("c%d", i), fmt.Sprint(i)))
		}
		wantFull(t, r)
		db.put(command("c9", "9"))
		wantFull(t, r, "gateway")
		gateway.refusing(func(w edda.Work) error { // two of ten are accepted
			if w.ID == "c0" || w.ID == "c1" {
				return nil
			}
			return errDown
		})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if db.size() != 8 {
			t.Fatalf("%d rows left, want 8", db.size())
		}
		wantFull(t, r, "gateway")
		gateway.refusing(func(w edda.Work) error {
			if w.ID == "c2" {
				return nil
			}
			return errDown
		})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		wantFull(t, r)
	})
}

func TestEffectsThatWaitForTheirResultFillTheirDestination(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := openStore(t), newFakeDestination(t)
		r := start(t, db, Options{Max: 2, Lanes: []Lane{h.lane("nats", facts...)}})
		emit(t, db, "a", nil, effect("e1", "a"), effect("e2", "a"))
		wantIDs(t, h, "e1", "e2")
		wantFull(t, r, "nats")
		emit(t, db, "a", []string{"e1", "e2"}, fact("f", "a"))
		wantIDs(t, h, "e1", "e2", "f")
		wantFull(t, r)
	})
}

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
		r := start(t, db, Options{Lanes: []Lane{h.lane("nats", facts...)}})
		time.Sleep(time.Hour)
		synctest.Wait()
		if most := maxHeldBytes + len(large); r.lanes[0].bytes > most || r.lanes[0].held == 0 {
			t.Errorf("%d rows of %d bytes held, want some and at most %d bytes", r.lanes[0].held, r.lanes[0].bytes, most)
		}
		h.refusing(yes)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(h.ids()) != rows || db.size() != 0 || r.lanes[0].bytes != 0 {
			t.Errorf("%d of %d accepted, %d left, %d bytes held", len(h.ids()), rows, db.size(), r.lanes[0].bytes)
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
		start(t, db, Options{Lanes: []Lane{h.lane("nats", facts...)}})
		time.Sleep(time.Second)
		wantIDs(t, h, ids...)
	})
}

func TestTheBoundOfTheOutboxIsShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h, reg := newMemStore(), newFakeDestination(t), prometheus.NewRegistry()
		db.put(effect("e", "a"), effect("f", "a"))
		start(t, db, Options{Max: 7, Lanes: []Lane{h.lane("nats", facts...)}, Metrics: reg})
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

// sharing is a relay whose shares are computed anew at each call.
type sharing struct {
	t  *testing.T
	db *memStore
	r  *Relay
	n  int
}

func (s *sharing) want(what string, want ...string) {
	s.t.Helper()
	time.Sleep(sharesEvery)
	var got []string
	for share := range s.r.Shares() {
		got = append(got, share.Tenant+"/"+share.Saga+" "+share.Destination)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// make adds n rows of a tenant's saga to the outbox.
func (s *sharing) make(tenant string, n int) {
	for range n {
		s.n++
		w := command(fmt.Sprint("w", s.n), fmt.Sprint(s.n))
		w.From.Tenant = tenant
		s.db.put(w)
	}
}

// take removes n rows of a tenant, as if the destination had accepted them.
func (s *sharing) take(tenant string, n int) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.rows = slices.DeleteFunc(s.db.rows, func(r store.Row) bool {
		n -= b2i(r.Work.From.Tenant == tenant)
		return r.Work.From.Tenant == tenant && n >= 0
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestOneDeadDestinationTakesHalfOfTheRoomAndTwoAThirdEach: a saga has used up its share when it
// has as many rows as are free, and a newcomer finds room.
func TestOneDeadDestinationTakesHalfOfTheRoomAndTwoAThirdEach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		r, err := newRelay(db, Options{Max: 90, Lanes: []Lane{h.lane("nats", facts...), h.lane("gateway", edda.WorkCommand)}})
		if err != nil {
			t.Fatal(err)
		}
		s := &sharing{t: t, db: db, r: r}
		saga := command("x", "x").From.Saga
		one, two, new := "one/"+saga+" gateway", "two/"+saga+" gateway", "new/"+saga+" gateway"
		s.make("one", 44)
		s.want("one below half")
		s.make("one", 1)
		s.want("one with half of the room", one)
		s.make("two", 22)
		s.want("another with less than is free", one)
		s.make("two", 1)
		s.want("another with as much as is free", one, two)
		s.take("one", 13)
		s.want("one with 32 where 35 are free, which is more than four fifths", one)
		s.take("one", 3)
		s.want("one with less than four fifths of what is free")
		s.make("new", 20)
		s.want("three with more than a quarter each", new, one, two)
		s.take("two", 23)
		s.take("new", 20)
		s.take("one", 28)
		s.want("nobody has anything but one")
		s.make("new", 88)
		s.want("one that has nearly all of it", new, one)
		s.make("new", 1)
		if got := r.Full(); !slices.Equal(got, []string{"gateway"}) {
			t.Errorf("full: %v", got)
		}
	})
}

// TestNoMoreSharesAreListedThanMayBe expects the owners of the most rows to be listed.
func TestNoMoreSharesAreListedThanMayBe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		r, err := newRelay(db, Options{Max: 3 * maxShares, Lanes: []Lane{h.lane("gateway", edda.WorkCommand)}})
		if err != nil {
			t.Fatal(err)
		}
		s := &sharing{t: t, db: db, r: r}
		for i := range maxShares + 10 {
			s.make(fmt.Sprint("t", i), 2+b2i(i < maxShares))
		}
		if got := len(r.Shares()); got != maxShares {
			t.Errorf("%d shares", got)
		}
		for share := range r.Shares() {
			var i int
			if _, err := fmt.Sscanf(share.Tenant, "t%d", &i); err != nil || i >= maxShares {
				t.Errorf("%s has its share, one with more has not", share.Tenant)
			}
		}
	})
}
