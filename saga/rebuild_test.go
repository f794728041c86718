package saga

import (
	"bytes"
	"encoding/json"

	"edda"
)

// past is what the store keeps of transitions.
func past(trs []edda.Transition) []Past {
	var rows []Past
	for _, tr := range trs {
		if tr.Fate == "" || tr.Fate == edda.FateIgnored {
			continue
		}
		row := Past{Event: tr.Event, Fate: tr.Fate, Outputs: tr.Outputs}
		if tr.Instance != nil {
			row.Version = tr.Instance.Version
		}
		rows = append(rows, row)
	}
	return rows
}

// rebuilderOf decides by one set, whatever the version.
func rebuilderOf(s *Set, newest Pin) Rebuilder {
	return Rebuilder{Newest: newest, Decide: func(...Pin) (Decider, error) { return s, nil }}
}

// rebuild builds the cell again from its history as the store gives it back:
// the same must come out, and the same must have gone out.
func (w *world) rebuild() {
	var trs []edda.Transition
	for _, s := range w.shown {
		var tr edda.Transition
		if err := json.Unmarshal(s.raw, &tr); err != nil {
			w.t.Fatal(err)
		}
		trs = append(trs, tr)
	}
	built, err := rebuilderOf(w.set, Pin{Version: 1}).Rebuild(w.cell.Key, past(trs))
	if err != nil {
		w.t.Fatal(err)
	}
	cell := Adopt(built.Cell, w.cell, false)
	if got, want := encoded(w.t, cell), encoded(w.t, w.cell); !bytes.Equal(got, want) {
		w.t.Fatalf("built again it is\n%s\nand was\n%s", got, want)
	}
	if got, want := encoded(w.t, built.Work), encoded(w.t, w.sent); !bytes.Equal(got, want) {
		w.t.Fatalf("built again it sends\n%s\nand sent\n%s", got, want)
	}
}
