package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda/access"
	"edda/internal/testcerts"
	"edda/internal/testkit"
)

// follower makes the server of the standby n2.
func follower(t *testing.T, c *fakeCluster, change ...func(*StandbyOptions)) *Server {
	t.Helper()
	f := newFakes()
	o := StandbyOptions{Options: Options{Cluster: c, Metrics: prometheus.NewRegistry()}, Node: "n2", Status: f.Status, Drain: f.Drain}
	for _, change := range change {
		change(&o)
	}
	return testkit.Value[*Server](t)(NewStandby(o))
}

// following serves a standby until the test ends.
func following(t *testing.T, c *fakeCluster, change ...func(*StandbyOptions)) *httptest.Server {
	t.Helper()
	h := httptest.NewServer(follower(t, c, change...).Handler())
	t.Cleanup(h.Close)
	return h
}

// ownedBy is a cluster whose owner is a handler.
func ownedBy(t *testing.T, owner http.HandlerFunc) *fakeCluster {
	t.Helper()
	h := httptest.NewServer(owner)
	t.Cleanup(h.Close)
	return &fakeCluster{url: h.URL}
}

// TestAStandbyAnswersAsTheOwnerDoes: to each route and each caller.
func TestAStandbyAnswersAsTheOwnerDoes(t *testing.T) {
	direct, behind := ofAcme(), ofAcme()
	h, owner := guarded(t, direct), guarded(t, behind)
	standby := following(t, &fakeCluster{url: owner.URL}, func(o *StandbyOptions) { o.Tokens = keeper(t) })
	for _, route := range Routes() {
		method, path := concrete(route)
		for _, query := range []string{"", "?process=true;", "?a=%zz"} {
			for name := range tokens {
				if rights()[route].open || route == "GET /cluster" || route == "POST /admin/drain" {
					continue
				}
				headers := []string{bearer(name), "x-tenant-id: acme", "x-edda-why: test", "x-edda-by: ann", "idempotency-key: m1"}
				for _, f := range []*fakes{direct, behind} {
					f.sent, f.drain, f.mocked = nil, Drain{}, nil
				}
				code, body := call(t, h, method, path+query, bodyOf(route), headers...)
				forwardedCode, forwardedBody := call(t, standby, method, path+query, bodyOf(route), headers...)
				if strings.HasSuffix(path, "/events") && method == "POST" { // its answer has a new id
					body, forwardedBody = "", ""
				}
				if code != forwardedCode || body != forwardedBody {
					t.Errorf("%s%s as %s: %d %.200s\nat the owner: %d %.200s", route, query, name, forwardedCode, forwardedBody, code, body)
				}
				if len(direct.sent) != len(behind.sent) || len(direct.sent) > 0 && direct.sent[0].By != behind.sent[0].By {
					t.Errorf("%s as %s: sent %+v, by the owner %+v", route, name, behind.sent, direct.sent)
				}
			}
		}
	}
}

func TestAStandbyNamesTheCallerAsTheOwnerDoes(t *testing.T) {
	f := ofAcme()
	standby := following(t, &fakeCluster{url: guarded(t, f).URL}, func(o *StandbyOptions) { o.Tokens = keeper(t) })
	if code, body := call(t, standby, "POST", "/v1/instances/order/O1/cancel", "", bearer("operator"), "x-tenant-id: acme", "x-edda-why: test", "x-edda-by: admin-all"); code != 200 || f.sent[0].By != "operator (admin-all)" {
		t.Errorf("%d %s %+v", code, body, f.sent)
	}
}

func TestNobodyWithoutATokenReachesTheOwnerOverAStandby(t *testing.T) {
	var reached atomic.Int32
	standby := following(t, ownedBy(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) }), func(o *StandbyOptions) { o.Tokens = keeper(t) })
	for _, route := range Routes() {
		if rights()[route].open {
			continue
		}
		method, path := concrete(route)
		for _, header := range []string{"X-None: 1", bearer("unknown"), "Authorization: Basic admin-all"} {
			if code, body := call(t, standby, method, path, bodyOf(route), header); code != 401 {
				t.Errorf("%s with %s: %d %s", route, header, code, body)
			}
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d calls reached the owner", n)
	}
}

