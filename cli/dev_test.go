package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/server"
	"edda/store"
	"edda/stream/kv"
	"edda/stream/wire"
)

// patience is how long a condition may take on a busy machine.
const patience = 30 * time.Second

// screen is an output that can be waited on.
type screen struct {
	mu      sync.Mutex // guards both
	buf     bytes.Buffer
	changed chan struct{}
}

func newScreen() *screen { return &screen{changed: make(chan struct{})} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func (s *screen) state() (string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String(), s.changed
}

// wait returns once the pattern is there.
func (s *screen) wait(t *testing.T, pattern string) []string {
	t.Helper()
	deadline := time.After(patience)
	re := regexp.MustCompile(pattern)
	for {
		text, changed := s.state()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%q did not come in:\n%s", pattern, text)
		}
	}
}

// running is an edda dev inside the test.
type running struct {
	out, err   *screen
	addr, nats string
	tenant     string     // of its commands; none in edda dev
	stop       func() int // and the exit code
}

func startDev(t *testing.T, args ...string) *running {
	t.Helper()
	return startDevIn(t, nil, args...)
}

// startDevIn starts it with variables.
func startDevIn(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	r := &running{out: newScreen(), err: newScreen()}
	ctx, cancel := context.WithCancel(t.Context())
	term := &terminal{in: strings.NewReader(""), out: r.out, err: r.err, env: env}
	code := make(chan int, 1)
	go func() {
		code <- term.run(ctx, append([]string{"dev", "--addr", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}, args...))
		fmt.Fprintln(r.out, "(ended)")
	}()
	var once sync.Once
	var last int
	r.stop = func() int {
		once.Do(func() { cancel(); last = <-code })
		return last
	}
	t.Cleanup(func() { r.stop() })
	if m := r.out.wait(t, `\(ended\)|api +http://(\S+) (?s:.*)nats +(\S+)(?s:.*)Ctrl-C`); m[1] != "" {
		r.addr, r.nats = m[1], m[2]
	}
	return r
}

// edda runs one command against a running one.
func (r *running) edda(t *testing.T, args ...string) (int, string) {
	t.Helper()
	out := newScreen()
	term := &terminal{in: strings.NewReader(""), out: out, err: out, env: []string{"EDDA_URL=" + r.addr, "NATS_URL=" + r.nats, "EDDA_TENANT=" + r.tenant}}
	code := term.run(t.Context(), args)
	return code, out.String()
}

// until repeats a command until its output has the text.
func (r *running) until(t *testing.T, want string, args ...string) string {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		_, out := r.edda(t, args...)
		if strings.Contains(out, want) {
			return out
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("edda %s: %q did not come in:\n%s", strings.Join(args, " "), want, out)
		}
	}
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const orderSaga = `saga: order
key: event.order_id
on:
  OrderPlaced:
    start: true
    set: {total: =event.total}
    do: [{effect: ship, with: {order: =key}, undo: {effect: recall, with: {order: =key}}}, {timer: remind, after: 1h}]
  ship.ok: {set: {tracking: =event.tracking}}
  signal.finish: {do: [{done: =state.tracking}]}
`

// shop answers effects and remembers the keys of their calls.
type shop struct {
	*httptest.Server
	mu   sync.Mutex // guards keys
	keys map[string]int
}

