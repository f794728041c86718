package server

import (
	"context"
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
	f.send = func(context.Context, edda.Event) (engine.Outcome, error) {
		return engine.Outcome{Fate: edda.FateHandled}, nil
	}
	return f
}

func TestAnEventIsAppliedWithoutThePayloadThatItsLetterLacks(t *testing.T) {
	f := withCut()
	h := start(t, f)
	code, text := call(t, h, "POST", "/v1/deadletters/loose/redrive", "", "x-edda-why: x")
	for _, want := range []string{"message 7 of stream AGGREGATE_EVENTS", "nats stream get AGGREGATE_EVENTS 7", "--data"} {
		if code != 409 || !strings.Contains(text, want) {
			t.Errorf("%q is missing: %d %s", want, code, text)
		}
	}
	if len(f.sent) != 0 {
		t.Fatalf("sent %+v", f.sent)
	}
	if code, text := call(t, h, "POST", "/v1/deadletters/loose/redrive", `{"data":{"n":1}}`, "x-edda-why: x"); code != 200 || len(f.sent) != 1 {
		t.Errorf("with data: %d %s, sent %+v", code, text, f.sent)
	}
	code, text = call(t, h, "GET", "/v1/deadletters/loose", "")
	for _, want := range []string{`"cut":900`, "nats stream get AGGREGATE_EVENTS 7"} {
		if code != 200 || !strings.Contains(text, want) {
			t.Errorf("%q is missing: %d %s", want, code, text)
		}
	}
	if code, text := call(t, h, "GET", "/v1/deadletters", ""); code != 200 || strings.Count(text, `"cut":900`) != 3 {
		t.Errorf("the list: %d %s", code, text)
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
