package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/engine"
	"edda/store"
)

// withLetters are fakes with one dead letter of each way to go on.
func withLetters() *fakes {
	f := newFakes(order("O1"), order("O2"))
	f.dead = []edda.DeadLetter{
		{ID: "held", Reason: edda.DeadPoison, Key: order("O1"), Path: "Paid", Source: "event.a.b", Inputs: `{"event":1}`, Error: "a is null", Event: edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "default", Redrives: 2}},
		{ID: "loose", Reason: edda.DeadUnmatched, Key: order("O2"), Event: edda.Event{Kind: edda.KindEvent, ID: "e4", Tenant: "default", Type: "Paid", Stream: "AGGREGATE_EVENTS", Seq: 7}},
		{ID: "raw", Reason: edda.DeadUndecodable, Subject: "tenant.default.aggregate.Order.O1", Event: edda.Event{ID: "e5", Tenant: "default", Malformed: edda.DeadUndecodable}},
		{ID: "work", Reason: edda.DeadRejected, Key: order("O1"), Event: edda.Event{ID: "e6", Tenant: "default"}, Work: &edda.Work{ID: "w1", Kind: edda.WorkCommand, Name: "Order.Close"}},
		{ID: "verb", Reason: edda.DeadPoison, Key: order("O2"), Event: edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, Tenant: "default"}},
		{ID: "foreign", Reason: edda.DeadPoison, Key: edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}},
	}
	cell := f.cells[order("O1")]
	cell.Held = []edda.Entry{
		{N: 1, DeadLetter: "held", Event: f.dead[0].Event},
		{N: 2, Event: edda.Event{Kind: edda.KindEvent, ID: "e2", Type: "Paid", Payload: json.RawMessage(`"secret"`)}},
		{N: 3, Event: edda.Event{Kind: edda.KindResult, ID: "e3", Step: "ship"}},
	}
	f.cells[order("O1")] = cell
	return f
}

func TestADeadLetterShowsWhatWaitsBehindItAndWhatToDo(t *testing.T) {
	h := start(t, withLetters())
	code, text := call(t, h, "GET", "/v1/deadletters/held", "")
	for _, want := range []string{`"path":"Paid"`, `"expression":"event.a.b"`, `"inputs":"{\"event\":1}"`, `"holds":true`, `"id":"e2"`, `"step":"ship"`, "mend the manifest and reload, then edda deadletter redrive held"} {
		if code != 200 || !strings.Contains(text, want) {
			t.Errorf("%s is missing: %d %s", want, code, text)
		}
	}
	if strings.Contains(text, "secret") {
		t.Error("the payloads of those behind it are shown")
	}
	for id, want := range map[string]string{"loose": "else parked again", "raw": "sent again with this body", "work": "its destination is asked again"} {
		if code, text := call(t, h, "GET", "/v1/deadletters/"+id, ""); code != 200 || !strings.Contains(text, want) || strings.Contains(text, `"holds"`) {
			t.Errorf("%s: %d %s", id, code, text)
		}
	}
}

