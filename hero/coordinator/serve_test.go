package coordinator

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"os/exec"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

// running runs a coordinator on free ports until the test ends.
func running(t *testing.T, w *world, o Options) *Coordinator {
	t.Helper()
	o.HTTPAddr, o.WSAddr = "127.0.0.1:0", "127.0.0.1:0"
	c, err := New(w.db, w.flows, o)
	testkit.Must(t, err)
	testkit.Must(t, c.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestBothAddressesServeAllMethods(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	c := running(t, w, Options{})
	if err := jsonrpc.NewClient("http://"+c.HTTPAddr()+"/any/path", jsonrpc.ClientOptions{}).Call(t.Context(), "context.load", dict2{"id": 7}, nil); err != nil {
		t.Error(err)
	}
	socket, err := jsonrpc.Dial(t.Context(), "ws://"+c.WSAddr(), jsonrpc.ClientOptions{})
	testkit.Must(t, err)
	defer socket.Close()
	if err := socket.Call(t.Context(), "context.load", dict2{"id": 7}, nil); err != nil {
		t.Error(err)
	}
	var e *jsonrpc.Error
	if err := socket.Call(t.Context(), "context.load", dict2{"id": 7, "actor_id": stranger}, nil); !errors.As(err, &e) || e.Code != jsonrpc.PermissionDenied {
		t.Errorf("a stranger over WebSocket: %v", err)
	}
}

func TestAStopEndsWebSocketsAndFreesThePorts(t *testing.T) {
	w := newWorld(t, Options{})
	c, err := New(w.db, w.flows, Options{HTTPAddr: "127.0.0.1:0", WSAddr: "127.0.0.1:0"})
	testkit.Must(t, err)
	testkit.Must(t, c.Listen())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	socket, _, err := websocket.Dial(t.Context(), "ws://"+c.WSAddr(), nil)
	testkit.Must(t, err)
	cancel()
	soon, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	if _, _, err := socket.Read(soon); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the WebSocket ends with %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, addr := range []string{c.HTTPAddr(), c.WSAddr()} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Errorf("%s is still taken: %v", addr, err)
			continue
		}
		_ = l.Close()
	}
}

func TestAPortThatIsTakenIsSaidBeforeAnythingStarts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer l.Close()
	w := newWorld(t, Options{})
	c, err := New(w.db, w.flows, Options{HTTPAddr: "127.0.0.1:0", WSAddr: l.Addr().String()})
	testkit.Must(t, err)
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "listen on "+l.Addr().String()) {
		t.Errorf("got %v", err)
	}
	again, err := net.Listen("tcp", c.HTTPAddr())
	if err != nil {
		t.Fatalf("the other port was kept: %v", err)
	}
	_ = again.Close()
}

func TestWithoutTokensOnlyThisMachineIsServed(t *testing.T) {
	w := newWorld(t, Options{})
	for _, o := range []Options{{HTTPAddr: "0.0.0.0:9652"}, {WSAddr: ":9653"}, {HTTPAddr: "9652"}} {
		if _, err := New(w.db, w.flows, o); err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%+v: %v", o, err)
		}
		o.Tokens = map[string]uint32{"0123456789abcdef": 1}
		if _, err := New(w.db, w.flows, o); (err != nil) != (o.HTTPAddr == "9652") {
			t.Errorf("with tokens, %+v: %v", o, err)
		}
	}
}

// Otherwise any web page in a browser on the coordinator's machine could call it.
func TestPagesOfOthersAreRefused(t *testing.T) {
	w := newWorld(t, Options{})
	for _, c := range []struct {
		name, header, value string
		want                int
	}{
		{"a name that points here", "Host", "evil.example", http.StatusMisdirectedRequest},
		{"another site", "Origin", "http://evil.example", http.StatusForbidden},
		{"nobody's page", "X-Nothing", "", http.StatusOK},
	} {
		for door, h := range map[string]http.Handler{"http": w.Coordinator.http.Handler(), "ws": w.ws.Handler()} {
			r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:9652/", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"actor.list"}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(c.header, c.value)
			if c.header == "Host" {
				r.Host = c.value
			}
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			if answer.Code != c.want && (door == "http" || c.want != http.StatusOK) {
				t.Errorf("%s at %s: %d %s", c.name, door, answer.Code, answer.Body)
			}
		}
	}
}

