package store

import (
	"testing"

	"edda"
)

// heldBy is a transition that holds, or lets go of, events of a key.
func heldBy(k edda.Key, letter string, n uint64, release ...uint64) edda.Transition {
	e := &edda.Entry{N: n, DeadLetter: letter, Event: edda.Event{ID: letter}}
	tr := edda.Transition{Key: k, Event: edda.Event{ID: "x"}, Fate: edda.FateHeld, Hold: e, Release: release}
	if letter != "" {
		tr.Dead = &edda.DeadLetter{ID: letter, Reason: edda.DeadPoison, Key: k}
	}
	return tr
}

func TestWaitingRowsAreCountedAndListed(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	at := func(tenant, saga, c string) edda.Key {
		return edda.Key{Tenant: tenant, Saga: saga, Correlation: c}
	}
	park := func(k edda.Key, n uint64) edda.Transition {
		return edda.Transition{Key: k, Event: edda.Event{ID: "p"}, Fate: edda.FateParked, Park: &edda.Entry{N: n, Event: edda.Event{ID: "p"}}}
	}
	db.commit(t, Change{Transitions: []edda.Transition{
		heldBy(at("acme", "order", "A"), "D1", 1), heldBy(at("acme", "order", "A"), "", 2), heldBy(at("acme", "order", "B"), "D2", 1),
		heldBy(at("acme", "pay", "A"), "D3", 1), heldBy(at("zeta", "order", "A"), "D4", 1),
		park(at("acme", "order", "C"), 1), park(at("acme", "order", "C"), 2), park(at("acme", "order", "D"), 1),
	}, Dead: []edda.DeadLetter{{ID: "D9", Reason: edda.DeadUndecodable}}})
	// Held again at its place, and parked again under its number: replaced, not counted twice.
	db.commit(t, Change{Transitions: []edda.Transition{heldBy(at("acme", "order", "A"), "D1", 1, 1), park(at("acme", "order", "D"), 1)}})
	want := Queues{Parked: 3, Held: 5, HeldKeys: 4, Dead: map[string]int{edda.DeadPoison: 4, edda.DeadUndecodable: 1}}
	same(t, "counts", db.Queues(), want)

	lists := func(found []WaitingKey, err error) (out []string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range found {
			out = append(out, w.Key.String()+" "+w.First.DeadLetter+" "+string(rune('0'+w.Events)))
		}
		return out
	}
	all := []string{"acme/order/A D1 2", "acme/order/B D2 1", "acme/pay/A D3 1"}
	same(t, "held", lists(db.HeldKeys("acme", "", edda.Key{}, 10)), all)
	same(t, "held of a saga", lists(db.HeldKeys("acme", "order", edda.Key{}, 10)), all[:2])
	same(t, "first page", lists(db.HeldKeys("acme", "", edda.Key{}, 1)), all[:1])
	same(t, "next page", lists(db.HeldKeys("acme", "", at("acme", "order", "A"), 10)), all[1:])
	same(t, "parked", lists(db.ParkedKeys("acme", "", edda.Key{}, 10)), []string{"acme/order/C  2", "acme/order/D  1"})

	db.commit(t, Change{Transitions: []edda.Transition{
		{Key: at("acme", "order", "A"), Event: edda.Event{ID: "r"}, Fate: edda.FateHandled, Release: []uint64{1, 2, 7}, Resolved: []string{"D1", "none"}},
		{Key: at("acme", "order", "C"), Event: edda.Event{ID: "s"}, Fate: edda.FateHandled, Unpark: []uint64{1, 2}},
	}})
	want = Queues{Parked: 1, Held: 3, HeldKeys: 3, Dead: map[string]int{edda.DeadPoison: 3, edda.DeadUndecodable: 1}}
	same(t, "counts afterwards", db.Queues(), want)
	db.stop()
	same(t, "counts when it is opened again", open(t, dir, Options{}).Queues(), want)
}
