package httpeffect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/effects"
	"edda/effects/dial"
	"edda/effects/effecttest"
)

// TestMain gives the system a certificate to trust: that of a proxy over TLS.
func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "httpeffect")
	if err != nil {
		panic(err)
	}
	cert, key, err := certificate()
	file := filepath.Join(folder, "ca.pem")
	for _, step := range []func() error{
		func() error { return err },
		func() error { return os.WriteFile(file, []byte(cert), 0o600) },
		func() error { return os.WriteFile(file+".key", []byte(key), 0o600) },
		func() error { return os.Setenv("SSL_CERT_FILE", file) },
	} {
		if err := step(); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// trusted is the certificate of TestMain.
func trusted(t *testing.T) tls.Certificate {
	t.Helper()
	file := os.Getenv("SSL_CERT_FILE")
	pair, err := tls.LoadX509KeyPair(file, file+".key")
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// middleman is a proxy that reaches one server, whatever it is asked for.
type middleman struct {
	*httptest.Server
	server string // host:port

	mu     sync.Mutex // guards below
	asked  []string   // targets
	user   string     // what the last request said
	header http.Header
}

func newMiddleman(t *testing.T, s *shop) *middleman {
	m := &middleman{server: s.Listener.Addr().String()}
	m.Server = httptest.NewUnstartedServer(m)
	m.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are wanted
	t.Cleanup(m.Close)
	return m
}

func (m *middleman) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.asked = append(m.asked, r.Method+" "+r.URL.Host+r.Host)
	m.user, m.header = r.Header.Get("Proxy-Authorization"), r.Header
	m.mu.Unlock()
	if r.Method == http.MethodConnect {
		m.tunnel(w, r)
		return
	}
	out := r.Clone(r.Context())
	out.RequestURI, out.URL.Host = "", m.server
	out.Header.Del("Proxy-Authorization")
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Location", resp.Header.Get("Location"))
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

func (m *middleman) tunnel(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.Host, "refused.test") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	far, err := net.Dial("tcp", m.server)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	near, _, _ := w.(http.Hijacker).Hijack()
	_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
	_ = near.Close()
}

func (m *middleman) requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.asked)
}

// behind is a provider whose environment names the proxy.
func behind(t *testing.T, proxy string, o dial.Options) *Provider {
	t.Helper()
	t.Setenv("HTTP_PROXY", proxy)
	t.Setenv("HTTPS_PROXY", proxy)
	t.Setenv("NO_PROXY", "direct.test")
	names := effecttest.NewNames(t)
	names.Set("public.test", "8.8.8.8")
	names.Set("refused.test", "8.8.8.8")
	names.Set("private.test", "10.0.0.1")
	names.Set("mixed.test", "8.8.8.8 169.254.169.254")
	names.Set("loop.test", "127.0.0.1")
	names.Set("direct.test", "127.0.0.1")
	o.Resolver = names.Resolver()
	return provider(t, o)
}

func TestProxiedTargetsPassTheGuardFirst(t *testing.T) {
	s := open(t)
	m := newMiddleman(t, s)
	m.Start()
	p := behind(t, m.URL, dial.Options{Allow: []string{"inside.test", "*.corp.test:8080", "10.1.0.0/16"}})
	for _, tt := range []struct {
		target string
		want   string
	}{
		{"public.test", answered}, {"PUBLIC.test:8080", answered}, {"8.8.8.8", answered}, {"inside.test", answered}, {"a.corp.test:8080", answered}, {"10.1.2.3", answered},
		{"private.test", never}, {"mixed.test", never}, {"loop.test", never}, {"unknown.test", never}, {"a.corp.test", never}, {"10.2.0.1", never},
		{"169.254.169.254", never}, {"[fd00:ec2::254]", never}, {"[64:ff9b::7f00:1]", never}, {"0.0.0.0", never}, {"2130706433", never}, {"0177.0.0.1", never}, {"0x7f.1", never},
		{"localhost.", never}, {"127.1", never},
	} {
		before := m.requests()
		_, err := call(t, p, map[string]any{"url": "http://" + tt.target + "/charges"})
		if class(err) != tt.want {
			t.Errorf("%s: %s, %v", tt.target, class(err), err)
		}
		if (m.requests() > before) != (tt.want == answered) {
			t.Errorf("%s: the proxy saw %q", tt.target, m.asked[before:])
		}
	}
}

