package saga

import (
	"encoding/json"
	"strings"
	"testing"

	"edda"
	"edda/internal/jsonvalue"
)

const keeping = `saga: kept
version: 1
key: meta.aggregate.id
on:
  Go:
    start: true
    do: [{seq: [{effect: first, with: {}}, {effect: second, with: {all: =event}}]}]
`

// The stored trigger of a seq is what decoding and encoding it would give, in any form of the
// JSON. It is the same after it was decoded.
func TestASeqStoresItsTriggerInCanonicalForm(t *testing.T) {
	set := setOf(t, keeping)
	for _, payload := range []string{
		`{"b":1,"a":"x"}`, `{ "b" : 1.0, "a" : "é\n" }`, `{"n":-0,"m":1e2,"deep":{"z":[1,{"y":2,"x":null}]}}`, `{}`, `{"a":1,"a":2}`,
		`"text"`, `[1, 2]`, `{"u":"\ud83d\ude00","s":"<&>"}`, `null`, `{"long":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		ev := edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "t", Type: "Go", AggregateType: "A", AggregateID: "K", Time: testStart, Payload: json.RawMessage(payload)}
		value, err := jsonvalue.Decode(ev.Payload)
		if err != nil {
			t.Fatal(err)
		}
		want, err := jsonvalue.Encode(value)
		if err != nil {
			t.Fatal(err)
		}
		for _, first := range []bool{false, true} {
			to := one(t, set, ev)
			if to.payload = (&decoded{raw: ev.Payload}); first {
				_, _ = to.payload.value()
			}
			cell, trs := set.Apply(edda.Cell{}, to, ev)
			if len(trs) != 1 || trs[0].Fate != edda.FateHandled || len(cell.Instance.Threads) != 1 {
				t.Fatalf("%s: %+v", payload, trs)
			}
			if got := cell.Instance.Threads[0].Scope.Event; string(got) != string(want) {
				t.Errorf("%s is kept as %s, not %s", payload, got, want)
			}
		}
	}
}