func newShop(t *testing.T) *shop {
	s := &shop{keys: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.keys[r.URL.Path+" "+r.Header.Get("Idempotency-Key")]++
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"tracking": "Z9"}`)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) effects() string {
	return fmt.Sprintf(`effect: ship
http: {method: POST, url: "%[1]s/ship", body: =payload}
result: {tracking: =body.tracking}
---
effect: recall
http: {method: POST, url: "%[1]s/recall", body: =payload}
`, s.URL)
}

func TestDevRunsAnOrderFromEventToEnd(t *testing.T) {
	shop := newShop(t)
	dir := folder(t, map[string]string{"order.yaml": orderSaga, "effects.yaml": shop.effects()})
	d := startDev(t, dir, "--data", t.TempDir())
	code, out := d.edda(t, "send", "Order.OrderPlaced", "--id", "a/b", "--data", `{"order_id":"a/b","total":9007199254740993}`)
	if code != 0 || !strings.Contains(out, "tenant.default.aggregate.Order.a/b  AGGREGATE_EVENTS #1") {
		t.Fatalf("send: %d %s", code, out)
	}
	out = d.until(t, `"tracking":"Z9"`, "instance", "describe", "order", "a/b")
	for _, want := range []string{"status      running", `"total":9007199254740993`, "ship", "to undo, newest first", "remind at", "Order.OrderPlaced", "ship.ok "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if code, out := d.edda(t, "instance", "signal", "order", "a/b", "finish", "--data", "{}"); code != 0 || !strings.Contains(out, "handled; now done") {
		t.Errorf("signal: %d %s", code, out)
	}
	if code, out := d.edda(t, "instance", "cancel", "order", "a/b", "--yes", "--why", "a test"); code != 1 || !strings.Contains(out, "too late") {
		t.Errorf("cancel: %d %s", code, out)
	}
	if code, out := d.edda(t, "instance", "list", "-o", "ids"); code != 0 || out != "order a/b\n" {
		t.Errorf("list: %d %q", code, out)
	}
	if len(shop.keys) != 1 {
		t.Errorf("calls %v", shop.keys)
	}
	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, d.err)
	}
}

func TestCancelUndoes(t *testing.T) {
	shop := newShop(t)
	dir := folder(t, map[string]string{"order.yaml": orderSaga, "effects.yaml": shop.effects()})
	d := startDev(t, dir, "--data", t.TempDir())
	d.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1"}`)
	d.until(t, `"tracking":"Z9"`, "instance", "describe", "order", "O1")
	if code, out := d.edda(t, "instance", "cancel", "order", "O1", "-y", "--why", "a test"); code != 0 || !strings.Contains(out, "undoing") {
		t.Fatalf("cancel: %d %s", code, out)
	}
	d.until(t, "undone (cancelled)", "instance", "describe", "order", "O1")
}

// Where no instance has begun nothing remembers a signal but the stream, which
// drops the second one: the caller must not wait for what will never come.
func TestARepeatedSignalIsAnsweredAtOnce(t *testing.T) {
	d := startDev(t, folder(t, map[string]string{"order.yaml": orderSaga + "  OrderPaid: {}\n"}), "--data", t.TempDir())
	d.edda(t, "send", "Order.OrderPaid", "--id", "O1", "--event-id", "e1", "--data", `{"order_id":"O1"}`)
	d.until(t, "parked", "instance", "describe", "order", "O1")
	for _, want := range []int{http.StatusNotFound, http.StatusConflict} {
		if code, text := d.post(t, "/v1/instances/order/O1/signal/finish", "idempotency-key", "s1"); code != want {
			t.Errorf("%d %s, want %d", code, text, want)
		}
	}
	if code, out := d.edda(t, "send", "Order.OrderPaid", "--id", "O1", "--event-id", "e1"); code != 0 || !strings.Contains(out, "event e1, which was there already") {
		t.Errorf("%d %s", code, out)
	}
}

func TestASignalThatNothingTakesIsAnError(t *testing.T) {
	d := startDev(t, folder(t, map[string]string{"order.yaml": orderSaga}), "--data", t.TempDir())
	d.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1"}`)
	d.until(t, "running", "instance", "describe", "order", "O1")
	if code, out := d.edda(t, "instance", "signal", "order", "O1", "finnish"); code != 1 || !strings.Contains(out, "nothing in saga order takes the signal finnish") {
		t.Errorf("%d %s", code, out)
	}
}

func (r *running) post(t *testing.T, path, header, value string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(header, value)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestDataIsKeptAcrossRestarts(t *testing.T) {
	dir, data := folder(t, map[string]string{"order.yaml": orderSaga}), t.TempDir()
	d := startDev(t, dir, "--data", data)
	d.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1","total":7}`)
	d.until(t, "running", "instance", "describe", "order", "O1")
	if code := d.stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, d.err)
	}
	d = startDev(t, dir, "--data", data)
	if code, out := d.edda(t, "instance", "describe", "order", "O1"); code != 0 || !strings.Contains(out, `"total":7`) {
		t.Errorf("after the restart: %d %s", code, out)
	}
	d.edda(t, "send", "Order.OrderPlaced", "--id", "O2", "--data", `{"order_id":"O2","total":8}`)
	d.until(t, "running", "instance", "describe", "order", "O2")
}

