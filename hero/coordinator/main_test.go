package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"edda/hero"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// shared is the Redis of the tests that do not stop it. Each test empties it first.
var shared *realservers.Server

func TestMain(m *testing.M) {
	var err error
	if shared, err = realservers.Redis(realservers.RedisOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(shared.Stop(), goleak.Find()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// world is a coordinator over an empty Redis, with flows that run in memory.
type world struct {
	*Coordinator
	t     *testing.T
	flows *fakeFlows
	http  *httptest.Server
	http1 *jsonrpc.Client
}

func newWorld(t *testing.T, o Options) *world {
	t.Helper()
	return worldOn(t, shared, o)
}

func worldOn(t *testing.T, redis *realservers.Server, o Options) *world {
	t.Helper()
	db := redisdbtest.Open(t, redisdb.Options{Addr: redis.Address()})
	raw, err := db.Client(0)
	testkit.Must(t, err)
	testkit.Must(t, raw.FlushAll(t.Context()).Err())
	w := &world{t: t, flows: newFakeFlows(db)}
	if w.Coordinator, err = New(db, w.flows, o); err != nil {
		t.Fatal(err)
	}
	w.http = httptest.NewServer(w.Coordinator.http.Handler())
	t.Cleanup(w.http.Close)
	w.http1 = jsonrpc.NewClient(w.http.URL, jsonrpc.ClientOptions{})
	return w
}

type dict2 = map[string]any

// call makes a call that must succeed.
func (w *world) call(method string, params, result any) {
	w.t.Helper()
	var raw json.RawMessage
	if err := w.http1.Call(w.t.Context(), method, params, &raw); err != nil {
		w.t.Fatalf("%s %v: %v", method, params, err)
	}
	if nulls.Match(bytes.ReplaceAll(raw, []byte(`"failed_job":null`), nil)) {
		w.t.Errorf("%s %v answers null for a list or an object: %s", method, params, raw)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(raw, result); err != nil {
		w.t.Fatalf("%s %v answers %s: %v", method, params, raw, err)
	}
}

var nulls = regexp.MustCompile(`(^|[:,[])null($|[],}])`)

// refused makes a call that must fail with the code, and returns the detail.
func (w *world) refused(code int, method string, params any) Detail {
	w.t.Helper()
	err := w.http1.Call(w.t.Context(), method, params, nil)
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code != code {
		w.t.Fatalf("%s %v: got %v, want %d", method, params, err, code)
	}
	return detailOf(w.t, e)
}

// detailOf reads error.data, which always has a reason.
func detailOf(t *testing.T, e *jsonrpc.Error) Detail {
	t.Helper()
	if text, ok := e.Data.(string); ok && text != "" {
		return Detail{Why: text}
	}
	data, ok := e.Data.(map[string]any)
	if !ok || data["why"] == "" || data["why"] == nil {
		t.Fatalf("error without a reason: %v", e)
	}
	text := func(name string) string { s, _ := data[name].(string); return s }
	d := Detail{Field: text("field"), Key: text("key"), Why: text("why"), Do: text("do")}
	for _, id := range asList(data["ids"]) {
		d.IDs = append(d.IDs, uint32(id.(float64)))
	}
	for _, id := range asList(data["cycle"]) {
		d.Cycle = append(d.Cycle, uint32(id.(float64)))
	}
	return d
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

// dump returns the contents of Redis in a form that can be compared.
func (w *world) dump() string {
	w.t.Helper()
	var out []string
	for database := range uint32(16) {
		c, err := w.db.Client(database)
		testkit.Must(w.t, err)
		keys, err := c.Keys(w.t.Context(), "*").Result()
		testkit.Must(w.t, err)
		for _, key := range keys {
			if key == "edda:changes" {
				continue // a counter that creations elsewhere change, too
			}
			value, err := c.Dump(w.t.Context(), key).Result()
			testkit.Must(w.t, err)
			out = append(out, fmt.Sprintf("%d %s %q", database, key, value))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// The actors of the tests' context, 7.
const (
	admin    = 1 // of the context, and the creator of its objects
	other    = 2 // another admin
	executor = 3
	reader   = 4
	stranger = 5
)

// settle makes the actors and the context.
func (w *world) settle() *world {
	w.t.Helper()
	for id := uint32(admin); id <= stranger; id++ {
		w.call("actor.create", dict2{"actor": dict2{"id": id, "pubkey": fmt.Sprintf("%064x", id), "address": []string{"200::1"}}}, nil)
	}
	w.call("context.create", dict2{"context": dict2{"id": 7, "admins": []int{admin, other}, "readers": []int{reader}, "executors": []int{executor}}}, nil)
	return w
}

// job stores a job of the admin.
func (w *world) job(id uint32, dependends ...uint32) {
	w.t.Helper()
	w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": id, "caller_id": admin, "script": "print(1)", "script_type": "python", "dependends": dependends}}, nil)
}

// flow stores a flow of the admin.
func (w *world) flow(id uint32, jobs ...uint32) {
	w.t.Helper()
	w.call("flow.create", dict2{"context_id": 7, "flow": dict2{"id": id, "caller_id": admin, "jobs": jobs}}, nil)
}

// fakeFlows runs flows in memory, by the rules of hero/flow, and shows their
// status in Redis as the projection does.
type fakeFlows struct {
	db      *redisdb.DB
	mu      sync.Mutex // guards the fields below
	states  map[[2]uint32]flow.State
	reports []hero.Report
	fail    error         // the answer to every call
	quiet   bool          // Redis is not updated
	later   int           // if quiet: reads of the state before Redis is updated
	left    time.Duration // of the last start's deadline
}

func newFakeFlows(db *redisdb.DB) *fakeFlows {
	return &fakeFlows{db: db, states: map[[2]uint32]flow.State{}}
}

func (f *fakeFlows) Start(ctx context.Context, d flow.Definition) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if deadline, ok := ctx.Deadline(); ok {
		f.left = time.Until(deadline)
	}
	at := [2]uint32{d.ContextID, d.FlowID}
	if s, ok := f.states[at]; f.fail != nil || ok && !s.Ended() {
		return false, f.fail
	}
	s := d.State()
	if before, ran := f.states[at]; ran {
		s = d.Resume(before)
	}
	s, _ = s.Start(time.Now())
	return true, f.put(ctx, at, s)
}

func (f *fakeFlows) put(ctx context.Context, at [2]uint32, s flow.State) error {
	f.states[at] = s
	if f.quiet {
		return nil
	}
	if err := f.dispatched(ctx, s); err != nil {
		return err
	}
	stored, err := f.db.Flow(ctx, at[0], at[1])
	if err != nil {
		return err
	}
	stored.Status = s.Status
	for _, r := range f.reports {
		if r.FlowID == at[1] && s.Ended() {
			for k, v := range r.Result {
				stored.Result[fmt.Sprintf("%d.%s", r.Node, k)] = v
			}
		}
	}
	return f.db.PutFlow(ctx, stored)
}

// dispatched marks the jobs of dispatched nodes with their flow, as a dispatch does.
func (f *fakeFlows) dispatched(ctx context.Context, s flow.State) error {
	for i, n := range s.Definition.Nodes {
		if s.Nodes[i].Status != hero.NodeDispatched {
			continue
		}
		to := redisdb.Dispatch{FlowID: s.Definition.FlowID, Attempt: s.Nodes[i].Attempt}
		if _, err := f.db.DispatchJob(ctx, s.Definition.ContextID, n.CallerID, n.ID, to); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeFlows) Cancel(ctx context.Context, context, id uint32) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := [2]uint32{context, id}
	s, ok := f.states[at]
	if f.fail != nil || !ok || s.Ended() {
		return false, f.fail
	}
	s, _ = s.Cancel(time.Now())
	return true, f.put(ctx, at, s)
}

func (f *fakeFlows) Met(ctx context.Context, context, id uint32, name string) ([]uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := [2]uint32{context, id}
	s, _, ready := f.states[at].Prerequisite(time.Now(), name)
	if f.fail != nil {
		return nil, f.fail
	}
	return ready, f.put(ctx, at, s)
}

func (f *fakeFlows) Report(ctx context.Context, r hero.Report) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	if slices.ContainsFunc(f.reports, func(o hero.Report) bool { return o.ID == r.ID }) {
		return nil
	}
	f.reports = append(f.reports, r)
	at := [2]uint32{r.ContextID, r.FlowID}
	s, _, _ := f.states[at].Report(time.Now(), r)
	return f.put(ctx, at, s)
}

func (f *fakeFlows) State(ctx context.Context, context, id uint32) (flow.State, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.states[[2]uint32{context, id}]
	if f.later > 0 && ok && !s.Ended() {
		if f.later--; f.later == 0 {
			return s, ok, f.dispatched(ctx, s)
		}
	}
	return s, ok, nil
}

// finish ends every job of a flow, in an order that its graph allows.
func (f *fakeFlows) finish(t *testing.T, id uint32, result map[string]string) {
	t.Helper()
	for {
		s, ok, _ := f.State(t.Context(), 7, id)
		if !ok || s.Ended() {
			return
		}
		moved := false
		for i, n := range s.Nodes {
			if n.Status != hero.NodeDispatched {
				continue
			}
			moved = true
			node := s.Definition.Nodes[i].ID
			r := hero.Report{ID: fmt.Sprintf("fake/%d/%d", id, node), ContextID: 7, FlowID: id, Node: node, Status: hero.NodeCompleted, Result: maps.Clone(result)}
			testkit.Must(t, f.Report(t.Context(), r))
		}
		if !moved {
			t.Fatalf("flow %d does not advance: %+v", id, s.Nodes)
		}
	}
}

// serveHTTP serves a coordinator and returns its URL.
func serveHTTP(t *testing.T, c *Coordinator) string {
	t.Helper()
	s := httptest.NewServer(c.http.Handler())
	t.Cleanup(s.Close)
	return s.URL
}

// counted1 sums a counter's values for a method.
func counted1(t *testing.T, reg *prometheus.Registry, name, method string) float64 {
	t.Helper()
	families, err := reg.Gather()
	testkit.Must(t, err)
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == "method" && l.GetValue() == method {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}
