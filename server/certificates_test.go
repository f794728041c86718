package server

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda/access"
	"edda/internal/testcerts"
	"edda/internal/testkit"
)

// serving runs a server with TLS until the test ends.
func serving(t *testing.T, f *fakes, change func(*Options)) *Server {
	t.Helper()
	o := Options{Addr: "127.0.0.1:0", Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f}
	change(&o)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	testkit.Run(t, s.Run)
	return s
}

// caller is a client that trusts an authority, and shows a certificate if it has one.
func caller(t *testing.T, ca *testcerts.Authority, mine *testcerts.Pair) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AppendCertsFromPEM(pem)
	if mine != nil {
		pair, err := tls.LoadX509KeyPair(mine.Cert, mine.Key)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask makes a request; 0 means that no answer came.
func ask(t *testing.T, c *http.Client, url string, headers ...string) (int, *tls.ConnectionState) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil
	}
	resp.Body.Close()
	return resp.StatusCode, resp.TLS
}

func opened(t *testing.T, p testcerts.Pair, clientCA string) *Certificates {
	t.Helper()
	c, err := OpenCertificates(p.Cert, p.Key, clientCA, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOverTLS(t *testing.T) {
	ca := testcerts.New(t)
	certs := opened(t, ca.Issue(t, "edda"), "")
	s := serving(t, ofAcme(), func(o *Options) { o.Tokens, o.Certificates = keeper(t), certs })
	url := "https://" + s.Addr() + "/v1/instances"
	if code, state := ask(t, caller(t, ca, nil), url, bearer("viewer"), "x-tenant-id: acme"); code != 200 || state.NegotiatedProtocol != "h2" {
		t.Errorf("%d %+v", code, state)
	}
	if code, _ := ask(t, caller(t, ca, nil), url, "x-tenant-id: acme"); code != 401 {
		t.Errorf("without a token: %d", code)
	}
	if code, _ := ask(t, caller(t, testcerts.New(t), nil), url, bearer("viewer")); code != 0 {
		t.Errorf("a client that trusts another authority: %d", code)
	}
	if code, _ := ask(t, http.DefaultClient, strings.Replace(url, "https", "http", 1), bearer("viewer"), "x-tenant-id: acme"); code != 400 {
		t.Errorf("in the clear: %d", code)
	}
	old := caller(t, ca, nil)
	old.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS11
	if code, _ := ask(t, old, url, bearer("viewer"), "x-tenant-id: acme"); code != 0 {
		t.Errorf("TLS 1.1: %d", code)
	}
}

func TestMutualTLS(t *testing.T) {
	ca, stranger := testcerts.New(t), testcerts.New(t)
	certs := opened(t, ca.Issue(t, "edda"), ca.File)
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write := func(name string) {
		text := access.Entry{Name: "gateway", Role: access.Viewer, Tenants: []string{"acme"}, Certificate: name}.Line() +
			access.Entry{Name: "ann", Role: access.Viewer, Tenants: []string{"beta"}, Hash: access.Hash("ann")}.Line()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("gateway.internal")
	book, err := access.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s := serving(t, ofAcme(), func(o *Options) { o.Tokens, o.Certificates = book, certs })
	url := "https://" + s.Addr() + "/v1/instances"
	gateway, other := ca.Issue(t, "gateway.internal"), ca.Issue(t, "someone")
	forged := stranger.Issue(t, "gateway.internal")
	for name, tt := range map[string]struct {
		pair    *testcerts.Pair
		headers []string
		want    int
	}{
		"trusted":                       {&gateway, []string{"x-tenant-id: acme"}, 200},
		"for another tenant":            {&gateway, []string{"x-tenant-id: beta"}, 403},
		"a token goes first":            {&gateway, []string{"x-tenant-id: beta", bearer("ann")}, 200},
		"a wrong token is no passage":   {&gateway, []string{"x-tenant-id: acme", bearer("nobody")}, 401},
		"verified but not known":        {&other, []string{"x-tenant-id: acme"}, 401},
		"verified, and a token":         {&other, []string{"x-tenant-id: beta", bearer("ann")}, 200},
		"the name by another authority": {&forged, []string{"x-tenant-id: acme"}, 0},
		"no certificate but a token":    {nil, []string{"x-tenant-id: beta", bearer("ann")}, 0},
		"a header that says who one is": {&other, []string{"x-tenant-id: acme", "X-Client-Cert: gateway.internal"}, 401},
	} {
		if code, _ := ask(t, caller(t, ca, tt.pair), url, tt.headers...); code != tt.want {
			t.Errorf("%s: %d, want %d", name, code, tt.want)
		}
	}
	write("someone")
	if err := book.Reload(); err != nil {
		t.Fatal(err)
	}
	if code, _ := ask(t, caller(t, ca, &gateway), url, "x-tenant-id: acme"); code != 401 {
		t.Errorf("revoked: %d", code)
	}
}

// Without client_ca a client may send any certificate; nobody verified it, so it
// is nobody's.
func TestACertificateThatNobodyVerifiedIsNobodys(t *testing.T) {
	ca := testcerts.New(t)
	pair := ca.Issue(t, "gateway.internal")
	leaf, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf.Leaf}}}
	if names := certified(r); names != nil {
		t.Errorf("%q", names)
	}
	r.TLS.VerifiedChains = [][]*x509.Certificate{{leaf.Leaf}}
	if names := certified(r); len(names) == 0 || names[0] != "gateway.internal" {
		t.Errorf("%q", names)
	}
}

