package server

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"edda"
	"edda/engine"
)

// withCut are fakes whose letters lack their payloads.
func withCut() *fakes {
	f := withLetters()
	for i := range f.dead[:3] {
		f.dead[i].Cut, f.dead[i].Event.Stream, f.dead[i].Event.Seq = 900, "AGGREGATE_EVENTS", 7
	}
	f.send = func(context.Context, edda.Event) (engine.EventResult, error) {
		return engine.EventResult{Fate: edda.FateHandled}, nil
	}
	return f
}

func TestAnEventIsAppliedWithoutThePayloadThatItsLetterLacks(t *testing.T) {
	f := withCut()
	f.unread = edda.Classify(edda.Permanent, "message 7 of stream AGGREGATE_EVENTS is gone")
	h := start(t, f)
	code, text := call(t, h, "POST", "/v1/deadletters/loose/redrive", "", "x-edda-why: x")
	for _, want := range []string{"message 7 of stream AGGREGATE_EVENTS is gone", "--data", "drop it"} {
		if code != 409 || !strings.Contains(text, want) {
			t.Errorf("%q is missing: %d %s", want, code, text)
		}
	}
	f.unread = edda.Classify(edda.Temporary, "no answer")
	if code, text := call(t, h, "POST", "/v1/deadletters/loose/redrive", "", "x-edda-why: x"); code != 503 || !strings.Contains(text, "try again") {
		t.Errorf("streams that do not answer: %d %s", code, text)
	}
	if code, text := call(t, h, "POST", "/v1/deadletters/redrive", "", "x-edda-why: x"); code != 200 || !strings.Contains(text, `"stopped"`) || strings.Contains(text, `"failed":2`) {
		t.Errorf("all of them: %d %s", code, text)
	}
	f.sent = nil
	if code, text := call(t, h, "POST", "/v1/deadletters/loose/redrive", `{"data":{"n":1}}`, "x-edda-why: x"); code != 200 || len(f.sent) != 1 || string(f.sent[0].Payload) != `{"dead_letter":"loose","data":{"n":1}}` {
		t.Errorf("with data: %d %s, sent %+v", code, text, f.sent)
	}
	code, text = call(t, h, "GET", "/v1/deadletters/loose", "")
	for _, want := range []string{`"cut":900`, `"unread":"no answer"`, "--data '{…}': applied with the payload that you give, because no answer"} {
		if code != 200 || !strings.Contains(text, want) {
			t.Errorf("%q is missing: %d %s", want, code, text)
		}
	}
	if code, text := call(t, h, "GET", "/v1/deadletters", ""); code != 200 || strings.Count(text, `"cut":900`) != 3 {
		t.Errorf("the list: %d %s", code, text)
	}
}

func TestAMessageThatItsStreamStillHasIsRefusedForALetterWithoutItsPayload(t *testing.T) {
	f := withCut()
	f.inStream = json.RawMessage(`{"n":7}`)
	f.cells[order("O1")].Held[0].Event.Payload = json.RawMessage(`{"n":8}`)
	h := start(t, f)
	for id, want := range map[string][]string{
		"loose": {`"payload":{"n":7}`, `"read_from":"message 7 of stream AGGREGATE_EVENTS"`, `"cut":900`, "else parked again"},
		"held":  {`"payload":{"n":8}`, `"read_from":"the held event"`, "mend the manifest"},
	} {
		code, text := call(t, h, "GET", "/v1/deadletters/"+id, "")
		for _, want := range want {
			if code != 200 || !strings.Contains(text, want) {
				t.Errorf("%s lacks %s: %d %s", id, want, code, text)
			}
		}
	}
	for id, want := range map[string]string{"loose": `{"dead_letter":"loose","data":{"n":7},"read_back":true}`, "held": `{"dead_letter":"held"}`} {
		f.sent = nil
		if code, text := call(t, h, "POST", "/v1/deadletters/"+id+"/redrive", "", "x-edda-why: x"); code != 200 || len(f.sent) != 1 || string(f.sent[0].Payload) != want {
			t.Errorf("%s: %d %s, sent %+v", id, code, text, f.sent)
		}
	}
}

func TestALetterWithoutItsPayloadIsRefusedWhereItIsNotNeeded(t *testing.T) {
	f := withCut()
	h := start(t, f)
	// One holds its key, where its event is whole; the other is read from its stream.
	for _, id := range []string{"held", "raw"} {
		if code, text := call(t, h, "POST", "/v1/deadletters/"+id+"/redrive", "", "x-edda-why: x"); code != 200 {
			t.Errorf("%s: %d %s", id, code, text)
		}
	}
	for path, want := range map[string]string{"loose/drop": "dropped", "held/skip": "dropped"} {
		if code, text := call(t, h, "POST", "/v1/deadletters/"+path, "", "x-edda-why: x"); code != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
}
