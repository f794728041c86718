package store

import (
	"fmt"
	"slices"
	"testing"

	"edda"
)

// TestTheOutboxIsCountedBySagaAndTenant whatever they are called, also after a restart.
func TestTheOutboxIsCountedBySagaAndTenant(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	whose := []edda.Key{
		{Tenant: "acme", Saga: "order", Correlation: "K"}, {Tenant: `a",""c\`, Saga: `"saga":"x`, Correlation: "K"}, {Saga: "order", Correlation: `","from":{`},
	}
	counts := func(least int, kinds ...edda.WorkKind) []string {
		var out []string
		for _, o := range db.Owners(least, kinds...) {
			out = append(out, fmt.Sprintf("%s/%s %d", o.Tenant, o.Saga, o.Rows))
		}
		slices.Sort(out)
		return out
	}
	for i, k := range whose {
		tr := step(k, 1)
		for n := range i + 1 {
			tr.Work = append(tr.Work, effect(k, fmt.Sprint(k, n)), edda.Work{ID: fmt.Sprint("fact", k, n), Kind: edda.WorkFact, From: k, Name: "Told", Time: noon})
		}
		db.commit(t, Change{Transitions: []edda.Transition{tr}})
	}
	all := []string{"/order 6", `a",""c\/"saga":"x 4`, "acme/order 2"}
	same(t, "all", counts(0, edda.WorkEffect, edda.WorkFact), all)
	same(t, "those with many", counts(4, edda.WorkEffect, edda.WorkFact), all[:2])
	same(t, "of a kind", counts(0, edda.WorkFact), []string{"/order 3", `a",""c\/"saga":"x 2`, "acme/order 1"})
	rows := must(db.Outbox([16]byte{}, 100))
	var gone Change
	for _, r := range rows {
		if r.Work.Kind == edda.WorkFact {
			gone.Delivered = append(gone.Delivered, r.ID)
		}
	}
	gone.Delivered = append(gone.Delivered, gone.Delivered[0]) // one that is not there any more
	db.commit(t, gone)
	settled := step(whose[0], 2)
	settled.Settled = []string{fmt.Sprint(whose[0], 0)}
	db.commit(t, Change{Transitions: []edda.Transition{settled}})
	left := []string{"/order 3", `a",""c\/"saga":"x 2`}
	same(t, "what is left", counts(0, edda.WorkEffect, edda.WorkFact), left)
	checkIndex(t, db.DB)
	db.stop()
	db = open(t, dir, Options{})
	same(t, "after a restart", counts(0, edda.WorkEffect, edda.WorkFact), left)
}

// TestSagasWithoutWorkAreNotCountedForEver: while tenants come and go.
func TestSagasWithoutWorkAreNotCountedForEver(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for n := range 3 * keptOwners / 256 {
		var come, go_ Change
		for i := range 256 {
			k := edda.Key{Tenant: fmt.Sprint("t", n, "-", i), Saga: "order", Correlation: "K"}
			a, b := step(k, 1), step(k, 2)
			a.Work, b.Settled = []edda.Work{effect(k, k.Tenant)}, []string{k.Tenant}
			come.Transitions, go_.Transitions = append(come.Transitions, a), append(go_.Transitions, b)
		}
		db.commit(t, come)
		db.commit(t, go_)
	}
	if n := len(db.index.owners); n > 2*keptOwners+256 {
		t.Errorf("%d are remembered", n)
	}
	if got := db.Owners(0, edda.WorkEffect); len(got) != 0 {
		t.Errorf("%d have rows", len(got))
	}
}
