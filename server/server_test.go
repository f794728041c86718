package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/engine"
	"edda/internal/jsonvalue"
	"edda/internal/testkit"
	"edda/store"
)

// fakes stand for the process and its store.
type fakes struct {
	mu      sync.Mutex // guards all below
	mocked  []MockAnswer
	status  ProcessStatus
	drain   Drain
	reload  Reload
	cells   map[edda.Key]edda.Cell
	behind  []SagaBehind
	query   store.Query
	dead    []edda.DeadLetter
	sent    []edda.Event
	acts    []string
	details []string // of the audits of acts
	audits  store.AuditQuery
	notes   []string // of the audits of many letters
	send    func(context.Context, edda.Event) (engine.EventResult, error)
	err     error

	deployed []DeployOrder
	deploys  Deployed
	revision Revision

	inStream json.RawMessage // the payload that a stream has of a dead letter
	unread   error           // why it has none
}

func (f *fakes) Status(context.Context) ProcessStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}
func (f *fakes) Info(context.Context) (Info, error) {
	return Info{Roles: []string{"saga"}, Sagas: []SagaInfo{{Saga: "order", Version: 3, Newest: true}}}, f.err
}
func (f *fakes) Drain(context.Context, Operator) Drain {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.drain
	f.drain = Drain{Draining: true, Stage: "outbox flush", Outbox: 7}
	if !was.Draining {
		return Drain{Draining: true, Stage: "intake"}
	}
	return f.drain
}
func (f *fakes) Reload(context.Context, ReloadOrder) (Reload, error) { return f.reload, f.err }
func (f *fakes) Deploy(_ context.Context, q DeployOrder) (Deployed, error) {
	f.deployed = append(f.deployed, q)
	return f.deploys, f.err
}
func (f *fakes) Deployed() (Revision, error) { return f.revision, f.err }

func (f *fakes) Cell(k edda.Key) (edda.Cell, error) { return f.cells[k], f.err }
func (f *fakes) Instances(q store.Query) ([]edda.Instance, error) {
	f.query = q
	var out []edda.Instance
	for _, c := range f.cells {
		if c.Instance != nil && c.Key.Tenant == q.Tenant && c.Key.Correlation > q.After.Correlation {
			out = append(out, *c.Instance)
		}
	}
	return out, f.err
}
func (f *fakes) HistoryFrom(k edda.Key, place string, _ int) ([]store.Record, string, error) {
	if _, ok := f.cells[k]; !ok {
		return nil, "", f.err
	}
	if place == "strange" {
		return nil, "", edda.Classify(edda.Permanent, "no place")
	}
	next := "older"
	if place == next {
		next = ""
	}
	return []store.Record{{Key: k, Commit: 9, Fate: edda.FateHandled, Event: edda.Event{ID: "e1", Type: "OrderPlaced"}}}, next, f.err
}
func (f *fakes) SagasBehind(tenant string) []SagaBehind {
	if tenant != "acme" {
		return nil
	}
	return f.behind
}

