package engine

import (
	"encoding/json"
	"strings"
	"testing"

	"edda"
)

// fakeLetters are records with one dead letter.
type fakeLetters struct {
	records
	dead edda.DeadLetter
}

func (l *fakeLetters) DeadLetter(string) (edda.DeadLetter, bool, error) { return l.dead, true, nil }

// TestRedriveOfATruncatedDeadLetterNeedsAPayload, whatever the sender of the command claims.
func TestRedriveOfATruncatedDeadLetterNeedsAPayload(t *testing.T) {
	k := edda.Key{Tenant: "acme", Saga: "order"}
	b := &batch{db: &fakeLetters{dead: edda.DeadLetter{ID: "D1", Key: k, Cut: 900, Event: edda.Event{ID: "e1", Stream: "AGGREGATE_EVENTS", Seq: 7}}}}
	for payload, refused := range map[string]bool{`{"dead_letter":"D1"}`: true, `{"dead_letter":"D1","cut":0,"event":{"id":"e1"}}`: true, `{"dead_letter":"D1","data":{"n":1}}`: false} {
		ev, about := b.letter(edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, Key: k, Payload: json.RawMessage(payload)})
		var r edda.Redrive
		if err := json.Unmarshal(ev.Payload, &r); err != nil || about == nil || r.Cut != 900 || (r.Lacks() != nil) != refused {
			t.Errorf("%s: %s, %v", payload, ev.Payload, err)
		}
	}
}

// TestAuditTellsEditedPayloadsFromThoseOfTheStream: only a payload that a person gave is edited.
func TestAuditTellsEditedPayloadsFromThoseOfTheStream(t *testing.T) {
	k := edda.Key{Tenant: "acme", Saga: "order"}
	for _, tt := range []struct {
		cut      int
		verb     edda.Verb
		payload  string
		has, not string
	}{
		{900, edda.VerbRedrive, `{"dead_letter":"D1","data":{"n":1},"read_back":true}`, FromStream, Edited},
		{900, edda.VerbRedrive, `{"dead_letter":"D1","data":{"n":1}}`, Edited, FromStream},
		{0, edda.VerbRedrive, `{"dead_letter":"D1","data":{"n":1},"read_back":true}`, Edited, FromStream}, // a letter with its payload
		{900, edda.VerbRedrive, `{"dead_letter":"D1","read_back":true}`, "D1", FromStream},
		{900, edda.VerbRetry, `{"dead_letter":"D1","data":{"n":1},"read_back":true}`, Edited, FromStream},
	} {
		b := &batch{db: &fakeLetters{dead: edda.DeadLetter{ID: "D1", Key: k, Cut: tt.cut, Event: edda.Event{ID: "e1"}}}}
		ev, about := b.letter(edda.Event{Kind: edda.KindOperator, Type: tt.verb, Key: k, Payload: json.RawMessage(tt.payload)})
		text := detail(&item{event: ev, about: about})
		if !strings.Contains(text, tt.has) || strings.Contains(text, tt.not) {
			t.Errorf("%+v: %s", tt, text)
		}
	}
}
