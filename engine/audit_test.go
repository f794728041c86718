package engine

import (
	"encoding/json"
	"testing"

	"edda"
)

func TestAuditSaysThatAPayloadWasEditedWithoutThePayload(t *testing.T) {
	about := &edda.Event{ID: "e1", Type: "Paid", Stream: "S", Seq: 7, Payload: json.RawMessage(`"secret"`)}
	for _, tt := range []struct {
		verb, step, payload string
		about               *edda.Event
		want                string
	}{
		{edda.VerbRetry, "ship", "", nil, "step ship; ignored"},
		{edda.VerbRetry, "ship", `{"n":"secret"}`, nil, "step ship; edited payload; ignored"},
		{edda.VerbRedrive, "", `{"dead_letter":"D1"}`, about, "dead letter D1; event Paid e1 (S#7); ignored"},
		{edda.VerbRedrive, "", `{"dead_letter":"D1","data":"secret"}`, about, "dead letter D1; event Paid e1 (S#7); edited payload; ignored"},
		{edda.VerbDrop, "", `{"dead_letter":"D1"}`, &edda.Event{ID: "e2", Type: "Paid", Stream: "S", Seq: 7, Member: 3}, "dead letter D1; event Paid e2 (S#7:3); ignored"},
		{edda.VerbSkip, "", `{"dead_letter":"D1","data":"secret"}`, about, "dead letter D1; event Paid e1 (S#7); ignored"},
	} {
		it := &item{about: tt.about, event: edda.Event{Kind: edda.KindOperator, Type: tt.verb, Step: tt.step, Payload: json.RawMessage(tt.payload)}}
		if got := audits(it)[0].Detail; got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.verb, tt.payload, got, tt.want)
		}
	}
}