func (f *fakes) VersionName(_ string, version int, _ string) string {
	return fmt.Sprintf("%d+dev.x", version)
}
func (f *fakes) DeadLetters(after string, limit int) ([]edda.DeadLetter, error) {
	var out []edda.DeadLetter
	begun := after == ""
	for _, d := range f.dead {
		begun = begun || after == store.DeadPlace(edda.DeadLetter{Time: d.Time}) // before all of a moment
		if begun && len(out) < limit {
			out = append(out, d)
		}
		begun = begun || store.DeadPlace(d) == after
	}
	if !begun {
		return nil, edda.Classify(edda.Permanent, "no place")
	}
	return out, f.err
}
func (f *fakes) DeadLetter(id string) (edda.DeadLetter, bool, error) {
	for _, d := range f.dead {
		if d.ID == id {
			return d, true, nil
		}
	}
	return edda.DeadLetter{}, false, f.err
}
func (f *fakes) Redeliver(_ context.Context, d edda.DeadLetter, data json.RawMessage, by store.Audit) (string, error) {
	f.details = append(f.details, by.Detail)
	f.acts = append(f.acts, fmt.Sprintf("redeliver %s %s by %s: %s", d.ID, data, by.By, by.Reason))
	return "tenant.default.aggregate.Order.O1", f.err
}
func (f *fakes) ReadBack(_ context.Context, d edda.DeadLetter) (edda.DeadLetter, error) {
	d.Event.Payload = f.inStream
	return d, f.unread
}
func (f *fakes) Drop(_ context.Context, d edda.DeadLetter, by store.Audit) error {
	f.details = append(f.details, by.Detail)
	f.acts = append(f.acts, fmt.Sprintf("drop %s by %s: %s", d.ID, by.By, by.Reason))
	return f.err
}
func (f *fakes) Note(_ context.Context, by store.Audit) error {
	f.notes = append(f.notes, fmt.Sprintf("%s by %s of %s: %s (%s)", by.Verb, by.By, by.Key, by.Detail, by.Reason))
	return f.err
}
func (f *fakes) HeldKeys(tenant, saga string, _ edda.Key, _ int) (out []store.WaitingKey, err error) {
	for k, c := range f.cells {
		if len(c.Held) > 0 && k.Tenant == tenant {
			out = append(out, store.WaitingKey{Key: k, Events: len(c.Held), First: c.Held[0]})
		}
	}
	return out, f.err
}
func (f *fakes) ParkedKeys(tenant, saga string, _ edda.Key, _ int) (out []store.WaitingKey, err error) {
	for k, c := range f.cells {
		if len(c.Parked) > 0 && k.Tenant == tenant {
			out = append(out, store.WaitingKey{Key: k, Events: len(c.Parked), First: c.Parked[0]})
		}
	}
	return out, f.err
}
func (f *fakes) AuditsOf(q store.AuditQuery) ([]store.Audit, string, error) {
	f.audits = q
	return []store.Audit{{By: "ann", Verb: "redrive", Key: order("O1"), Reason: "mended"}}, "AAA", f.err
}
func (f *fakes) Send(ctx context.Context, ev edda.Event) (engine.EventResult, error) {
	f.mu.Lock()
	f.sent = append(f.sent, ev)
	f.mu.Unlock()
	if f.send != nil {
		return f.send(ctx, ev)
	}
	return engine.EventResult{Fate: edda.FateHandled, Status: edda.StatusDone}, nil
}
func (f *fakes) Mocks() []Mock { return []Mock{{Effect: "ship", MockAnswer: MockAnswer{Answer: "ok"}}} }

