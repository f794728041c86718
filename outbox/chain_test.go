package outbox

import (
	"testing"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store"
)

// TestNoTwoInstancesShareAChain, also not one that went with another instance's last row:
// the rows of the one would wait for those of the other.
func TestNoTwoInstancesShareAChain(t *testing.T) {
	h := newHarbour(t)
	r, err := newRelay(newShelf(), Options{Lanes: []Lane{h.lane("nats", edda.WorkFact)}})
	if err != nil {
		t.Fatal(err)
	}
	hold := func(n byte, instance string) *item {
		row := rowAt(n, fact("f", instance))
		r.hold(row, r.lanes[0])
		return r.chains[row.Work.From].items[len(r.chains[row.Work.From].items)-1]
	}
	first, second, other := hold(1, "A"), hold(2, "A"), hold(3, "B")
	if first.chain != second.chain || first.chain == other.chain {
		t.Error("chains are not those of their instances")
	}
	r.accept(first)
	r.accept(second)
	r.accept(second) // by whatever mistake
	if n := len(r.chains); n != 1 || r.chains[first.row.Work.From] != nil || len(r.empty) != 1 {
		t.Errorf("%d chains are in use and %d are empty", n, len(r.empty))
	}
	again, third := hold(4, "C"), hold(5, "A")
	if again.chain != first.chain || third.chain == again.chain || third.chain == other.chain {
		t.Error("a chain that went is not used again, or is by two")
	}
	if again.state != ready || third.state != ready {
		t.Errorf("the rows stand at %d and %d, nothing is before them", again.state, third.state)
	}
}

// rowAt is a row as the store gives it.
func rowAt(n byte, w edda.Work) store.Row { return store.Row{ID: ulid.ULID{15: n}, Work: w} }