// TestLoopbackNeedsNoProxy: edda dev calls this machine directly, where it may.
func TestLoopbackNeedsNoProxy(t *testing.T) {
	s := open(t)
	m := newMiddleman(t, s)
	m.Start()
	dev, run := behind(t, m.URL, dial.Options{AllowLoopback: true}), behind(t, m.URL, dial.Options{})
	for _, host := range []string{"127.0.0.1", "localhost", "LOCALHOST"} {
		address := strings.Replace(s.URL, "127.0.0.1", host, 1)
		if _, err := call(t, dev, map[string]any{"url": address}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		if _, err := call(t, run, map[string]any{"url": address}); class(err) != never {
			t.Errorf("%s: %s", host, class(err))
		}
	}
	if m.requests() != 0 {
		t.Errorf("the proxy saw %q", m.asked)
	}
}

// TestWithoutAProxyTheGuardDials what NO_PROXY names.
func TestWithoutAProxyTheGuardDials(t *testing.T) {
	s := open(t)
	m := newMiddleman(t, s)
	m.Start()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for _, tt := range []struct {
		o    dial.Options
		want string
	}{{dial.Options{}, never}, {dial.Options{Allow: []string{"direct.test"}}, answered}} {
		if _, err := call(t, behind(t, m.URL, tt.o), map[string]any{"url": "http://direct.test:" + port}); class(err) != tt.want {
			t.Errorf("%+v: %s, %v", tt.o.Allow, class(err), err)
		}
	}
	// the proxy itself is no exception where it is the target
	if _, err := call(t, behind(t, "http://direct.test:"+port, dial.Options{}), map[string]any{"url": "http://direct.test:" + port}); class(err) != never {
		t.Errorf("the proxy's own address: %s", class(err))
	}
	if m.requests() != 0 {
		t.Errorf("the proxy saw %q", m.asked)
	}
}

// TestAHostHeaderDoesNotMislead: a proxy goes by it where it sees the request.
func TestAHostHeaderDoesNotMislead(t *testing.T) {
	s := open(t)
	m := newMiddleman(t, s)
	m.Start()
	p := behind(t, m.URL, dial.Options{})
	config := map[string]any{"url": "http://public.test/", "headers": map[string]any{"host": "169.254.169.254"}}
	if _, err := call(t, p, config); class(err) != never || m.requests() != 0 {
		t.Errorf("%s, %v; the proxy saw %q", class(err), err, m.asked)
	}
	config["headers"] = map[string]any{"host": "Public.test"}
	if _, err := call(t, p, config); err != nil {
		t.Error(err)
	}
}

// TestTunnels: the manifest's tls is for the target, whoever carries it, and
// the proxy's password for the proxy.
func TestTunnels(t *testing.T) {
	s := openTLS(t, &tls.Config{ClientAuth: tls.RequestClientCert})
	cert, key := ours509(t)
	to := map[string]any{"ca": s.ca(), "cert": cert, "key": key, "server_name": "example.com"}
	for _, secure := range []bool{false, true} {
		m := newMiddleman(t, s)
		if secure {
			m.TLS = &tls.Config{Certificates: []tls.Certificate{trusted(t)}, ClientAuth: tls.RequestClientCert, VerifyConnection: func(c tls.ConnectionState) error {
				if len(c.PeerCertificates) > 0 || c.ServerName != "" {
					t.Errorf("the proxy was shown %d certificates and the name %q", len(c.PeerCertificates), c.ServerName)
				}
				return nil
			}}
			m.StartTLS()
		} else {
			m.Start()
		}
		p := behind(t, strings.Replace(m.URL, "://", "://us:s3cret@", 1), dial.Options{})
		for range 3 {
			if _, err := call(t, p, map[string]any{"url": "https://public.test", "tls": to, "headers": map[string]any{"Authorization": "key"}}); err != nil {
				t.Fatalf("secure %t: %v", secure, err)
			}
		}
		if strings.Join(m.asked, " ") != "CONNECT public.test:443public.test:443" || m.user == "" || m.header.Get("Authorization")+m.header.Get("Idempotency-Key") != "" {
			t.Errorf("secure %t: the proxy saw %q, %v", secure, m.asked, m.header)
		}
		if s.last.Header.Get("Proxy-Authorization") != "" || len(s.last.TLS.PeerCertificates) != 1 {
			t.Errorf("secure %t: the target saw %v", secure, s.last.Header)
		}
		if _, err := call(t, p, map[string]any{"url": "https://refused.test"}); class(err) != notSent || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("secure %t: a tunnel that is refused: %s, %v", secure, class(err), err)
		}
		if _, err := call(t, p, map[string]any{"url": "https://private.test"}); class(err) != never {
			t.Errorf("secure %t: a private target: %s, %v", secure, class(err), err)
		}
	}
}