func TestCertificatesAreRenewed(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	ca := testcerts.New(t)
	pair := ca.Issue(t, "first")
	certs, err := OpenCertificates(pair.Cert, pair.Key, "", zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	s := serving(t, ofAcme(), func(o *Options) { o.Certificates = certs })
	shown := func() string {
		t.Helper()
		code, state := ask(t, caller(t, ca, nil), "https://"+s.Addr()+"/live")
		if code != 200 {
			t.Fatalf("%d", code)
		}
		return state.PeerCertificates[0].Subject.CommonName
	}
	ca.IssueInto(t, "second", pair)
	if got := shown(); got != "first" {
		t.Errorf("%s is shown before its time", got)
	}
	if err := certs.Reload(); err != nil || shown() != "second" {
		t.Errorf("after a reload: %s %v", shown(), err)
	}
	aged := func() { certs.mu.Lock(); certs.read = time.Now().Add(-2 * certificateAge); certs.mu.Unlock() }
	ca.IssueInto(t, "third", pair)
	if aged(); shown() != "third" {
		t.Error("without a reload: the old one is shown")
	}
	if err := os.WriteFile(pair.Cert, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if aged(); shown() != "third" || logs.FilterMessageSnippet("not renewed").Len() != 1 {
		t.Errorf("a broken file: %v", logs.All())
	}
	if err := certs.Reload(); err == nil || shown() != "third" {
		t.Errorf("reload of a broken file: %v", err)
	}
}

func TestCertificatesThatCannotBeUsedAreRefused(t *testing.T) {
	ca := testcerts.New(t)
	pair, other, large := ca.Issue(t, "a"), ca.Issue(t, "b"), ca.Issue(t, "c")
	if err := os.Truncate(large.Cert, 1<<20+1); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string][3]string{
		"no key": {pair.Cert, "", ""}, "no certificate": {"", pair.Key, ""}, "missing": {pair.Cert, pair.Key + "x", ""}, "more than any certificate": {large.Cert, large.Key, ""},
		"another's key": {pair.Cert, other.Key, ""}, "missing authorities": {pair.Cert, pair.Key, ca.File + "x"}, "a key as authorities": {pair.Cert, pair.Key, pair.Key},
	} {
		if _, err := OpenCertificates(files[0], files[1], files[2], zap.NewNop()); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