func (f *fakes) SetMock(effect string, a MockAnswer) error {
	if effect != "ship" {
		return errors.New("there is no effect " + effect)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mocked = append(f.mocked, a)
	return nil
}

func (f *fakes) Publish(_ context.Context, ev edda.Event) (Stored, error) {
	f.sent = append(f.sent, ev)
	return Stored{Stream: "AGGREGATE_EVENTS", Subject: "tenant.default.aggregate.Order.O1", Seq: 12}, f.err
}

func order(correlation string) edda.Key {
	return edda.Key{Tenant: "default", Saga: "order", Correlation: correlation}
}

func newFakes(keys ...edda.Key) *fakes {
	f := &fakes{cells: map[edda.Key]edda.Cell{}}
	for _, k := range keys {
		f.cells[k] = edda.Cell{Key: k, Instance: &edda.Instance{
			Key: k, Version: 3, Status: edda.StatusRunning, State: json.RawMessage(`{"n":9007199254740993}`),
			Steps:  []edda.Step{{ID: "ship", Status: edda.StepPending}},
			Frames: []edda.Frame{{Step: "charge"}}, Timers: []edda.Timer{{Name: "pay_by"}},
		}}
	}
	return f
}

func start(t *testing.T, f *fakes, change ...func(*Options)) *httptest.Server {
	t.Helper()
	o := Options{Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f, Mocks: f, Cluster: &fakeCluster{}, Tenant: "default", Metrics: prometheus.NewRegistry()}
	for _, c := range change {
		c(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	return h
}

// call makes a request and returns the status and the body; headers are
// written "name: value".
func call(t *testing.T, h *httptest.Server, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
		if name == "Host" {
			req.Host = value
		}
	}
	resp, err := h.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 400 && path != "/health" && resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %s: error of type %q", method, path, resp.Header.Get("Content-Type"))
	}
	return resp.StatusCode, string(text)
}

func TestProbes(t *testing.T) {
	f := newFakes()
	f.status = ProcessStatus{Components: map[string]ComponentStatus{"storage": {State: "up"}, "jetstream": {State: "up"}}}
	h := start(t, f)
	for _, path := range []string{"/live", "/ready", "/health", "/metrics", "/info", "/openapi.json", "/docs"} {
		if code, body := call(t, h, "GET", path, ""); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	f.status = ProcessStatus{NotReady: "draining", Components: map[string]ComponentStatus{
		"storage": {State: "up"}, "jetstream": {State: "down", Problem: "no servers available"}}}
	want := map[string]int{"/live": 200, "/ready": 503, "/health": 503}
	for path, code := range want {
		if got, body := call(t, h, "GET", path, ""); got != code {
			t.Errorf("%s: %d %s", path, got, body)
		}
	}
	_, body := call(t, h, "GET", "/health", "")
	if !strings.Contains(body, `"jetstream":{"state":"down","problem":"no servers available"}`) || !strings.Contains(body, `"storage":{"state":"up"}`) {
		t.Errorf("health: %s", body)
	}
	if _, body := call(t, h, "GET", "/ready", ""); !strings.Contains(body, "draining") {
		t.Errorf("ready: %s", body)
	}
}

func TestDrainReportsProgressTheSecondTime(t *testing.T) {
	h := start(t, newFakes())
	if _, body := call(t, h, "POST", "/admin/drain", ""); !strings.Contains(body, `"stage":"intake"`) {
		t.Error(body)
	}
	if _, body := call(t, h, "POST", "/admin/drain", ""); !strings.Contains(body, `"outbox":7`) {
		t.Error(body)
	}
}

func TestReloadAnswersWithAllProblems(t *testing.T) {
	f := newFakes()
	f.reload = Reload{Problems: []Problem{
		{File: "a.yaml", Line: 3, Column: 5, Message: "unknown name statee"},
		{File: "b.yaml", Line: 1, Column: 1, Message: "no key"},
	}}
	h := start(t, f)
	code, body := call(t, h, "POST", "/admin/reload", "")
	if code != 422 || !strings.Contains(body, "a.yaml:3:5") || !strings.Contains(body, "b.yaml:1:1") || !strings.Contains(body, "unknown name statee") {
		t.Errorf("%d %s", code, body)
	}
	f.reload = Reload{Sagas: []SagaInfo{{Saga: "order", Version: 4}}, Problems: []Problem{{Warning: true, Message: "careful"}}}
	if code, body := call(t, h, "POST", "/admin/reload", ""); code != 200 || !strings.Contains(body, "careful") {
		t.Errorf("%d %s", code, body)
	}
}

func TestAReloadThatKeepsAFileOfBeforeSaysSoWithoutAPlace(t *testing.T) {
	f := newFakes()
	h := start(t, f)
	for _, tt := range []struct {
		problems []Problem
		want     string
	}{
		{nil, `"detail":"tokens: broken; the manifests are reloaded"`},
		{[]Problem{{File: "a.yaml", Line: 3, Column: 5, Message: "no key"}, {Message: "no tenants"}}, `"errors":[{"message":"no key","location":"a.yaml:3:5"},{"message":"no tenants"},{"message":"tokens: broken"}]`},
	} {
		f.reload = Reload{Kept: "tokens: broken", Problems: tt.problems}
		if code, body := call(t, h, "POST", "/admin/reload", ""); code != 422 || !strings.Contains(body, tt.want) {
			t.Errorf("%d %s, want %s", code, body, tt.want)
		}
	}
}

func TestDescribeShowsEverything(t *testing.T) {
	h := start(t, newFakes(order("O1")))
	code, body := call(t, h, "GET", "/v1/instances/order/O1", "")
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	for _, want := range []string{`"version_name":"3+dev.x"`, `"n":9007199254740993`, `"steps":[{"id":"ship"`, `"frames":[{"step":"charge"`, `"timers":[{"name":"pay_by"`, `"waits":[`, `"commit":9`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in %s", want, body)
		}
	}
	if code, body := call(t, h, "GET", "/v1/instances/order/O1/history", ""); code != 200 || !strings.Contains(body, "OrderPlaced") {
		t.Errorf("%d %s", code, body)
	}
	for _, path := range []string{"/v1/instances/order/O2", "/v1/instances/order/O2/history"} {
		if code, body := call(t, h, "GET", path, ""); code != 404 || !strings.Contains(body, `\"O2\"`) {
			t.Errorf("%d %s", code, body)
		}
	}
}

func TestKeysMayHoldAnyCharacters(t *testing.T) {
	for _, key := range []string{"a/b", "a b", "..", "ü%2F", "a?b#c", "[0]", "a.b*>"} {
		f := newFakes(order(key))
		h := start(t, f)
		escaped := strings.ReplaceAll(url.PathEscape(key), ".", "%2E")
		if code, body := call(t, h, "GET", "/v1/instances/order/"+escaped, ""); code != 200 {
			t.Errorf("%q: %d %s", key, code, body)
		}
		if code, body := call(t, h, "POST", "/v1/instances/order/"+escaped+"/signal/go", "{}"); code != 200 || f.sent[0].Key.Correlation != key {
			t.Errorf("%q: %d %s", key, code, body)
		}
	}
}

func TestList(t *testing.T) {
	f := newFakes(order("O1"))
	h := start(t, f)
	code, body := call(t, h, "GET", "/v1/instances?saga=order&status=running&limit=1", "")
	if code != 200 || f.query.Saga != "order" || f.query.Status != edda.StatusRunning || f.query.Limit != 1 || f.query.Tenant != "default" {
		t.Fatalf("%d %s %+v", code, body, f.query)
	}
	var list InstanceList
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Instances) != 1 || list.Next == "" {
		t.Fatalf("%v %s", err, body)
	}
	call(t, h, "GET", "/v1/instances?after="+list.Next, "")
	if f.query.After != order("O1") {
		t.Errorf("after %+v", f.query.After)
	}
	for _, bad := range []string{"status=sleeping", "limit=0", "limit=1001", "limit=x", "after=%25%25"} {
		if code, body := call(t, h, "GET", "/v1/instances?"+bad, ""); code != 422 {
			t.Errorf("%s: %d %s", bad, code, body)
		}
	}
}