func TestAStandbyAnswersProbesAndTheClusterItself(t *testing.T) {
	down := ""
	c := &fakeCluster{}
	standby := following(t, c, func(o *StandbyOptions) {
		o.Tokens = keeper(t)
		o.Status = func(context.Context) ProcessStatus {
			return ProcessStatus{NotReady: down, Components: map[string]ComponentStatus{"copy": {State: "up"}}}
		}
	})
	for _, url := range []string{"", "http://127.0.0.1:1"} {
		c.ownedAt(url)
		for _, path := range []string{"/live", "/ready", "/health", "/metrics"} {
			if code, body := call(t, standby, "GET", path, ""); code != 200 {
				t.Errorf("%s with the owner %q: %d %s", path, url, code, body)
			}
		}
		code, body := call(t, standby, "GET", "/cluster", "", bearer("viewer-all"))
		if code != 200 || strings.Contains(body, `"owner":"n1"`) != (url != "") {
			t.Errorf("with the owner %q: %d %s", url, code, body)
		}
		if code, body := call(t, standby, "GET", "/cluster", "", bearer("viewer")); code != 403 {
			t.Errorf("a tenant's token: %d %s", code, body)
		}
	}
	down = "it has no copy of the store yet"
	if code, body := call(t, standby, "GET", "/ready", ""); code != 503 || !strings.Contains(body, down) {
		t.Errorf("%d %s", code, body)
	}
}

// unavailableNow wants a 503 that a client may repeat.
func unavailableNow(t *testing.T, h *httptest.Server, method, path, want string, headers ...string) {
	t.Helper()
	req := testkit.Value[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, h.URL+path, nil))
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	resp := testkit.Value[*http.Response](t)(h.Client().Do(req))
	body := testkit.Value[[]byte](t)(io.ReadAll(resp.Body))
	_ = resp.Body.Close()
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), want) {
		t.Errorf("%s %s: %d %v %s, want 503 and %q", method, path, resp.StatusCode, resp.Header, body, want)
	}
}

func TestWithoutAnOwnerAStandbySaysSo(t *testing.T) {
	c := &fakeCluster{}
	h := following(t, c)
	unavailableNow(t, h, "POST", "/v1/events", "no node of the cluster owns the store now")
	c.ownedAt("n1:8700")
	unavailableNow(t, h, "GET", "/info", "is no URL")
	gone := httptest.NewServer(http.NotFoundHandler())
	c.ownedAt(gone.URL)
	gone.Close()
	for _, method := range []string{"GET", "POST"} { // nothing was sent, so anything may be repeated
		unavailableNow(t, h, method, "/v1/events", gone.URL+", does not answer")
	}
}