func TestChangedFilesAreTakenInAndBrokenOnesAreNot(t *testing.T) {
	dir := folder(t, map[string]string{"order.yaml": orderSaga})
	d := startDev(t, dir, "--data", t.TempDir())
	d.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1"}`)
	d.until(t, "running", "instance", "describe", "order", "O1")

	write(t, filepath.Join(dir, "order.yaml"), strings.Replace(orderSaga, "=event.total", "=evnt.total", 1))
	d.err.wait(t, `order.yaml:6:\d+: error: unknown name "evnt"(?s:.*)\^(?s:.*)what ran before runs on`)
	d.edda(t, "send", "Order.OrderPlaced", "--id", "O2", "--data", `{"order_id":"O2","total":2}`)
	d.until(t, `"total":2`, "instance", "describe", "order", "O2")

	write(t, filepath.Join(dir, "order.yaml"), strings.Replace(orderSaga, "total: =event.total", "sum: =event.total", 1))
	name := d.out.wait(t, `Reloaded: sagas order v(1\+dev\.[0-9a-f]{8});`)[1]
	d.edda(t, "send", "Order.OrderPlaced", "--id", "O3", "--data", `{"order_id":"O3","total":3}`)
	if out := d.until(t, `"sum":3`, "instance", "describe", "order", "O3"); !strings.Contains(out, "saga        order, version "+name+",") {
		t.Errorf("not %s: %s", name, out)
	}
	if _, out := d.edda(t, "instance", "describe", "order", "O1"); !strings.Contains(out, "saga        order, version 1,") {
		t.Errorf("not version 1: %s", out)
	}
	if _, out := d.edda(t, "instance", "list"); strings.Count(out, name) != 1 {
		t.Errorf("the list: %s", out)
	}
	// O1 began with the text before, and finishes with it.
	if code, out := d.edda(t, "instance", "signal", "order", "O1", "finish"); code != 0 || !strings.Contains(out, "now done") {
		t.Errorf("signal: %d %s", code, out)
	}
	if code, out := d.edda(t, "reload"); code != 0 || !strings.Contains(out, "order version "+name) {
		t.Errorf("reload: %d %s", code, out)
	}
}

