package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"edda"
)

// fakeGateway is an HTTP server that answers as the test tells it to.
type fakeGateway struct {
	*httptest.Server
	mu     sync.Mutex // guards the fields below
	last   *http.Request
	body   []byte
	answer func(w http.ResponseWriter)
}

func newFakeGateway(t *testing.T) *fakeGateway {
	h := &fakeGateway{answer: func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) }}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.last, h.body = r, body
		h.answer(w)
	}))
	t.Cleanup(h.Close)
	return h
}

func gateway(t *testing.T, o GatewayOptions) *Gateway {
	t.Helper()
	g, err := NewGateway(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func deliver(t *testing.T, g *Gateway, w edda.Work) error {
	t.Helper()
	errs := g.Deliver(t.Context(), []edda.Work{w})
	if len(errs) != 1 {
		t.Fatalf("%d errors for one command", len(errs))
	}
	return errs[0]
}

func request() edda.Work {
	return edda.Work{
		ID: "w1", Kind: edda.WorkCommand, Name: "Payment.Request", To: "P1", Payload: json.RawMessage(`{"amount":9007199254740993,"command":"Steal"}`),
		From: edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}, Correlation: "O1", Causation: "e1",
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func TestGatewayRequest(t *testing.T) {
	h := newFakeGateway(t)
	token := filepath.Join(t.TempDir(), "token")
	write := func(s string) {
		if err := os.WriteFile(token, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	g := gateway(t, GatewayOptions{URL: h.URL + "/base", Token: TokenFile(token)})
	if err := deliver(t, g, request()); err != nil {
		t.Fatal(err)
	}
	want := `{"tenant_id":"acme","command_id":"w1","aggregate_id":"P1","aggregate_type":"Payment",` +
		`"payload_json":"{\"amount\":9007199254740993,\"command\":\"Request\"}",` +
		`"metadata":{"correlation_id":"O1","trace_id":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","causation_id":"e1","saga":"order","key":"O1"}}`
	if diff := cmp.Diff(want, string(h.body)); diff != "" {
		t.Error(diff)
	}
	if h.last.Method != "POST" || h.last.URL.Path != "/base/v1/commands" {
		t.Errorf("%s %s", h.last.Method, h.last.URL)
	}
	for name, want := range map[string]string{"X-Tenant-Id": "acme", "Traceparent": request().Trace, "Authorization": "Bearer first", "Content-Type": "application/json"} {
		if got := h.last.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	write("second")
	if err := deliver(t, g, request()); err != nil || h.last.Header.Get("Authorization") != "Bearer second" {
		t.Errorf("a token that was replaced is not used: %v", err)
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	if err := deliver(t, g, request()); err == nil || errors.Is(err, edda.Permanent) {
		t.Errorf("without its token file: %v", err)
	}
}

func TestCommandPayload(t *testing.T) {
	for payload, want := range map[string]string{
		``: `{"command":"Request"}`, `null`: `{"command":"Request"}`, `{"a":1}`: `{"a":1,"command":"Request"}`, `[1]`: `{"command":"Request","value":[1]}`,
		` 7 `: `{"command":"Request","value":7}`, `"a"`: `{"command":"Request","value":"a"}`, `{}`: `{"command":"Request"}`, `{"command":"Steal","value":1}`: `{"command":"Request","value":1}`,
	} {
		w := request()
		w.Payload = json.RawMessage(payload)
		if got, err := CommandPayload(&w); string(got) != want || err != nil {
			t.Errorf("%s became %s %v, want %s", payload, got, err, want)
		}
	}
}

func TestAWithThatIsNoJSONIsNoCommand(t *testing.T) {
	for _, payload := range []string{`[`, `{"a"}`, `nul`} {
		w := request()
		w.Payload = json.RawMessage(payload)
		if got, err := CommandPayload(&w); err == nil {
			t.Errorf("%s became %s", payload, got)
		}
	}
}

func TestGatewayAnswers(t *testing.T) {
	h := newFakeGateway(t)
	g := gateway(t, GatewayOptions{URL: h.URL, Path: "/submit"})
	const accepted, again, rejected = "accepted", "again", "rejected"
	for status, want := range map[int]string{
		200: accepted, 201: accepted, 202: accepted, 204: accepted, 409: accepted,
		301: again, 307: again, 401: again, 403: again, 407: again, 408: again, 425: again, 429: again, 500: again, 501: again, 503: again,
		400: rejected, 404: rejected, 410: rejected, 413: rejected, 422: rejected,
	} {
		h.answer = func(w http.ResponseWriter) { w.Header().Set("Location", h.URL); w.WriteHeader(status) }
		err := deliver(t, g, request())
		got := accepted
		var no *Rejection
		switch {
		case errors.As(err, &no):
			got = rejected
		case err != nil:
			got = again
		}
		if got != want || h.last.URL.Path != "/submit" {
			t.Errorf("%d is %s (%v), want %s", status, got, err, want)
		}
	}
}

func TestGatewayRejectionSaysWhy(t *testing.T) {
	h := newFakeGateway(t)
	g := gateway(t, GatewayOptions{URL: h.URL})
	for body, want := range map[string]Rejection{
		`{"code":"no_stock","message":"none left"}`: {"no_stock", "none left", 422},
		`{"error":"closed"}`:                        {"422", "closed", 422},
		`{"detail":"closed","code":17}`:             {"422", "closed", 422},
		`{"message":"` + strings.Repeat("é", 2000):  {"422", "Unprocessable Entity", 422},
		`not json`: {"422", "Unprocessable Entity", 422},
	} {
		h.answer = func(w http.ResponseWriter) { w.WriteHeader(422); fmt.Fprint(w, body) }
		var no *Rejection
		if err := deliver(t, g, request()); !errors.As(err, &no) || *no != want || !errors.Is(err, edda.Permanent) {
			t.Errorf("%.60s: %v, want %v", body, err, want)
		}
	}
}

func TestGatewayRetryAfter(t *testing.T) {
	h := newFakeGateway(t)
	g := gateway(t, GatewayOptions{URL: h.URL})
	h.answer = func(w http.ResponseWriter) { w.Header().Set("Retry-After", "17"); w.WriteHeader(503) }
	if got := retryDelay(deliver(t, g, request())); got != 17*time.Second {
		t.Errorf("asked for %s", got)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{"Thu, 01 Jan 2026 00:01:30 GMT": 90 * time.Second, "-1": 0, "soon": 0, "999999999": 24 * time.Hour} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q is %s, want %s", header, got, want)
		}
	}
}

func TestGatewayNetworkErrorIsTemporary(t *testing.T) {
	h := newFakeGateway(t)
	g := gateway(t, GatewayOptions{URL: h.URL})
	h.Server.Close()
	if err := deliver(t, g, request()); err == nil || errors.Is(err, edda.Permanent) {
		t.Errorf("error %v", err)
	}
}

func TestGatewayMalformedCommandIsRejected(t *testing.T) {
	w := request()
	w.Payload = json.RawMessage(`{`)
	var no *Rejection
	if err := deliver(t, gateway(t, GatewayOptions{URL: "http://127.0.0.1:1"}), w); !errors.As(err, &no) || no.Code != "malformed" {
		t.Errorf("error %v", err)
	}
}

func TestGatewayAddress(t *testing.T) {
	for _, bad := range []string{"", "pay", "ftp://pay", "http://", "http://a b"} {
		if _, err := NewGateway(GatewayOptions{URL: bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A slow call of one instance delays neither other instances nor the order of its own.
func TestGatewayRoute(t *testing.T) {
	h := newFakeGateway(t)
	var got []string
	slow := make(chan struct{})
	h.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c commandBody
		_ = json.NewDecoder(r.Body).Decode(&c)
		if c.ID == "a1" {
			<-slow
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if got = append(got, c.ID); len(got) == 2 {
			close(slow) // b1 and b2 have arrived
		}
	})
	db := newMemStore()
	db.put(command("a1", "a"), command("a2", "a"), command("b1", "b"), command("b2", "b"))
	r := start(t, db, Options{Routes: []Route{gateway(t, GatewayOptions{URL: h.URL}).Route()}})
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := strings.Join(got, " "); s != "b1 b2 a1 a2" {
		t.Errorf("accepted %s", s)
	}
}