// TestACallThatTheOwnerBrokeOffIsNotRepeated unless it only reads.
func TestACallThatTheOwnerBrokeOffIsNotRepeated(t *testing.T) {
	h := following(t, ownedBy(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	unavailableNow(t, h, "GET", "/v1/instances", "does not answer")
	if code, body := call(t, h, "POST", "/v1/events", "{}"); code != 502 || !strings.Contains(body, "not known whether the call was done") {
		t.Errorf("%d %s", code, body)
	}
}

func TestACallMakesOneHop(t *testing.T) {
	a, b := &fakeCluster{}, &fakeCluster{}
	first, second := following(t, a), following(t, b, func(o *StandbyOptions) { o.Node = "n3" })
	a.ownedAt(second.URL)
	b.ownedAt(first.URL)
	unavailableNow(t, first, "GET", "/info", `node \"n2\" has forwarded this call to n3, which does not own the store`)
	unavailableNow(t, first, "GET", "/info", "n2, which does not own", forwardedHeader+": n2")
	unavailableNow(t, first, "GET", "/info", "does not own the store", forwardedHeader+": ")
}

func TestWhatTheOwnerSeesOfAForwardedCall(t *testing.T) {
	var seen *http.Request
	var body string
	c := ownedBy(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		seen, body = r, string(text)
		w.Header().Set("Edda-Backup-Bytes", "5")
		w.WriteHeader(http.StatusTeapot)
	})
	h := following(t, c)
	req := testkit.Value[*http.Request](t)(http.NewRequestWithContext(t.Context(), "PUT", h.URL+"/v1/instances/a%2Fb/%2E?x=%zz;y", strings.NewReader("text")))
	req.Header = http.Header{
		"Authorization": {"Bearer ann"}, "X-Tenant-Id": {"acme", "beta"}, "X-Edda-By": {"ann"}, "Traceparent": {"00-1"}, "Accept-Encoding": {"br"},
		"Connection": {"Edda-Forwarded, X-Mine"}, "X-Mine": {"1"}, "X-Forwarded-For": {"10.0.0.1"}, "Origin": {h.URL}, "Sec-Fetch-Site": {"same-origin"},
	}
	resp := testkit.Value[*http.Response](t)(h.Client().Do(req))
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot || resp.Header.Get("Edda-Backup-Bytes") != "5" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	url, _ := c.Owner()
	if seen.Method != "PUT" || seen.RequestURI != "/v1/instances/a%2Fb/%2E?x=%zz;y" || "http://"+seen.Host != url || body != "text" {
		t.Errorf("%s %s at %s: %s", seen.Method, seen.RequestURI, seen.Host, body)
	}
	for name, want := range map[string]string{
		"Authorization": "[Bearer ann]", "X-Tenant-Id": "[acme beta]", "X-Edda-By": "[ann]", "Traceparent": "[00-1]", "Accept-Encoding": "[br]",
		"Edda-Forwarded": "[n2]", "X-Mine": "[]", "X-Forwarded-For": "[]", "Origin": "[]", "Sec-Fetch-Site": "[same-origin]",
	} {
		if got := fmt.Sprint(seen.Header.Values(name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestAStandbyRefusesWhatTheOwnersGuardRefuses: the owner cannot see the name that a browser knows.
func TestAStandbyRefusesWhatTheOwnersGuardRefuses(t *testing.T) {
	var reached atomic.Int32
	f := newFakes()
	owner := start(t, f)
	c := ownedBy(t, func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		owner.Config.Handler.ServeHTTP(w, r)
	})
	h := following(t, c)
	if code, body := call(t, h, "POST", "/admin/reload", "", "Origin: "+h.URL); code != 200 || reached.Load() != 1 {
		t.Errorf("a page of the standby: %d %s", code, body)
	}
	for _, headers := range [][]string{{"Origin: http://evil.example"}, {"Sec-Fetch-Site: cross-site"}, {"Origin: " + owner.URL}, {"Host: evil.example"}} {
		if code, body := call(t, h, "POST", "/admin/reload", "", headers...); code != 403 && code != 421 || reached.Load() != 1 {
			t.Errorf("%q: %d %s, %d calls", headers, code, body, reached.Load())
		}
	}
	if code, body := call(t, h, "POST", "/v1/events", `{"a":"`+strings.Repeat("x", maxBody)+`"}`); code != 413 {
		t.Errorf("a large body: %d %s", code, body)
	}
}

// TestTheCertificateOfAStandbyGivesACallerNoRight: the owner knows the certificate as an admin's.
func TestTheCertificateOfAStandbyGivesACallerNoRight(t *testing.T) {
	ca := testcerts.New(t)
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	text := access.Entry{Name: "node", Role: access.Admin, Tenants: []string{"*"}, Certificate: "n2.internal"}.Line() +
		access.Entry{Name: "gateway", Role: access.Viewer, Tenants: []string{"*"}, Certificate: "gateway"}.Line() +
		access.Entry{Name: "ann", Role: access.Viewer, Tenants: []string{"*"}, Hash: access.Hash("ann")}.Line()
	testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	book := testkit.Value[*access.Tokens](t)(access.Open(path))
	server, node, gateway, other := ca.Issue(t, "edda"), ca.Issue(t, "n2.internal"), ca.Issue(t, "gateway"), ca.Issue(t, "other")
	owner := serving(t, newFakes(), func(o *Options) { o.Tokens, o.Certificates = book, opened(t, server, ca.File) })
	url := "https://" + owner.Addr()
	standby := follower(t, &fakeCluster{url: url}, func(o *StandbyOptions) {
		o.Addr, o.Tokens, o.Certificates = "127.0.0.1:0", book, opened(t, server, ca.File)
		pair := testkit.Value[tls.Certificate](t)(tls.LoadX509KeyPair(node.Cert, node.Key))
		o.Client = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
		o.Client.RootCAs.AppendCertsFromPEM(testkit.Value[[]byte](t)(os.ReadFile(ca.File)))
	})
	testkit.Must(t, standby.Listen())
	testkit.Run(t, standby.Run)
	at := "https://" + standby.Addr()
	stay := func(c *http.Client) *http.Client {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		return c
	}
	for name, tt := range map[string]struct {
		client  *http.Client
		url     string
		headers []string
		want    int
	}{
		"a token":                                {caller(t, ca, &other), at, []string{bearer("ann")}, 200},
		"nothing":                                {caller(t, ca, &other), at, nil, 401},
		"a wrong token":                          {caller(t, ca, &other), at, []string{bearer("x")}, 401},
		"a certificate is sent to the owner":     {stay(caller(t, ca, &gateway)), at, nil, 307},
		"and the owner answers it":               {caller(t, ca, &gateway), at, nil, 200},
		"the node's certificate, at the owner":   {caller(t, ca, &node), url, nil, 200},
		"the same of a forwarded call":           {caller(t, ca, &node), url, []string{forwardedHeader + ": n2"}, 401},
		"of a forwarded call without a name":     {caller(t, ca, &node), url, []string{forwardedHeader + ": "}, 401},
		"a token of a forwarded call at the end": {caller(t, ca, &node), url, []string{forwardedHeader + ": n2", bearer("ann")}, 200},
	} {
		if code, _ := ask(t, tt.client, tt.url+"/info", tt.headers...); code != tt.want {
			t.Errorf("%s: %d, want %d", name, code, tt.want)
		}
	}
}

func TestAStandbyNeedsItsParts(t *testing.T) {
	for name, o := range map[string]StandbyOptions{
		"no status":     {Options: Options{Cluster: &fakeCluster{}}, Drain: newFakes().Drain},
		"no cluster":    {Status: newFakes().Status, Drain: newFakes().Drain},
		"no drain":      {Options: Options{Cluster: &fakeCluster{}}, Status: newFakes().Status},
		"other machine": {Options: Options{Cluster: &fakeCluster{}, Addr: ":0"}, Status: newFakes().Status, Drain: newFakes().Drain},
	} {
		if _, err := NewStandby(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// streams runs a standby and an owner in a bubble, both with all their times, without a network.
func streams(t *testing.T, owner http.HandlerFunc, test func(t *testing.T, c *fakeCluster, p *pipes, stop func())) {
	t.Helper()
	secured(t, owner, nil, test)
}

// secured is streams with a standby that speaks TLS, unless the configuration is nil.
func secured(t *testing.T, owner http.HandlerFunc, secure *tls.Config, test func(t *testing.T, c *fakeCluster, p *pipes, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &fakeCluster{url: "http://127.0.0.1:1"}
		behind := newPipes()
		o := &http.Server{Handler: owner}
		go func() { _ = o.Serve(behind) }()
		defer func() { _ = o.Close() }()
		s := follower(t, c)
		s.forward.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return behind.dial(), nil }
		p := newPipes()
		s.main.Use(p)
		if secure != nil {
			s.main.Secure(secure)
		}
		stop := testkit.Run(t, s.Run)
		test(t, c, p, stop)
	})
}

// asked makes a request on a connection of its own.
func asked(t *testing.T, p *pipes, method, path string) (net.Conn, *http.Response, error) {
	t.Helper()
	c := p.dial()
	go func() { _, _ = io.WriteString(c, method+" "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") }()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	return c, resp, err
}

// TestAStreamedAnswerOutlivesTheTimesOfAStandby, and each line comes as soon as the owner writes it.
func TestAStreamedAnswerOutlivesTheTimesOfAStandby(t *testing.T) {
	const lines, pause, late = 20, ownerSilence - time.Second, writeTimeout + time.Second
	owner := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sized" {
			w.Header().Set("Content-Length", fmt.Sprint(10*len("line 0\n")+10*len("line 10\n")))
		}
		if r.URL.Path == "/late" {
			time.Sleep(late)
		}
		if got := r.Header.Values("Accept-Encoding"); len(got) > 0 {
			t.Errorf("the standby asks for %q by itself", got)
		}
		for i := range lines {
			if i > 0 {
				select {
				case <-time.After(pause):
				case <-r.Context().Done():
					return
				}
			}
			fmt.Fprintf(w, "line %d\n", i)
			w.(http.Flusher).Flush()
		}
	}
	read := func(t *testing.T, began time.Time, resp *http.Response) {
		t.Helper()
		r := bufio.NewReader(resp.Body)
		for i := range lines {
			line, err := r.ReadString('\n')
			if at := time.Since(began); err != nil || line != fmt.Sprintf("line %d\n", i) || at != time.Duration(i)*pause {
				t.Fatalf("%q %v after %s", line, err, at)
			}
		}
		if _, err := r.ReadByte(); err != io.EOF {
			t.Errorf("after the last line: %v", err)
		}
	}
	for _, path := range []string{"/admin/backup", "/sized"} {
		streams(t, owner, func(t *testing.T, _ *fakeCluster, p *pipes, _ func()) {
			began := time.Now()
			c, resp, err := asked(t, p, "POST", path)
			testkit.Must(t, err)
			defer c.Close()
			read(t, began, resp)
		})
	}
	// HTTP/2 has a timer for the deadline of each answer, which ends an answer that only pauses.
	pair := testcerts.New(t).Issue(t, "edda")
	secure := &tls.Config{Certificates: []tls.Certificate{testkit.Value[tls.Certificate](t)(tls.LoadX509KeyPair(pair.Cert, pair.Key))}, NextProtos: []string{"h2"}}
	secured(t, owner, secure, func(t *testing.T, _ *fakeCluster, p *pipes, _ func()) {
		client := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c := tls.Client(p.dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
			return c, c.HandshakeContext(ctx)
		}, DisableCompression: true}
		defer client.CloseIdleConnections()
		began := time.Now()
		resp, err := client.RoundTrip(testkit.Value[*http.Request](t)(http.NewRequestWithContext(t.Context(), "POST", "https://127.0.0.1/late", nil)))
		testkit.Must(t, err)
		defer resp.Body.Close()
		if resp.ProtoMajor != 2 {
			t.Errorf("it speaks %s", resp.Proto)
		}
		read(t, began.Add(late), resp)
	})
}

func TestAnOwnerThatFallsSilentIsNotWaitedForEver(t *testing.T) {
	streams(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begins" {
			_, _ = io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}, func(t *testing.T, _ *fakeCluster, p *pipes, _ func()) {
		for method, want := range map[string]int{"GET": 503, "POST": 502} {
			began := time.Now()
			c, resp, err := asked(t, p, method, "/v1/instances")
			if took := time.Since(began); err != nil || resp.StatusCode != want || took != ownerAnswer {
				t.Errorf("%s: %v %v after %s", method, resp, err, took)
			}
			_ = c.Close()
		}
		began := time.Now()
		c, resp, err := asked(t, p, "GET", "/begins")
		testkit.Must(t, err)
		defer c.Close()
		text, err := io.ReadAll(resp.Body)
		if took := time.Since(began); string(text) != "begun" || !errors.Is(err, io.ErrUnexpectedEOF) || took != ownerSilence {
			t.Errorf("%q %v after %s", text, err, took)
		}
	})
}

func TestAClientThatReadsNothingOfAForwardedAnswerIsCut(t *testing.T) {
	var ended chan time.Time // a channel of the bubble
	streams(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		time.Sleep(time.Second) // the proxy's first flush ends meanwhile; a wait for its mutex would stop the virtual clock
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				break
			}
		}
		ended <- time.Now()
	}, func(t *testing.T, _ *fakeCluster, p *pipes, _ func()) {
		ended = make(chan time.Time, 1)
		c, resp, err := asked(t, p, "POST", "/admin/backup")
		testkit.Must(t, err)
		defer c.Close()
		_, err = io.ReadFull(resp.Body, make([]byte, len("begun")))
		testkit.Must(t, err)
		began := time.Now()
		if took := (<-ended).Sub(began); resp.StatusCode != 200 || took > stallWait+2*time.Second {
			t.Errorf("%d, written to for %s", resp.StatusCode, took)
		}
	})
}