// TestAProxyIsTrustedByTheSystemOnly: the ca of a manifest is for the target.
func TestAProxyIsTrustedByTheSystemOnly(t *testing.T) {
	s := openTLS(t, nil)
	m := newMiddleman(t, s)
	m.StartTLS() // with the certificate of s, which nobody but ca trusts
	_, err := call(t, behind(t, m.URL, dial.Options{}), map[string]any{"url": "https://public.test", "tls": map[string]any{"ca": s.ca()}})
	var untrusted x509.UnknownAuthorityError
	if class(err) != notSent || !strings.Contains(err.Error(), untrusted.Error()[:20]) || m.requests() != 0 {
		t.Errorf("%s: %v", class(err), err)
	}
}

func TestAProxyThatIsDown(t *testing.T) {
	p := behind(t, "http://us:s3cret@"+nobody(t), dial.Options{})
	for _, scheme := range []string{"http", "https"} {
		if _, err := call(t, p, map[string]any{"url": scheme + "://public.test"}); class(err) != notSent || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %s, %v", scheme, class(err), err)
		}
	}
}

func TestRedirectsThroughAProxyPassTheGuard(t *testing.T) {
	s := open(t)
	s.answer = signpost
	m := newMiddleman(t, s)
	m.Start()
	p := behind(t, m.URL, dial.Options{})
	for where, want := range map[string]string{"http://public.test/": answered, "http://private.test/": unknowing, "http://169.254.169.254/": unknowing, "http://127.0.0.1:1/": unknowing} {
		before := m.requests()
		_, err := call(t, p, map[string]any{"method": "GET", "url": strings.Replace(to(s, 302, where), s.URL, "http://public.test", 1), "redirects": 1})
		if class(err) != want {
			t.Errorf("%s: %s, %v", where, class(err), err)
		}
		if n := m.requests() - before; n == 2 != (want == answered) {
			t.Errorf("%s: the proxy saw %d requests", where, n)
		}
	}
}

// TestRebinding: a name that was public, and public for whoever asked first, is
// this machine when it is dialled.
func TestRebinding(t *testing.T) {
	s := open(t)
	names := effecttest.NewNames(t)
	names.Set("rebind.test", "127.0.0.2", "127.0.0.1")
	guard, err := dial.New(dial.Options{Allow: []string{"127.0.0.2/32"}, Resolver: names.Resolver()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.2:"+port(mustParse(t, s.URL)))
	if err != nil {
		t.Fatal(err)
	}
	second := httptest.NewUnstartedServer(s)
	second.Listener = l
	second.Start()
	t.Cleanup(second.Close)
	p := New(Options{Guard: guard})
	t.Cleanup(p.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c := effects.Call{Key: "k", Config: map[string]any{"url": "http://rebind.test:" + port(mustParse(t, s.URL))}}
	if _, err := p.Call(ctx, c); err != nil {
		t.Fatalf("while it is allowed: %v", err)
	}
	p.Close() // a kept connection leads where it was allowed to
	if _, err := p.Call(ctx, c); class(err) != never {
		t.Errorf("%s: %v", class(err), err)
	}
	if n := s.total(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// socks is a SOCKS5 proxy that reaches one server; it gives what it was asked for.
func socks(t *testing.T, server string) (string, chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked, ended := make(chan string, 10), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go relay(near, server, asked)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return "socks5://" + l.Addr().String(), asked
}

// relay speaks RFC 1928, as far as a name and no password need it.
func relay(near net.Conn, server string, asked chan<- string) {
	defer near.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(near, head[:3]); err != nil { // version 5, one method, none
		return
	}
	_, _ = near.Write([]byte{5, 0})
	if _, err := io.ReadFull(near, head); err != nil || head[3] != 3 { // connect, to a name of that length
		return
	}
	name := make([]byte, int(head[4])+2) // and its port
	if _, err := io.ReadFull(near, name); err != nil {
		return
	}
	asked <- string(name[:head[4]])
	far, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer far.Close()
	_, _ = near.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	go func() { _, _ = io.Copy(far, near) }()
	_, _ = io.Copy(near, far)
}

func TestSOCKS(t *testing.T) {
	s := open(t)
	proxy, asked := socks(t, s.Listener.Addr().String())
	p := behind(t, proxy, dial.Options{})
	config := map[string]any{"url": "http://public.test", "headers": map[string]any{"host": "10.0.0.1"}} // which no SOCKS proxy reads
	if _, err := call(t, p, config); err != nil || <-asked != "public.test" || s.last.Host != "10.0.0.1" {
		t.Errorf("%v; the server saw the host %q", err, s.last.Host)
	}
	if _, err := call(t, p, map[string]any{"url": "http://private.test"}); class(err) != never || len(asked) != 0 {
		t.Errorf("%s: %v", class(err), err)
	}
}
