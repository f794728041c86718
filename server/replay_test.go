package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/replay"
	"edda/store"
)

// replays stands for what replays.
type replays struct {
	asked []replay.Request
	all   []replay.Report
	err   error
}

func (r *replays) Begin(_ context.Context, q replay.Request) (replay.Report, error) {
	r.asked = append(r.asked, q)
	return replay.Report{Replay: store.Replay{ID: "r1", Tenant: q.Tenant, Saga: q.Saga, State: replay.StateRunning}}, r.err
}

func (r *replays) Reports() ([]replay.Report, error) { return r.all, r.err }

func TestAReplayIsOrderedInFull(t *testing.T) {
	r := &replays{}
	h := start(t, newFakes(), func(o *Options) { o.Replays = r })
	code, body := call(t, h, "POST", "/admin/replay",
		`{"saga":"order","key":"O1","stream":"WORKFLOW_EVENTS","from_seq":7,"emit":"new","version":2,"dry_run":true}`, "x-edda-by: ann", "x-edda-why: why")
	if code != 200 || !strings.Contains(body, `"id":"r1"`) {
		t.Errorf("%d %s", code, body)
	}
	want := replay.Request{Tenant: "default", Saga: "order", Key: "O1", Stream: "WORKFLOW_EVENTS", FromSeq: 7, Emit: "new", Version: 2, DryRun: true, By: "ann", Reason: "why"}
	if len(r.asked) != 1 || r.asked[0] != want {
		t.Errorf("asked %+v", r.asked)
	}
	call(t, h, "POST", "/admin/replay", `{"saga":"order","from_time":"2026-03-01T10:00:00Z","newest":true}`, "x-tenant-id: acme", "x-edda-by: bob", "x-edda-why: corrected")
	want = replay.Request{Tenant: "acme", Saga: "order", FromTime: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), Newest: true, By: "bob", Reason: "corrected"}
	if len(r.asked) != 2 || r.asked[1] != want {
		t.Errorf("asked %+v", r.asked)
	}
}

func TestOnlyADryRunNeedsNoReason(t *testing.T) {
	r := &replays{}
	h := start(t, newFakes(), func(o *Options) { o.Replays = r })
	for _, why := range []string{"x-none: 1", "x-edda-why:  "} {
		if code, text := call(t, h, "POST", "/admin/replay", `{"saga":"order"}`, why); code != 422 || !strings.Contains(text, "x-edda-why") || len(r.asked) != 0 {
			t.Errorf("%q: %d %s", why, code, text)
		}
	}
	if code, text := call(t, h, "POST", "/admin/replay", `{"saga":"order","dry_run":true}`); code != 200 || len(r.asked) != 1 {
		t.Errorf("a dry run: %d %s", code, text)
	}
}

func TestAReplayThatCannotBeIsRefused(t *testing.T) {
	r := &replays{}
	h := start(t, newFakes(), func(o *Options) { o.Replays = r })
	for body, headers := range map[string]string{
		`{"saga":""}`: "x-edda-why: x", `{"saga":"order","emit":"some"}`: "x-edda-why: x", `{"saga":"order","tenant":"a"}`: "x-edda-why: x", `{"saga":"order","from_seq":-1}`: "x-edda-why: x",
	} {
		if code, text := call(t, h, "POST", "/admin/replay", body, headers); code != 422 || len(r.asked) > 0 {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
	for class, want := range map[error]int{edda.Permanent: 422, edda.Temporary: 503, context.Canceled: 500} {
		r.err = class
		if class != context.Canceled {
			r.err = edda.Classify(class, "because")
		}
		if code, text := call(t, h, "POST", "/admin/replay", `{"saga":"order"}`, "x-edda-why: x"); code != want || want != 500 && !strings.Contains(text, "because") {
			t.Errorf("%v: %d %s", class, code, text)
		}
		if code, text := call(t, h, "GET", "/admin/replay", ""); code != want || want != 500 && !strings.Contains(text, "because") {
			t.Errorf("listed with %v: %d %s", class, code, text)
		}
	}
	if code, _ := call(t, start(t, newFakes(), func(o *Options) { o.Replays = nil }), "GET", "/admin/replay", ""); code != http.StatusNotFound {
		t.Errorf("without sagas: %d", code)
	}
}

func TestReplaysAreListedForTheirTenantAndInFullByID(t *testing.T) {
	report := func(id, tenant string) replay.Report {
		return replay.Report{Replay: store.Replay{ID: id, Tenant: tenant, Saga: "order", State: replay.StateDone, Summary: json.RawMessage(`{"row":1}`)},
			Progress: replay.Summary{Same: 3, Differences: []replay.Difference{{Key: "O1", Path: "state.n", Was: json.RawMessage("1"), Is: json.RawMessage("2")}}}}
	}
	h := start(t, newFakes(), func(o *Options) {
		o.Replays = &replays{all: []replay.Report{report("r1", "default"), report("r2", "acme")}}
	})
	_, list := call(t, h, "GET", "/admin/replay", "")
	if !strings.Contains(list, `"r1"`) || strings.Contains(list, `"r2"`) || !strings.Contains(list, `"same":3`) || strings.Contains(list, "state.n") || strings.Contains(list, "row") {
		t.Errorf("%s", list)
	}
	if _, one := call(t, h, "GET", "/admin/replay?id=r2", "", "x-tenant-id: acme"); !strings.Contains(one, `{"key":"O1","path":"state.n","was":1,"is":2}`) {
		t.Errorf("%s", one)
	}
	if code, _ := call(t, h, "GET", "/admin/replay?id=r2", ""); code != http.StatusNotFound {
		t.Errorf("another tenant's replay: %d", code)
	}
}