func TestAListSaysWhichSagasAreBehind(t *testing.T) {
	f := newFakes(order("O1"))
	f.behind = []SagaBehind{{Tenant: "*", Saga: "order", Done: 3, Left: 4}, {Tenant: "acme", Saga: "other", Left: 1, Paused: "gateway"}}
	h := start(t, f)
	for path, want := range map[string]int{"/v1/instances": 2, "/v1/instances?saga=order": 1, "/v1/instances?saga=third": 0} {
		var list InstanceList
		code, body := call(t, h, "GET", path, "", "x-tenant-id: acme")
		if err := json.Unmarshal([]byte(body), &list); code != 200 || err != nil || len(list.Behind) != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if _, body := call(t, h, "GET", "/v1/instances", ""); strings.Contains(body, "behind") {
		t.Errorf("another tenant's are shown: %s", body)
	}
}

func TestTenants(t *testing.T) {
	f := newFakes(order("O1"))
	h := start(t, f)
	if code, _ := call(t, h, "GET", "/v1/instances/order/O1", "", "x-tenant-id: acme"); code != 404 {
		t.Errorf("another tenant sees it: %d", code)
	}
	h = start(t, f, func(o *Options) { o.Tenant = "" })
	if code, body := call(t, h, "GET", "/v1/instances", ""); code != 422 || !strings.Contains(body, "x-tenant-id") {
		t.Errorf("%d %s", code, body)
	}
	h = start(t, f, func(o *Options) { o.NoTenancy = true })
	if code, _ := call(t, h, "GET", "/v1/instances", ""); code != 200 || f.query.Tenant != "" {
		t.Errorf("%d, tenant %q", code, f.query.Tenant)
	}
	if code, _ := call(t, h, "GET", "/v1/instances", "", "x-tenant-id: acme"); code != 422 {
		t.Errorf("a tenant where there are none: %d", code)
	}
}

func TestActsBecomeMessages(t *testing.T) {
	tests := []struct {
		path, body string
		want       edda.Event
	}{
		{"signal/nudge", `{"a":1}`, edda.Event{Kind: edda.KindSignal, Type: "nudge", Payload: json.RawMessage(`{"a":1}`)}},
		{"signal/nudge", ``, edda.Event{Kind: edda.KindSignal, Type: "nudge"}},
		{"answer/approve", `{"choice":"yes","payload":{"n":9007199254740993}}`, edda.Event{Kind: edda.KindAnswer, Type: "yes", Step: "approve", Payload: json.RawMessage(`{"n":9007199254740993}`)}},
		{"cancel", ``, edda.Event{Kind: edda.KindOperator, Type: "cancel"}},
		{"terminate", ``, edda.Event{Kind: edda.KindOperator, Type: "terminate"}},
		{"retry/charge.undo", ``, edda.Event{Kind: edda.KindOperator, Type: "retry", Step: "charge.undo"}},
		{"retry/hold%5B0%5D", `{"x":2}`, edda.Event{Kind: edda.KindOperator, Type: "retry", Step: "hold[0]", Payload: json.RawMessage(`{"x":2}`)}},
		{"skip/ship", ``, edda.Event{Kind: edda.KindOperator, Type: "skip", Step: "ship"}},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			f := newFakes(order("O1"))
			h := start(t, f)
			code, body := call(t, h, "POST", "/v1/instances/order/O1/"+tt.path, tt.body, "idempotency-key: m1", "x-edda-by: ann", "x-edda-why: a ticket")
			if code != 200 || !strings.Contains(body, `"fate":"handled"`) || !strings.Contains(body, `"status":"done"`) {
				t.Fatalf("%d %s", code, body)
			}
			tt.want.ID, tt.want.Key, tt.want.Tenant, tt.want.By, tt.want.Why = "m1", order("O1"), "default", "ann", "a ticket"
			if got := fmt.Sprintf("%+v", f.sent[0]); got != fmt.Sprintf("%+v", tt.want) {
				t.Errorf("sent %s\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestActsAreAnsweredWithTheirFate(t *testing.T) {
	tests := []struct {
		name string
		t    engine.EventResult
		err  error
		code int
		want string
	}{
		{"handled", engine.EventResult{Fate: edda.FateHandled, Outputs: []edda.Output{{Word: "effect", Name: "charge"}}}, nil, 200, `"word":"effect"`},
		{"guarded", engine.EventResult{Fate: edda.FateGuarded}, nil, 200, "guarded"},
		{"duplicate", engine.EventResult{Fate: edda.FateDuplicate}, nil, 409, "duplicate"},
		{"dropped by the stream", engine.EventResult{}, fmt.Errorf("await: %w", ErrDuplicate), 409, "duplicate: message m1"},
		{"held", engine.EventResult{Fate: edda.FateHeld}, nil, 200, "held"},
		{"late", engine.EventResult{Fate: edda.FateLate}, nil, 409, "too late"},
		{"refused", engine.EventResult{Fate: edda.FateHandled, Outputs: []edda.Output{{Word: "refused", Name: "cancelled"}}}, nil, 409, "refused: cancelled"},
		{"refused, and why", engine.EventResult{Fate: edda.FateHandled, Outputs: []edda.Output{{Word: "refused", Name: "officer.yes", Reason: "choose one of no"}}}, nil, 409, "refused: officer.yes: choose one of no"},
		{"gone", engine.EventResult{Fate: edda.FateDead, Dead: &edda.DeadLetter{Reason: edda.DeadNoInstance}}, nil, 404, "no instance"},
		{"poison", engine.EventResult{Fate: edda.FateDead, Dead: &edda.DeadLetter{ID: "D1", Reason: edda.DeadPoison, Error: "boom"}}, nil, 422, "D1"},
		{"ignored", engine.EventResult{Fate: edda.FateIgnored}, nil, 422, "nothing in saga order"},
		{"slow", engine.EventResult{}, context.DeadlineExceeded, 504, "idempotency-key: m1"},
		{"too large", engine.EventResult{}, edda.Classify(edda.Permanent, "2 MB is more than a message may carry"), 422, "2 MB"},
		{"no stream", engine.EventResult{}, errors.New("no responders"), 503, "no responders"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakes(order("O1"))
			f.send = func(context.Context, edda.Event) (engine.EventResult, error) { return tt.t, tt.err }
			code, body := call(t, start(t, f), "POST", "/v1/instances/order/O1/cancel", "", "idempotency-key: m1", "x-edda-why: a ticket")
			if code != tt.code || !strings.Contains(body, tt.want) {
				t.Errorf("%d %s, want %d %s", code, body, tt.code, tt.want)
			}
		})
	}
}

func TestAnActWaitsOnlySoLong(t *testing.T) {
	f := newFakes(order("O1"))
	f.send = func(ctx context.Context, _ edda.Event) (engine.EventResult, error) {
		<-ctx.Done()
		return engine.EventResult{}, ctx.Err()
	}
	h := start(t, f, func(o *Options) { o.CommitWait = 5 * time.Millisecond })
	if code, body := call(t, h, "POST", "/v1/instances/order/O1/cancel", "", "x-edda-why: a ticket"); code != 504 {
		t.Errorf("%d %s", code, body)
	}
}

func TestAnActThatWasTakenIsNotSentAgain(t *testing.T) {
	f := newFakes(order("O1"))
	f.cells[order("O1")].Instance.Recent = []string{"m1"}
	code, body := call(t, start(t, f), "POST", "/v1/instances/order/O1/cancel", "", "idempotency-key: m1", "x-edda-why: a ticket")
	if code != 409 || !strings.Contains(body, "duplicate: message m1") || len(f.sent) != 0 {
		t.Errorf("%d %s, sent %v", code, body, f.sent)
	}
}

func TestAMissingInstanceGetsNoMessage(t *testing.T) {
	f := newFakes()
	if code, _ := call(t, start(t, f), "POST", "/v1/instances/order/O1/signal/x", "{}"); code != 404 || len(f.sent) != 0 {
		t.Errorf("%d, sent %v", code, f.sent)
	}
}

func TestBadPayloadsAreRefused(t *testing.T) {
	f := newFakes(order("O1"))
	h := start(t, f)
	deep := strings.Repeat("[", jsonvalue.MaxDepth+2) + strings.Repeat("]", jsonvalue.MaxDepth+2)
	for path, bodies := range map[string][]string{
		"/v1/instances/order/O1/signal/x": {`{"a":`, deep, `99999999999999999999x`},
		"/v1/instances/order/O1/answer/x": {``, `{}`, `{"choice":""}`, `{"choice":"yes","other":1}`},
		"/v1/events":                      {``, `{}`, `{"aggregate_type":"Order","aggregate_id":"O1"}`, `{"aggregate_type":"Order","aggregate_id":"O1","event_type":"x","surprise":1}`},
	} {
		for _, b := range bodies {
			if code, body := call(t, h, "POST", path, b); code != 422 && code != 400 {
				t.Errorf("%s %.30s: %d %.200s", path, b, code, body)
			}
		}
	}
	if len(f.sent) != 0 {
		t.Errorf("sent %v", f.sent)
	}
}

func TestBodiesHaveALimit(t *testing.T) {
	h := start(t, newFakes(order("O1")))
	huge := `"` + strings.Repeat("x", maxBody+1) + `"`
	if code, body := call(t, h, "POST", "/v1/instances/order/O1/signal/x", huge); code != 413 {
		t.Errorf("%d %.200s", code, body)
	}
}

func TestPublish(t *testing.T) {
	f := newFakes()
	code, body := call(t, start(t, f), "POST", "/v1/events", `{"event_id":"e1","aggregate_type":"Order","aggregate_id":"O1","event_type":"OrderPlaced","payload":{"n":1},"metadata":{"correlation_id":"c1"}}`, "x-tenant-id: acme")
	if code != 200 || !strings.Contains(body, `"seq":12`) || !strings.Contains(body, `"event_id":"e1"`) {
		t.Fatalf("%d %s", code, body)
	}
	if ev := f.sent[0]; ev.Tenant != "acme" || ev.Type != "OrderPlaced" || ev.Correlation != "c1" || string(ev.Payload) != `{"n":1}` {
		t.Errorf("published %+v", ev)
	}
}

func TestDeadLettersOfOneTenant(t *testing.T) {
	f := newFakes()
	for i := range 10 {
		tenant := []string{"default", "acme"}[i%2]
		f.dead = append(f.dead, edda.DeadLetter{ID: fmt.Sprintf("D%d", i), Reason: edda.DeadPoison, Event: edda.Event{Tenant: tenant}})
	}
	h := start(t, f)
	code, body := call(t, h, "GET", "/v1/deadletters?limit=3", "")
	var page DeadLetterList
	if err := json.Unmarshal([]byte(body), &page); err != nil || code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	if len(page.DeadLetters) != 3 || page.DeadLetters[2].ID != "D4" || page.Next != store.DeadPlace(f.dead[4]) {
		t.Errorf("page %+v", page)
	}
	_, body = call(t, h, "GET", "/v1/deadletters?limit=3&after="+page.Next, "")
	if !strings.Contains(body, "D6") || !strings.Contains(body, "D8") || strings.Contains(body, "next") {
		t.Error(body)
	}
	for _, place := range []string{"D4", "%25"} { // whether or not another tenant has it
		if code, body := call(t, h, "GET", "/v1/deadletters?after="+place, ""); code != 422 {
			t.Errorf("after %s: %d %s", place, code, body)
		}
	}
	if code, _ := call(t, h, "GET", "/v1/deadletters/D2", ""); code != 200 {
		t.Errorf("D2: %d", code)
	}
	for _, id := range []string{"D3", "D99"} {
		if code, _ := call(t, h, "GET", "/v1/deadletters/"+id, ""); code != 404 {
			t.Errorf("%s: %d", id, code)
		}
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	h := start(t, newFakes(order("O1")))
	path := "/v1/instances/order/O1/cancel"
	if code, _ := call(t, h, "POST", path, "", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"); code != 403 {
		t.Errorf("cross-site: %d", code)
	}
	if code, _ := call(t, h, "GET", "/v1/instances", "", "Host: evil.example"); code != 421 {
		t.Errorf("rebound name: %d", code)
	}
	if code, _ := call(t, h, "GET", "/v1/instances", "", "Host: localhost:8700"); code != 200 {
		t.Errorf("localhost: %d", code)
	}
}

// TestAnyWebPageTakesABackup: a picture in a page was enough, and the same GET costs
// what a list costs.
func TestAnyWebPageTakesABackup(t *testing.T) {
	h := start(t, newFakes(order("O1")))
	for _, route := range Routes() {
		method, path, ok := strings.Cut(route, " ")
		if !ok {
			continue
		}
		path = strings.NewReplacer("{saga}", "order", "{key}", "O1", "{id}", "d1", "{schema}", "Info.json").Replace(path)
		if code, body := call(t, h, method, path, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"); code != 403 || !strings.Contains(body, "other web sites") {
			t.Errorf("%s of another site: %d %.100s", route, code, body)
		}
	}
	for _, path := range []string{"/admin/backup", "/v1/backup"} {
		if code, body := call(t, h, "GET", path, ""); code != 405 || !strings.Contains(body, "taken with POST") {
			t.Errorf("GET %s, as a link does: %d %s", path, code, body)
		}
		if code, _ := call(t, h, "POST", path, ""); code != 200 {
			t.Errorf("POST %s: %d", path, code)
		}
	}
	if code, _ := call(t, h, "GET", "/docs", "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"); code != 200 {
		t.Errorf("a link to the documentation: %d", code)
	}
}

func TestOnlyLoopback(t *testing.T) {
	f := newFakes()
	for addr, ok := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:0": true, "localhost:0": true, "": true,
		"0.0.0.0:8700": false, ":8700": false, "10.0.0.1:8700": false, "example.com:80": false, "127.0.0.1": false,
	} {
		_, err := New(Options{Addr: addr, Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f})
		if (err == nil) != ok {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestProbesHaveAnAddressOfTheirOwn(t *testing.T) {
	f := newFakes()
	f.status.NotReady = "draining"
	s, err := New(Options{Addr: "127.0.0.1:0", ProbeAddr: ":0", Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	testkit.Run(t, s.Run)
	_, port, _ := net.SplitHostPort(s.ProbeAddr())
	for path, want := range map[string]int{"/live": 200, "/ready": 503, "/health": 200, "/metrics": 200, "/info": 404, "/v1/instances": 404, "/docs": 404} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1:"+port+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "edda.prod.svc" // as an orchestrator calls it
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

func TestAProbeAddressInUseGivesTheOtherBack(t *testing.T) {
	f := newFakes()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s, err := New(Options{Addr: "127.0.0.1:0", ProbeAddr: taken.Addr().String(), Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Fatalf("%v", err)
	}
	again, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatalf("the API's address is still held: %v", err)
	}
	again.Close()
}

func TestUnknownPagesAreProblems(t *testing.T) {
	if code, body := call(t, start(t, newFakes()), "GET", "/nothing", ""); code != 404 || !strings.Contains(body, "/docs") {
		t.Errorf("%d %s", code, body)
	}
}

func TestInsideErrorsStayInside(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	f := newFakes(order("O1"))
	f.err = errors.New("page 7 is corrupt")
	h := start(t, f, func(o *Options) { o.Log = zap.New(core) })
	for _, path := range []string{"/v1/instances", "/v1/instances/order/O1", "/info", "/v1/deadletters"} {
		if code, body := call(t, h, "GET", path, ""); code != 500 || strings.Contains(body, "corrupt") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if logs.FilterField(zap.Error(f.err)).Len() != 4 {
		t.Errorf("logged %d times", logs.Len())
	}
}

func TestAPanicCostsOneAnswerAndShowsNoPayload(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	f := newFakes(order("O1"))
	f.send = func(context.Context, edda.Event) (engine.EventResult, error) { panic("no way") }
	h := start(t, f, func(o *Options) { o.Log = zap.New(core) })
	if code, _ := call(t, h, "POST", "/v1/instances/order/O1/signal/x", `"secret"`); code != 500 {
		t.Errorf("code %d", code)
	}
	if text := fmt.Sprint(logs.All()); !strings.Contains(text, "no way") || strings.Contains(text, "secret") {
		t.Errorf("log %s", text)
	}
	if code, _ := call(t, h, "GET", "/v1/instances/order/O1", ""); code != 200 {
		t.Errorf("afterwards: %d", code)
	}
}

func TestRunServesUntilItsEnd(t *testing.T) {
	f := newFakes()
	s, err := New(Options{Addr: "127.0.0.1:0", Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	if other, err := New(Options{Addr: s.Addr(), Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f}); err != nil {
		t.Fatal(err)
	} else if err := other.Listen(); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("second listener: %v", err)
	}
	stop := testkit.Run(t, s.Run)
	resp, err := http.Get("http://" + s.Addr() + "/live")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	stop()
	if _, err := http.Get("http://" + s.Addr() + "/live"); err == nil {
		t.Error("still serving")
	}
}

func TestHistoryGoesOnAfterAPage(t *testing.T) {
	h := start(t, newFakes(order("O1")))
	read := func(after string) (view HistoryView) {
		t.Helper()
		code, body := call(t, h, "GET", "/v1/instances/order/O1/history?after="+after, "")
		if err := json.Unmarshal([]byte(body), &view); code != 200 || err != nil {
			t.Fatalf("%d %s %v", code, body, err)
		}
		return view
	}
	if next := read("").Next; next != "older" {
		t.Errorf("next %q", next)
	}
	if next := read("older").Next; next != "" {
		t.Errorf("next %q on the last page", next)
	}
	if code, body := call(t, h, "GET", "/v1/instances/order/O1/history?after=strange", ""); code != 422 {
		t.Errorf("%d %s", code, body)
	}
}

// A page may end early because its instances are large.
func TestAShortPageOfInstancesSaysWhetherThereAreMore(t *testing.T) {
	h := start(t, newFakes(order("O1")))
	_, body := call(t, h, "GET", "/v1/instances?limit=5", "")
	if strings.Contains(body, "next") {
		t.Errorf("the last page has a next one: %s", body)
	}
}
