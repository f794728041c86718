package outbox

import (
	"testing"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store"
)

// TestNoTwoInstancesShareAChain also covers a reused chain. If two shared one, the rows of one
// instance would wait for those of the other.
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
