package server

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda/access"
)

// soon is far more than any request takes that does not wait for a commit.
const soon = 5 * time.Second

// FuzzRequest gives any method, path, headers and body to the whole handler:
// once where anyone may call, once as a caller whom nobody knows, once as the
// admin of another tenant. Nothing panics, nothing is our failure, nothing takes
// long; nobody gets in without a token, and nothing of acme's comes out.
func FuzzRequest(f *testing.F) {
	for route := range rights() {
		method, path := concrete(route)
		f.Add(method, path, "Content-Type: application/json\r\nx-tenant-id: acme\r\nidempotency-key: m1", []byte(bodyOf(route)))
		f.Add(method, path+"?limit=1&after=WyJvcmRlciIsIk8xIl0&status=running", "x-tenant-id: beta", []byte(`{"choice":`))
	}
	for _, seed := range [][3]string{
		{"GET", "/v1/instances/order/..%2f..%2fadmin", "x-tenant-id: acme\r\nx-tenant-id: beta"},
		{"POST", "//admin//reload", "Authorization: Bearer\r\nOrigin: null"},
		{"POST", "/v1/instances/order/%00/signal/%ff", "Content-Type: application/cbor\r\nX-Tenant-Id: %61cme"},
		{"POST", "/v1/instances/order/O1/retry/hold%5B0%5D", "Authorization: Basic YTpi\r\nx-edda-by: a\tb"},
		{"PUT", "/v1/events", "Transfer-Encoding: chunked"},
		{"OPTIONS", "*", "Accept: application/cbor"},
		{"HEAD", "/docs", "Range: bytes=0-,5-1"},
	} {
		f.Add(seed[0], seed[1], seed[2], []byte("{}"))
	}
	open, guarded := ofAcme(), ofAcme()
	doors := []struct {
		h    http.Handler
		from *fakes
		as   string
	}{
		{handler(f, open, nil), open, ""},
		{handler(f, guarded, keeper(f)), guarded, ""},
		{handler(f, guarded, keeper(f)), guarded, "other"},
	}
	f.Fuzz(func(t *testing.T, method, target, headers string, body []byte) {
		for i, d := range doors {
			d.from.sent, d.from.drain = nil, Drain{}
			req := request(method, target, headers, body)
			if req == nil || known(headers) {
				return
			}
			if d.as != "" {
				req.Header.Set("Authorization", "Bearer "+d.as)
			}
			began, w := time.Now(), httptest.NewRecorder()
			d.h.ServeHTTP(w, req)
			if took := time.Since(began); took > soon {
				t.Fatalf("%d: took %s", i, took)
			}
			if w.Code >= 500 {
				t.Fatalf("%d: %s %s: %d %s", i, method, target, w.Code, w.Body)
			}
			if i > 0 && (d.from.drain.Draining || strings.Contains(w.Body.String(), "secret of acme")) {
				t.Fatalf("%d: %s %s: %d %s", i, method, target, w.Code, w.Body)
			}
			for _, ev := range d.from.sent {
				if i == 1 || i == 2 && ev.Tenant != "beta" {
					t.Fatalf("%d: sent %+v", i, ev)
				}
			}
			if i == 1 && w.Code < 300 && !rights()[strings.Replace(req.Method, "HEAD", "GET", 1)+" "+req.URL.Path].open {
				t.Fatalf("without a token: %s %s: %d %s", method, target, w.Code, w.Body)
			}
		}
	})
}

// known tells whether a token of the book is in the text: they are their names,
// which may be guessed here.
func known(headers string) bool {
	for name := range tokens {
		if strings.Contains(headers, name) {
			return true
		}
	}
	return false
}

func handler(t testing.TB, f *fakes, book *access.Tokens) http.Handler {
	t.Helper()
	s, err := New(Options{Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f, Metrics: prometheus.NewRegistry(), Tokens: book})
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// request is what a server reads of these bytes; nil where it would answer 400
// by itself.
func request(method, target, headers string, body []byte) *http.Request {
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n%s\r\n\r\n%s", method, target, len(body), headers, body)
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return nil
	}
	return req
}