func TestDeadLettersAreListedByReasonAndSaga(t *testing.T) {
	h := start(t, withLetters())
	for query, want := range map[string]string{"reason=poison": "held verb", "saga=order": "held loose work verb", "reason=unmatched&saga=order": "loose", "saga=none": ""} {
		code, text := call(t, h, "GET", "/v1/deadletters?"+query, "")
		var list DeadLetterList
		if err := json.Unmarshal([]byte(text), &list); err != nil || code != 200 {
			t.Fatalf("%d %s", code, text)
		}
		var ids []string
		for _, d := range list.DeadLetters {
			ids = append(ids, d.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if code, _ := call(t, h, "GET", "/v1/deadletters?reason=boredom", ""); code != 422 {
		t.Errorf("no such reason: %d", code)
	}
}

func TestActsOnDeadLettersNeedAReason(t *testing.T) {
	f := withLetters()
	h := start(t, f)
	for _, path := range []string{
		"deadletters/held/redrive", "deadletters/held/drop", "deadletters/held/skip", "deadletters/raw/redrive",
		"instances/order/O1/cancel", "instances/order/O1/terminate", "instances/order/O1/retry/ship", "instances/order/O1/skip/ship",
	} {
		for _, header := range []string{"x-edda-by: ann", "x-edda-why:  "} {
			if code, text := call(t, h, "POST", "/v1/"+path, "", header); code != 422 || !strings.Contains(text, "needs a reason") || !strings.Contains(text, "x-edda-why") {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
	}
	if len(f.sent)+len(f.acts) > 0 {
		t.Errorf("sent %v, did %v", f.sent, f.acts)
	}
}

func TestActsOnWhatHoldsAKeyGoThroughTheStream(t *testing.T) {
	for _, verb := range []string{"redrive", "drop", "skip"} {
		f := withLetters()
		f.send = func(context.Context, edda.Event) (engine.EventResult, error) {
			return engine.EventResult{Key: order("O1"), Fate: edda.FateHandled, Status: edda.StatusRunning, Released: []engine.Released{
				{Event: "e1", Fate: edda.FateHandled}, {Event: "e2", Fate: edda.FateHandled}, {Event: "e3", Fate: edda.FateDead, Dead: &edda.DeadLetter{ID: "D9", Reason: edda.DeadPoison}},
			}}, nil
		}
		code, text := call(t, start(t, f), "POST", "/v1/deadletters/held/"+verb, `{"why":"a ticket","data":{"n":9007199254740993}}`, "x-edda-by: ann")
		if code != 200 || !strings.Contains(text, `"next":"D9"`) || len(f.sent) != 1 {
			t.Fatalf("%s: %d %s", verb, code, text)
		}
		ev := f.sent[0]
		if ev.Type != verb || ev.Key != order("O1") || ev.By != "ann" || ev.Why != "a ticket" || ev.ID != "deadletter/held/"+verb+"/3" || string(ev.Payload) != `{"dead_letter":"held","data":{"n":9007199254740993}}` {
			t.Errorf("sent %+v %s", ev, ev.Payload)
		}
		if want := map[string]string{"redrive": `"fate":"handled"`, "drop": `"fate":"dropped"`, "skip": `"fate":"dropped"`}[verb]; !strings.Contains(text, want) {
			t.Errorf("%s: %s", verb, text)
		}
	}
}

func TestWhatBelongsToNoInstanceGoesBackToWhereItCameFrom(t *testing.T) {
	f := withLetters()
	h := start(t, f)
	for _, id := range []string{"raw", "work"} {
		if code, text := call(t, h, "POST", "/v1/deadletters/"+id+"/redrive", `{"data":{"a":1}}`, "x-edda-why: mended", "x-edda-by: ann"); code != 200 || !strings.Contains(text, `"fate":"sent"`) || !strings.Contains(text, `"where":"tenant.default`) {
			t.Errorf("%s: %d %s", id, code, text)
		}
		if code, text := call(t, h, "POST", "/v1/deadletters/"+id+"/skip", "", "x-edda-why: x"); code != 409 || !strings.Contains(text, "holds nothing back") {
			t.Errorf("skip %s: %d %s", id, code, text)
		}
	}
	if code, text := call(t, h, "POST", "/v1/deadletters/loose/drop", "", "x-edda-why: old"); code != 200 || !strings.Contains(text, `"fate":"dropped"`) {
		t.Errorf("%d %s", code, text)
	}
	want := "redeliver raw {\"a\":1} by ann: mended|redeliver work {\"a\":1} by ann: mended|drop loose by unknown: old"
	if got := strings.Join(f.acts, "|"); got != want || len(f.sent) != 0 {
		t.Errorf("did %s, sent %v", got, f.sent)
	}
	want = "dead letter raw; undecodable; event tenant.default.aggregate.Order.O1 e5; edited payload|dead letter work; rejected; command Order.Close w1; edited payload|dead letter loose; unmatched; event Paid e4 (AGGREGATE_EVENTS#7)"
	if got := strings.Join(f.details, "|"); got != want {
		t.Errorf("the audit has %s\nwant %s", got, want)
	}
}

func TestActsOnDeadLettersAreAnsweredWithWhatBecameOfThem(t *testing.T) {
	tests := []struct {
		path string
		o    engine.EventResult
		err  error
		code int
		want string
	}{
		{"loose/redrive", engine.EventResult{Fate: edda.FateHandled, Released: []engine.Released{{Event: "e4", Fate: edda.FateParked}}}, nil, 200, `"fate":"parked"`},
		{"loose/redrive", engine.EventResult{Fate: edda.FateHandled, Released: []engine.Released{{Event: "e4", Fate: edda.FateDead, Dead: &edda.DeadLetter{ID: "D7", Reason: edda.DeadPoison, Error: "boom"}}}}, nil, 422, "boom; see dead letter D7"},
		{"loose/redrive", engine.EventResult{Fate: edda.FateIgnored}, nil, 422, "load order with a handler"},
		{"loose/redrive", engine.EventResult{Fate: edda.FateDuplicate}, nil, 409, "redriven already"},
		{"loose/redrive", engine.EventResult{Fate: edda.FateLate, Outputs: []edda.Output{{Word: "refused", Reason: "dead letter loose is gone"}}}, nil, 409, "refused: dead letter loose is gone"},
		{"loose/redrive", engine.EventResult{}, fmt.Errorf("await: %w", ErrDuplicate), 409, "a moment ago"},
		{"loose/redrive", engine.EventResult{}, context.DeadlineExceeded, 504, "is done once"},
		{"verb/redrive", engine.EventResult{}, nil, 409, "a redrive is not redriven"},
		{"foreign/redrive", engine.EventResult{}, nil, 404, "no dead letter foreign"},
		{"foreign/drop", engine.EventResult{}, nil, 404, "no dead letter foreign"},
		{"none/redrive", engine.EventResult{}, nil, 404, "no dead letter none"},
	}
	for _, tt := range tests {
		f := withLetters()
		f.send = func(context.Context, edda.Event) (engine.EventResult, error) { return tt.o, tt.err }
		if code, text := call(t, start(t, f), "POST", "/v1/deadletters/"+tt.path, "", "x-edda-why: x"); code != tt.code || !strings.Contains(text, tt.want) {
			t.Errorf("%s %+v: %d %s, want %d %s", tt.path, tt.o, code, text, tt.code, tt.want)
		}
	}
	for err, want := range map[error]int{ErrGone: 409, edda.Classify(edda.Permanent, "give --data"): 422, errors.New("no stream"): 503, context.DeadlineExceeded: 504} {
		f := withLetters()
		h := start(t, f)
		f.err = err
		for _, path := range []string{"raw/redrive", "raw/drop"} {
			if code, text := call(t, h, "POST", "/v1/deadletters/"+path, "", "x-edda-why: x"); code != want {
				t.Errorf("%s with %v: %d %s", path, err, code, text)
			}
		}
	}
}

func TestWhatWaitsIsListed(t *testing.T) {
	f := withLetters()
	f.cells[order("P")] = edda.Cell{Key: order("P"), Parked: []edda.Entry{{N: 1, Event: edda.Event{ID: "p1", Type: "Paid"}}}}
	f.cells[edda.Key{Tenant: "acme", Saga: "order", Correlation: "Q"}] = edda.Cell{Held: []edda.Entry{{DeadLetter: "foreign"}}}
	h := start(t, f)
	if code, text := call(t, h, "GET", "/v1/held", ""); code != 200 || !strings.Contains(text, `"events":3`) || !strings.Contains(text, "redrive or skip dead letter held") || !strings.Contains(text, `"error":"a is null"`) || strings.Contains(text, "foreign") {
		t.Errorf("held: %d %s", code, text)
	}
	if code, text := call(t, h, "GET", "/v1/parked", ""); code != 200 || !strings.Contains(text, `"key":"P"`) || !strings.Contains(text, "an event that starts it, until") {
		t.Errorf("parked: %d %s", code, text)
	}
	if code, text := call(t, h, "GET", "/v1/instances?status=held", ""); code != 200 || strings.Count(text, `"saga":"order"`) != 1 || !strings.Contains(text, `"key":"O1"`) {
		t.Errorf("held instances: %d %s", code, text)
	}
}

func TestTheAuditIsATenants(t *testing.T) {
	f := withLetters()
	h := start(t, f)
	code, text := call(t, h, "GET", "/v1/audit?since=2026-05-01T00:00:00Z&limit=7", "", "x-tenant-id: acme")
	if code != 200 || !strings.Contains(text, `"reason":"mended"`) || !strings.Contains(text, `"more":true`) {
		t.Errorf("%d %s", code, text)
	}
	if f.audits.Tenant != "acme" || f.audits.Limit != 7 || f.audits.Since.Year() != 2026 {
		t.Errorf("asked for %+v", f.audits)
	}
	if code, text := call(t, h, "GET", "/v1/audit?after=BBB", ""); code != 200 || f.audits.After != "BBB" || !strings.Contains(text, `"next":"AAA"`) {
		t.Errorf("the next page: %d %s, asked for %+v", code, text, f.audits)
	}
	f.err = edda.Classify(edda.Permanent, "that is no place")
	if code, text := call(t, h, "GET", "/v1/audit?after=x", ""); code != 422 || !strings.Contains(text, "after: that is no place") {
		t.Errorf("a place that is none: %d %s", code, text)
	}
	f.err = nil
	if code, _ := call(t, h, "GET", "/v1/audit?since=yesterday", ""); code != 422 {
		t.Errorf("since yesterday: %d", code)
	}
}

// A list that passes over many letters of others says where it goes on, and
// nothing of what lies there.
func TestTheNextOfAListIsNobodysLetter(t *testing.T) {
	f := newFakes()
	others, moment := map[string]bool{}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range scanned + 50 {
		d := edda.DeadLetter{ID: fmt.Sprintf("other%d", i), Event: edda.Event{Tenant: "other"}, Time: moment.Add(time.Duration((i+10)/20) * time.Millisecond)}
		if i == 7 || i == scanned-1 || i == scanned+49 {
			d.ID, d.Event.Tenant = fmt.Sprintf("mine%d", i), "default"
		}
		f.dead, others[store.DeadPlace(d)] = append(f.dead, d), d.Event.Tenant == "other"
	}
	h := start(t, f)
	var found []string
	for after, pages := "", 0; ; pages++ {
		var page DeadLetterList
		code, body := call(t, h, "GET", "/v1/deadletters?after="+after, "")
		if err := json.Unmarshal([]byte(body), &page); err != nil || code != 200 || pages > 2 {
			t.Fatal(code, err, body)
		}
		for _, d := range page.DeadLetters {
			found = append(found, d.ID)
		}
		if after = page.Next; after == "" {
			break
		}
		if others[after] || strings.Contains(after, "other") {
			t.Errorf("the next page begins at another's letter: %s", after)
		}
	}
	if len(found) != 3 || found[0] != "mine7" {
		t.Errorf("listed %q", found)
	}
}
