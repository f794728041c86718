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

// fakeOutbox counts rows by kind and owner.
type fakeOutbox struct {
	records
	rows map[edda.WorkKind]map[store.Owner]int
}

func (c *fakeOutbox) Outboxed(kinds ...edda.WorkKind) (n int) {
	for _, k := range kinds {
		for _, rows := range c.rows[k] {
			n += rows
		}
	}
	return n
}

func (c *fakeOutbox) Owners(least int, kinds ...edda.WorkKind) (out []store.Owner) {
	for _, k := range kinds {
		for o, rows := range c.rows[k] {
			if o.Rows = rows; rows >= max(least, 1) {
				out = append(out, o)
			}
		}
	}
	return out
}

// add adds commands of a tenant's saga to the outbox; a negative n removes them.
func (c *fakeOutbox) add(tenant string, n int) {
	c.rows[edda.WorkCommand][store.Owner{Tenant: tenant, Saga: "order"}] += n
}

func newFakeOutbox() *fakeOutbox {
	return &fakeOutbox{rows: map[edda.WorkKind]map[store.Owner]int{edda.WorkCommand: {}, edda.WorkFact: {}}}
}

// destinations are two. Most tests fill the second.
var destinations = []DestinationKinds{{"nats", []edda.WorkKind{edda.WorkFact}}, {"gateway", []edda.WorkKind{edda.WorkCommand}}}

func TestDestinationIsFullUntilAFifthIsFree(t *testing.T) {
	db := newFakeOutbox()
	r := newOutboxRoom(db, destinations, 10)
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

// TestOneSagaTakesHalfOfTheRoomAndTwoAThirdEach: a saga has used up its share when it has as many
// rows as are free. A newcomer finds room.
func TestOneSagaTakesHalfOfTheRoomAndTwoAThirdEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeOutbox()
		r := newOutboxRoom(db, destinations, 90)
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
		want("only one has rows")
		db.add("new", 88)
		want("one tenant with nearly all of the room", "new", "one")
		db.add("new", 1)
		if got := r.full(); !slices.Equal(got, []string{"gateway"}) {
			t.Errorf("full: %v", got)
		}
	})
}

// TestListedSharesAreBounded expects the owners of most rows.
func TestListedSharesAreBounded(t *testing.T) {
	db := newFakeOutbox()
	for i := range maxShares + 10 {
		n := 2
		if i < maxShares {
			n = 3
		}
		db.add(fmt.Sprint("t", i), n)
	}
	got := newOutboxRoom(db, destinations, 3*maxShares).overShare()
	if len(got) != maxShares {
		t.Errorf("%d shares", len(got))
	}
	for pair := range got {
		var i int
		if _, err := fmt.Sscanf(pair.Tenant, "t%d", &i); err != nil || i >= maxShares {
			t.Errorf("%s is listed, a tenant with more rows is not", pair.Tenant)
		}
	}
}

// TestFirstFullDestinationOfASagaIsListed for a saga that has used up its share of several.
func TestFirstFullDestinationOfASagaIsListed(t *testing.T) {
	db := newFakeOutbox()
	db.add("acme", 9)
	db.rows[edda.WorkFact][store.Owner{Tenant: "acme", Saga: "order"}] = 9
	if got := newOutboxRoom(db, destinations, 10).overShare(); got[SagaTenant{"acme", "order"}] != "gateway" || len(got) != 1 {
		t.Errorf("crowded: %v", got)
	}
}