// TestANewOwnerEndsTheWaitForTheOldOne: a paused owner would else take all room for calls until its answers are late.
func TestANewOwnerEndsTheWaitForTheOldOne(t *testing.T) {
	var reached chan struct{} // of the bubble
	streams(t, func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
	}, func(t *testing.T, c *fakeCluster, p *pipes, _ func()) {
		reached = make(chan struct{})
		began := time.Now()
		go func() {
			<-reached
			c.ownedAt("") // while nobody owns the store, the old owner may come back
			time.Sleep(10 * time.Second)
			c.ownedAt("http://127.0.0.1:2")
		}()
		conn, resp, err := asked(t, p, "GET", "/info")
		testkit.Must(t, err)
		defer conn.Close()
		text, _ := io.ReadAll(resp.Body)
		if took := time.Since(began); resp.StatusCode != 503 || !strings.Contains(string(text), "the store has left its owner at http://127.0.0.1:1") || took < 10*time.Second || took > 10*time.Second+ownerLook {
			t.Errorf("%d %s after %s", resp.StatusCode, text, took)
		}
	})
}

// TestAStandbyEndsAtOnceWhereItsOwnerIsGone: the same process listens on the address as the owner then.
func TestAStandbyEndsAtOnceWhereItsOwnerIsGone(t *testing.T) {
	for name, tt := range map[string]struct {
		gone bool
		code int
		most time.Duration // less than shutdownWait where the calls can be ended at once
	}{
		"no owner":      {true, 503, shutdownWait / 2},
		"owner is well": {false, 200, shutdownWait},
	} {
		t.Run(name, func(t *testing.T) {
			var reached chan struct{} // of the bubble
			streams(t, func(_ http.ResponseWriter, r *http.Request) {
				reached <- struct{}{}
				select {
				case <-r.Context().Done():
				case <-time.After(shutdownWait / 2):
				}
			}, func(t *testing.T, c *fakeCluster, p *pipes, stop func()) {
				reached = make(chan struct{}, 1)
				took := make(chan time.Duration, 1)
				go func() {
					<-reached
					if tt.gone {
						c.ownedAt("")
					}
					began := time.Now()
					stop()
					took <- time.Since(began)
				}()
				conn, resp, err := asked(t, p, "GET", "/info")
				testkit.Must(t, err)
				defer conn.Close()
				if d := <-took; resp.StatusCode != tt.code || d > tt.most {
					t.Errorf("%d, ended after %s", resp.StatusCode, d)
				}
			})
		})
	}
}