func TestABatchEndsInTime(t *testing.T) {
	seen := make(chan time.Duration, 1)
	h := bounded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		deadline, _ := r.Context().Deadline()
		seen <- time.Until(deadline)
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	if left := <-seen; left <= 0 || left > requestTimeout || requestTimeout >= writeTimeout {
		t.Errorf("a request has %s", left)
	}
}

func TestCallsAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	w := newWorld(t, Options{Metrics: reg}).settle()
	w.refused(jsonrpc.PermissionDenied, "context.load", dict2{"id": 7, "actor_id": stranger})
	w.refused(jsonrpc.MethodNotFound, "no.such.method", nil)
	for _, script := range []string{"1", "1", "2"} { // created, repeated, changed
		w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": 9, "caller_id": admin, "script": script, "script_type": "Python"}}, nil)
	}
	w.refused(jsonrpc.InvalidParams, "job.create", dict2{"context_id": 7, "job": dict2{"id": 8, "caller_id": admin, "script": "x", "script_type": "cobol"}})
	w.meter.created("cobol")
	families, err := reg.Gather()
	testkit.Must(t, err)
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		`edda_hero_calls_total{code="ok",method="actor.create"} 5`, `edda_hero_calls_total{code="-32003",method="context.load"} 1`,
		`edda_hero_calls_total{code="-32601",method="unknown"} 1`, `edda_hero_denied_total{method="context.load"} 1`,
		`edda_hero_jobs_created_total{type="python"} 1`, `edda_hero_jobs_created_total{type="bash"} 0`, `edda_hero_jobs_created_total{type="other"} 1`,
		`edda_hero_denied_total{method="flow.start"} 0`, `edda_hero_call_seconds_count{method="actor.create"} 5`,
	} {
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("missing %s in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "no.such") || strings.Contains(text.String(), "cobol") {
		t.Error("a client made a label")
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	if _, err := New(w.db, w.flows, Options{Metrics: reg}); err == nil {
		t.Error("metrics are registered twice")
	}
}

func TestTheEnvelopeIsAsDocumented(t *testing.T) {
	w := newWorld(t, Options{})
	for _, c := range []struct {
		method, kind, body string
		status             int
	}{
		{http.MethodGet, "application/json", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "text/plain", "{}", http.StatusUnsupportedMediaType},
		{http.MethodPost, "application/json", `"` + strings.Repeat("x", 10<<20) + `"`, http.StatusRequestEntityTooLarge},
		{http.MethodPost, "application/json", "{", http.StatusOK},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, w.http.URL, strings.NewReader(c.body))
		testkit.Must(t, err)
		r.Header.Set("Content-Type", c.kind)
		answer, err := http.DefaultClient.Do(r)
		testkit.Must(t, err)
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.kind, answer.StatusCode, text)
		}
	}
}

// TestAClientWrittenFromTheDocuments runs a session of a foreign client, over HTTP and
// WebSocket, in every shape of parameters.
func TestAClientWrittenFromTheDocuments(t *testing.T) {
	w := newWorld(t, Options{})
	c := running(t, w, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "testdata/session.py", "http://"+c.HTTPAddr(), c.WSAddr()).CombinedOutput()
	if err != nil || string(out) != "ok\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, context := range []uint32{2, 3} {
		raw, err := w.db.Client(context)
		testkit.Must(t, err)
		// Each message was created eight times and deleted. Its key was pushed once.
		if keys := raw.LRange(t.Context(), hero.MsgOut, 0, -1).Val(); len(keys) != 1 || keys[0] != "message:41:101" {
			t.Errorf("msg_out of context %d holds %v", context, keys)
		}
	}
}
