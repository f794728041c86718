package saga

import (
	"testing"

	"edda"
)

// FuzzApply uses any bytes as the payload of every kind of input. Each must get a fate without a
// panic, and the saga can be terminated after it.
func FuzzApply(f *testing.F) {
	for _, seed := range []string{"", "null", `{"id":"K","items":[1,2]}`, `{"id":"K","items":"x","by":1}`, `[[[`, `{"id":1e400}`, "\x00", `{"id":"K","by":9223372036854775807}`} {
		f.Add(seed, "Go", 0)
		f.Add(seed, "Bad", 1)
		f.Add(seed, "Round", 2)
	}
	set := setOf(f, propertySaga)
	f.Fuzz(func(t *testing.T, payload, name string, pick int) {
		cell := edda.Cell{Key: edda.Key{Tenant: "t", Saga: "shop", Correlation: "K"}}
		cell = fuzzGive(t, set, cell, edda.Event{Kind: edda.KindEvent, ID: "1", Type: "Go", Payload: []byte(`{"id":"K","items":[1]}`)})
		kinds := []edda.Kind{edda.KindEvent, edda.KindResult, edda.KindAnswer, edda.KindSignal, edda.KindOperator, edda.KindStart}
		ev := edda.Event{Kind: kinds[uint(pick)%uint(len(kinds))], ID: "2", Type: name, Step: name, CommandID: commandOf(cell.Instance, "a"), Payload: []byte(payload)}
		cell = fuzzGive(t, set, cell, ev)
		if ev.Kind = edda.KindEvent; ev.ID == "2" {
			ev.ID = "3"
			cell = fuzzGive(t, set, cell, ev)
		}
		cell, _ = set.Wake(cell, testStart, testStart.Add(defaultDue))
		cell = fuzzGive(t, set, cell, edda.Event{Kind: edda.KindOperator, ID: "4", Type: edda.VerbTerminate})
		if !cell.Instance.Status.Finished() {
			t.Errorf("after terminate it is %s", cell.Instance.Status)
		}
	})
}

func fuzzGive(t *testing.T, set *Set, cell edda.Cell, ev edda.Event) edda.Cell {
	t.Helper()
	ev.Tenant, ev.Time = "t", testStart
	if ev.Kind != edda.KindEvent {
		ev.Key = cell.Key
	}
	for _, target := range set.Route(ev) {
		if target.Key != cell.Key {
			continue
		}
		next, trs := set.Apply(cell, target, ev)
		if len(trs) == 0 || trs[0].Fate == "" {
			t.Errorf("%s %s has no fate", ev.Kind, ev.Type)
		}
		cell = next
	}
	return cell
}