func TestTheAddressOfAStandbyIsFreeWhenItHasEnded(t *testing.T) {
	c := ownedBy(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for range 3 {
		s := follower(t, c, func(o *StandbyOptions) { o.Addr = "127.0.0.1:0" })
		testkit.Must(t, s.Listen())
		addr, stop := s.Addr(), testkit.Run(t, s.Run)
		conn := testkit.Value[net.Conn](t)(net.Dial("tcp", addr))
		_, err := io.WriteString(conn, "GET /info HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		testkit.Must(t, err)
		stop()
		again := testkit.Value[*Server](t)(New(Options{Process: newFakes(), Store: newFakes(), DeadLetters: newFakes(), Inbox: newFakes(), Addr: addr}))
		testkit.Must(t, again.Listen())
		testkit.Must(t, again.Close())
		_ = conn.Close()
	}
}

// TestAStandbyDrainsItself: a drain is about the process that is asked, and not about the owner.
func TestAStandbyDrainsItself(t *testing.T) {
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Errorf("%s %s reaches the owner", r.Method, r.URL) }))
	defer owner.Close()
	h := following(t, &fakeCluster{url: owner.URL}, func(o *StandbyOptions) {
		o.Tokens = keeper(t)
		o.Drain = func(_ context.Context, who Operator) Drain { return Drain{Draining: true, Stage: who.By} }
	})
	if code, body := call(t, h, "POST", "/admin/drain", "", bearer("operator-all")); code != 403 {
		t.Errorf("an operator drains a node: %d %s", code, body)
	}
	if code, body := call(t, h, "POST", "/admin/drain", "", bearer("admin-all")); code != 200 || !strings.Contains(body, `"draining":true`) {
		t.Errorf("%d %s", code, body)
	}
}
