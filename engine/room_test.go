package engine

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	"edda/store"
)

// counted is an outbox of so many rows for each owner and destination.
type counted struct {
	records
	rows map[edda.WorkKind]map[store.Owner]int
}

func (c *counted) Outboxed(kinds ...edda.WorkKind) (n int) {
	for _, k := range kinds {
		for _, rows := range c.rows[k] {
			n += rows
		}
	}
	return n
}

func (c *counted) Owners(least int, kinds ...edda.WorkKind) (out []store.Owner) {
	for _, k := range kinds {
		for o, rows := range c.rows[k] {
			if o.Rows = rows; rows >= max(least, 1) {
				out = append(out, o)
			}
		}
	}
	return out
}

// add adds commands of a tenant's saga to the outbox, or removes them.
func (c *counted) add(tenant string, n int) {
	c.rows[edda.WorkCommand][store.Owner{Tenant: tenant, Saga: "order"}] += n
}

func newCounted() *counted {
	return &counted{rows: map[edda.WorkKind]map[store.Owner]int{edda.WorkCommand: {}, edda.WorkFact: {}}}
}

// places are two destinations, of which the tests fill the second.
var places = []DestinationKinds{{"nats", []edda.WorkKind{edda.WorkFact}}, {"gateway", []edda.WorkKind{edda.WorkCommand}}}

func TestADestinationIsFullUntilAFifthIsFree(t *testing.T) {
	db := newCounted()
	r := newOutboxRoom(db, places, 10)
	for _, step := range []struct {
		add  int
		want []string
	}{{9, nil}, {1, []string{"gateway"}}, {-2, []string{"gateway"}}, {-1, nil}, {2, nil}, {1, []string{"gateway"}}} {
		db.add("acme", step.add)
		if got := r.full(); !slices.Equal(got, step.want) {
			t.Errorf("with %d rows full: %v, want %v", db.Outboxed(edda.WorkCommand), got, step.want)
		}
	}
}

// TestOneDeadDestinationTakesHalfOfTheRoomAndTwoAThirdEach: a saga has used up its share when it
// has as many rows as are free, and a newcomer finds room.
func TestOneDeadDestinationTakesHalfOfTheRoomAndTwoAThirdEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newCounted()
		r := newOutboxRoom(db, places, 90)
		want := func(what string, tenants ...string) {
			t.Helper()
			time.Sleep(sharesEvery)
			var got []string
			for pair, destination := range r.overShare() {
				if got = append(got, pair.Tenant); pair.Saga != "order" || destination != "gateway" {
					t.Errorf("%s: %v at %s", what, pair, destination)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tenants) {
				t.Errorf("%s: %v, want %v", what, got, tenants)
			}
		}
		db.add("one", 44)
		want("one below half")
		db.add("one", 1)
		want("one with half of the room", "one")
		db.add("two", 22)
		want("another with less than is free", "one")
		db.add("two", 1)
		want("another with as much as is free", "one", "two")
		db.add("one", -13)
		want("one with 32 where 35 are free, which is more than four fifths", "one")
		db.add("one", -3)
		want("one with less than four fifths of what is free")
		db.add("new", 20)
		want("three with more than a quarter each", "new", "one", "two")
		db.add("two", -23)
		db.add("new", -20)
		db.add("one", -28)
		want("nobody has anything but one")
		db.add("new", 88)
		want("one that has nearly all of it", "new", "one")
		db.add("new", 1)
		if got := r.full(); !slices.Equal(got, []string{"gateway"}) {
			t.Errorf("full: %v", got)
		}
	})
}

// TestNoMoreSharesAreListedThanMayBe expects the owners of the most rows to be listed.
func TestNoMoreSharesAreListedThanMayBe(t *testing.T) {
	db := newCounted()
	for i := range maxShares + 10 {
		n := 2
		if i < maxShares {
			n = 3
		}
		db.add(fmt.Sprint("t", i), n)
	}
	got := newOutboxRoom(db, places, 3*maxShares).overShare()
	if len(got) != maxShares {
		t.Errorf("%d shares", len(got))
	}
	for pair := range got {
		var i int
		if _, err := fmt.Sscanf(pair.Tenant, "t%d", &i); err != nil || i >= maxShares {
			t.Errorf("%s has its share, one with more has not", pair.Tenant)
		}
	}
}

// TestTheFirstDestinationOfASagaIsNamed where it has used up its share of several.
func TestTheFirstDestinationOfASagaIsNamed(t *testing.T) {
	db := newCounted()
	db.add("acme", 9)
	db.rows[edda.WorkFact][store.Owner{Tenant: "acme", Saga: "order"}] = 9
	if got := newOutboxRoom(db, places, 10).overShare(); got[SagaTenant{"acme", "order"}] != "gateway" || len(got) != 1 {
		t.Errorf("crowded: %v", got)
	}
}
