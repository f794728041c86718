package outbox

import (
	"slices"
	"testing"

	"edda"
)

// TestRowsThatWereNotSentGoBeforeLaterOnes has the relay miss the second of three rows.
func TestRowsThatWereNotSentGoBeforeLaterOnes(t *testing.T) {
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
