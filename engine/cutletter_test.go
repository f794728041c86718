package engine

import (
	"encoding/json"
	"testing"

	"edda"
)

// lettered are records with one dead letter.
type lettered struct {
	records
	dead edda.DeadLetter
}

func (l *lettered) DeadLetter(string) (edda.DeadLetter, bool, error) { return l.dead, true, nil }

// Who publishes the verb does not say whether the letter has its payload.
func TestARedriveTakesTheEventOfALetterWithoutItsPayloadForWhole(t *testing.T) {
	k := edda.Key{Tenant: "acme", Saga: "order"}
	b := &batch{db: &lettered{dead: edda.DeadLetter{ID: "D1", Key: k, Cut: 900, Event: edda.Event{ID: "e1", Stream: "AGGREGATE_EVENTS", Seq: 7}}}}
	for payload, refused := range map[string]bool{`{"dead_letter":"D1"}`: true, `{"dead_letter":"D1","cut":0,"event":{"id":"e1"}}`: true, `{"dead_letter":"D1","data":{"n":1}}`: false} {
		ev, about := b.letter(edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, Key: k, Payload: json.RawMessage(payload)})
		var r edda.Redrive
		if err := json.Unmarshal(ev.Payload, &r); err != nil || about == nil || r.Cut != 900 || (r.Lacks() != nil) != refused {
			t.Errorf("%s: %s, %v", payload, ev.Payload, err)
		}
	}
}