// TestDevWithLostStreamsCouldNotBeStartedAgain as its error says: the embedded
// NATS syncs seldom, so a power cut can do this.
// commands is how many messages there are in the stream of commands.
func (r *running) commands(t *testing.T) uint64 {
	t.Helper()
	conn, js, err := connectNow(t.Context(), kv.Connection{URL: r.nats})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := js.Stream(t.Context(), wire.WorkflowCommands)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// TestDevHandsOverUnlessItIsAskedNotTo: the command is in no stream then.
func TestDevHandsOverUnlessItIsAskedNotTo(t *testing.T) {
	shop := newShop(t)
	dir := folder(t, map[string]string{"order.yaml": orderSaga, "effects.yaml": shop.effects()})
	for asked, want := range map[string]uint64{"": 0, "false": 1, "true": 0} {
		d := startDevIn(t, []string{"EDDA_EFFECTS_HANDOFF=" + asked}, dir, "--data", t.TempDir())
		d.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1","total":1}`)
		d.until(t, `"tracking":"Z9"`, "instance", "describe", "order", "O1")
		if n := d.commands(t); n != want {
			t.Errorf("asked %q, it put %d commands into their stream, want %d", asked, n, want)
		}
		d.stop()
	}
}

func TestDevDoesNotGuessWhetherToHandOver(t *testing.T) {
	d := startDevIn(t, []string{"EDDA_EFFECTS_HANDOFF=perhaps"}, folder(t, map[string]string{"order.yaml": orderSaga}), "--data", t.TempDir())
	if code := d.stop(); code != 2 || !strings.Contains(d.err.String(), `EDDA_EFFECTS_HANDOFF "perhaps": want true or false`) {
		t.Errorf("%d %s", code, d.err)
	}
}

func TestDevWithLostStreamsCouldNotBeStartedAgain(t *testing.T) {
	dir, data := folder(t, map[string]string{"order.yaml": "saga: order\nkey: event.id\non: {OrderPlaced: {start: true}, OrderDone: {do: [{done: 1}]}}\n"}), t.TempDir()
	first := startDev(t, dir, "--data", data)
	if code := first.stop(); code != 0 {
		t.Fatalf("exit code %d: %s", code, first.err)
	}
	if err := os.RemoveAll(filepath.Join(data, "nats")); err != nil {
		t.Fatal(err)
	}
	refused := startDev(t, dir, "--data", data)
	if code := refused.stop(); code != 1 || !strings.Contains(refused.err.String(), "--accept-stream-loss") {
		t.Fatalf("exit code %d: %s", code, refused.err)
	}
	if code := startDev(t, dir, "--data", data, "--accept-stream-loss").stop(); code != 0 {
		t.Fatalf("accepted: exit code %d", code)
	}
	if code := startDev(t, dir, "--data", data).stop(); code != 0 {
		t.Fatalf("after that: exit code %d", code)
	}
	wantAudits(t, data, 3)
}

// wantAudits looks into the store of a process that has stopped.
func wantAudits(t *testing.T, data string, n int) {
	t.Helper()
	db, err := store.Open(filepath.Join(data, "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	audits, err := db.Audits(10)
	if err != nil || len(audits) != n {
		t.Fatalf("%d audits (%v), want %d: %+v", len(audits), err, n, audits)
	}
	for _, a := range audits {
		if a.Verb != "accept" || !strings.Contains(a.Detail, "was created anew") || !strings.Contains(a.Detail, "reading goes on at message 1, ") {
			t.Errorf("audit %+v", a)
		}
	}
}

func TestReloadAnswersWithEveryProblem(t *testing.T) {
	dir := folder(t, map[string]string{"order.yaml": orderSaga})
	d := startDev(t, dir, "--data", t.TempDir())
	write(t, filepath.Join(dir, "order.yaml"), strings.Replace(orderSaga, "=event.total", "=evnt.total", 1))
	write(t, filepath.Join(dir, "other.yaml"), "saga: Other\n")
	write(t, filepath.Join(dir, "message.yaml"), "saga: note\nkey: event.id\non:\n  Noted: {start: true, do: [{message: {context_id: 1, caller_id: 2, message_type: text, message_format_type: text, message: hello}}, {done: 1}]}\n")
	code, out := d.edda(t, "reload")
	if code != 1 || !strings.Contains(out, "evnt") || !strings.Contains(out, "other.yaml:1:") || !strings.Contains(out, "message.yaml:4:") || !strings.Contains(out, "nothing changed") {
		t.Errorf("%d %s", code, out)
	}
	d.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1","total":1}`)
	d.until(t, `"total":1`, "instance", "describe", "order", "O1") // by what ran before
}

func TestDrainEndsTheProcess(t *testing.T) {
	d := startDev(t, folder(t, map[string]string{"order.yaml": orderSaga}), "--data", t.TempDir())
	if code, out := d.edda(t, "drain"); code != 0 || !strings.HasPrefix(out, "draining") {
		t.Fatalf("%d %s", code, out)
	}
	d.out.wait(t, `\(ended\)`)
	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, d.err)
	}
}

func TestWhatCannotStartSaysWhyInOneLine(t *testing.T) {
	dir, data := folder(t, map[string]string{"order.yaml": orderSaga}), t.TempDir()
	d := startDev(t, dir, "--data", data)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	tests := []struct {
		name, want string
		args       []string
		code       int
	}{
		{"a second process", "another process holds", []string{"--data", data}, 1},
		{"port in use", "address already in use; is another Edda running? Choose another --addr", []string{"--addr", d.addr}, 1},
		{"nats port in use", "is in use", []string{"--nats-addr", strings.TrimPrefix(d.nats, "nats://")}, 1},
		{"folder that cannot be made", "data folder: ", []string{"--data", filepath.Join(file, "x")}, 1},
		{"address that others reach", "nobody would have to say who they are", []string{"--addr", "0.0.0.0:0"}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := startDev(t, append([]string{dir, "--data", t.TempDir()}, tt.args...)...)
			lines := strings.Split(strings.TrimSpace(e.err.String()), "\n")
			last := lines[len(lines)-1]
			if code := e.stop(); code != tt.code || !strings.HasPrefix(last, "edda: ") || !strings.Contains(last, tt.want) {
				t.Errorf("%d %s", code, e.err)
			}
		})
	}
}

func TestBrokenManifestsStartNothing(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	d := startDev(t, folder(t, map[string]string{"order.yaml": "saga: order\non: {}\nsurprise: 1\n"}), "--data", data)
	if code := d.stop(); code != 1 || !strings.Contains(d.err.String(), "surprise") || !strings.Contains(d.err.String(), "nothing was started") {
		t.Errorf("%d %s", code, d.err)
	}
	if _, err := os.Stat(data); err == nil {
		t.Error("the data folder was made")
	}
}

func TestProbesOfARunningProcess(t *testing.T) {
	shop := newShop(t)
	d := startDev(t, folder(t, map[string]string{"order.yaml": orderSaga, "effects.yaml": shop.effects()}), "--data", t.TempDir())
	for _, path := range []string{"/live", "/ready", "/health", "/metrics"} {
		resp, err := http.Get("http://" + d.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
		if path == "/metrics" && !bytes.Contains(text, []byte("edda_commit_duration_seconds_count")) {
			t.Error("no metrics of ours")
		}
	}
	resp, err := http.Get("http://" + d.addr + "/info")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var info server.Info
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil {
		t.Fatal(err)
	}
	if len(info.Sagas) != 1 || len(info.Effects) != 2 || len(info.Streams) != 3 || len(info.Positions) == 0 || info.StoreID == "" {
		t.Errorf("%+v", info)
	}
}
