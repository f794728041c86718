package httpeffect

import (
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/effects/dial"
)

func TestTLS(t *testing.T) {
	s, picky := openTLS(t, nil), openTLS(t, &tls.Config{ClientAuth: tls.RequireAnyClientCert})
	old := openTLS(t, &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12})
	cert, key := ours509(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	for _, tt := range []struct {
		name string
		at   *shop
		tls  any
		want string
	}{
		{"nobody trusts it", s, nil, notSent},
		{"another ca", s, map[string]any{"ca": cert}, notSent},
		{"its ca", s, map[string]any{"ca": s.ca()}, answered},
		{"its name", s, map[string]any{"ca": s.ca(), "server_name": "example.com"}, answered},
		{"another name", s, map[string]any{"ca": s.ca(), "server_name": "pay.example"}, notSent},
		{"no certificate of ours, before TLS 1.3", old, map[string]any{"ca": old.ca()}, notSent},
		{"a certificate of ours", picky, map[string]any{"ca": picky.ca(), "cert": cert, "key": key}, answered},
		{"one, before TLS 1.3", old, map[string]any{"ca": old.ca(), "cert": cert, "key": key}, answered},
		{"no ca in PEM", s, map[string]any{"ca": "/etc/ca.pem"}, never},
		{"no map", s, "system", never},
	} {
		config := map[string]any{"url": tt.at.URL, "body": 1}
		if tt.tls != nil {
			config["tls"] = tt.tls
		}
		if _, err := call(t, p, config); class(err) != tt.want {
			t.Errorf("%s: %s, %v", tt.name, class(err), err)
		}
	}
	// TLS 1.3 refuses us after the handshake: whether before or after something was sent is a race
	before := picky.total()
	if _, err := call(t, p, map[string]any{"url": picky.URL, "body": 1, "tls": map[string]any{"ca": picky.ca()}}); class(err) != notSent && class(err) != unknown || picky.total() != before {
		t.Errorf("no certificate of ours: %s, %v", class(err), err)
	}
	if n := len(picky.last.TLS.PeerCertificates); n != 1 {
		t.Errorf("the other side saw %d certificates", n)
	}
}

func TestConnectionsAreReused(t *testing.T) {
	plain, secure := open(t), openTLS(t, nil)
	p := provider(t, dial.Options{AllowLoopback: true})
	for range 10 {
		for _, config := range []map[string]any{{"url": plain.URL}, {"url": secure.URL, "tls": map[string]any{"ca": secure.ca()}}} {
			if _, err := call(t, p, config); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(plain.conns) != 1 || len(secure.conns) != 1 || secure.last.Proto != "HTTP/2.0" {
		t.Errorf("%d and %d connections for ten calls each, over %s", len(plain.conns), len(secure.conns), secure.last.Proto)
	}
}

// TestEffectsOfOneHostMadeConnectionsAnew: three effects call one host, each 64 times
// at once, and each of those calls needs a connection of its own.
func TestEffectsOfOneHostMadeConnectionsAnew(t *testing.T) {
	const atOnce, rounds = 3 * 64, 3
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	for range rounds {
		var together, all sync.WaitGroup
		together.Add(atOnce)
		s.answer = func(http.ResponseWriter, *http.Request) {
			together.Done()
			together.Wait()
		}
		for range atOnce {
			all.Go(func() {
				if _, err := call(t, p, map[string]any{"url": s.URL}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if n := len(s.conns); n != atOnce {
		t.Errorf("%d connections for %d calls at once, %d times", n, atOnce, rounds)
	}
}

// TestTransportsAreBounded: the one used longest ago is closed.
func TestTransportsAreBounded(t *testing.T) {
	s := newShop(t)
	closed := make(chan string, 2*maxTransports)
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- c.RemoteAddr().String()
		}
	}
	s.StartTLS()
	p := provider(t, dial.Options{AllowLoopback: true})
	use := func(i int) string {
		t.Helper()
		name := fmt.Sprintf("a%d.example.com", i) // the certificate is for *.example.com as well
		if _, err := call(t, p, map[string]any{"url": s.URL, "tls": map[string]any{"ca": s.ca(), "server_name": name}}); err != nil {
			t.Fatal(err)
		}
		return s.last.RemoteAddr
	}
	first, second := use(0), use(1)
	for i := 2; i < maxTransports; i++ {
		use(i)
	}
	if use(0) != first {
		t.Error("a transport that fits was not kept")
	}
	use(maxTransports)
	select {
	case got := <-closed:
		if got != second {
			t.Errorf("closed %s, want that used longest ago, %s", got, second)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was closed")
	}
	if use(0) != first || len(p.transports.kept) != maxTransports || p.transports.order.Len() != maxTransports {
		t.Errorf("%d transports are kept of %d", len(p.transports.kept), maxTransports)
	}
	p.Close()
	if len(p.transports.kept) != 0 {
		t.Errorf("%d transports after the end", len(p.transports.kept))
	}
}

func TestTransportsAreFoundAtOnce(t *testing.T) {
	p := provider(t, dial.Options{AllowLoopback: true})
	var all sync.WaitGroup
	for i := range 4 * maxTransports {
		all.Go(func() {
			if _, err := p.transports.find(map[string]any{"server_name": fmt.Sprint(i % (2 * maxTransports))}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(p.transports.kept); n != maxTransports {
		t.Errorf("%d transports", n)
	}
}

// TestNothingIsSentTwice: net/http sends again by itself over another
// connection what it sent over a kept one that broke, for these methods, or
// under an Idempotency-Key.
func TestNothingIsSentTwice(t *testing.T) {
	for _, method := range methods() {
		for _, body := range []any{nil, "x"} {
			s := open(t)
			s.answer = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/break" {
					conn, _, _ := w.(http.Hijacker).Hijack()
					conn.Close()
				}
			}
			p := provider(t, dial.Options{AllowLoopback: true})
			config := map[string]any{"method": method, "url": s.URL}
			if body != nil {
				config["body"] = body
			}
			if _, err := call(t, p, config); err != nil {
				t.Fatal(err)
			}
			config["url"] = s.URL + "/break"
			_, err := call(t, p, config)
			if class(err) != unknown {
				t.Errorf("%s with %v: %s, %v", method, body, class(err), err)
			}
			if n := s.total(); n != 2 {
				t.Errorf("%s with %v: %d requests for two calls", method, body, n)
			}
		}
	}
}

// TestAnswersAreBoundedAfterUnpacking, and not read to an end that never comes.
func TestAnswersAreBoundedAfterUnpacking(t *testing.T) {
	s := open(t)
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.CopyN(z, zeros{}, 2*maxAnswer)
		_ = z.Flush()
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	_, err := call(t, provider(t, dial.Options{AllowLoopback: true}), map[string]any{"url": s.URL})
	if class(err) != unknowing || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("%s: %v", class(err), err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestHeadersAreBounded(t *testing.T) {
	s := open(t)
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		for i := range 100 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", maxHeaders/50))
		}
	}
	if _, err := call(t, provider(t, dial.Options{AllowLoopback: true}), map[string]any{"url": s.URL}); class(err) != unknown {
		t.Errorf("%s: %v", class(err), err)
	}
}
