package httpserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

const soon = 20 * time.Second // a busy machine may take that long for what takes no time

// site is a server whose callers are known by their token, until the test ends.
type site struct {
	*Server
	inside chan struct{} // told when a request for /wait has begun
	leave  chan struct{} // lets one of them end
}

func openSite(t *testing.T, o Options, secure *tls.Config) *site {
	t.Helper()
	s := &site{inside: make(chan struct{}, 100), leave: make(chan struct{})}
	s.Server = New("127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "mine" {
			Authenticated(r.Context())
			Authenticated(r.Context()) // again is no harm
		}
		switch r.URL.Path {
		case "/wait":
			s.inside <- struct{}{}
			<-s.leave
		case "/endless":
			s.inside <- struct{}{}
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}
		_, _ = io.WriteString(w, "ok")
	}), o)
	if secure != nil {
		s.Secure(secure)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		close(s.leave)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// dial opens a connection and asks on it, as one who is known or not.
func (s *site) dial(t *testing.T, path string, known bool) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	send(t, c, path, known)
	return c
}

func send(t *testing.T, c net.Conn, path string, known bool) {
	t.Helper()
	token := ""
	if known {
		token = "Authorization: mine\r\n"
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n", path, token); err != nil {
		t.Fatal(err)
	}
}

// ok reads an answer.
func ok(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(soon))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "ok" {
		t.Fatalf("answered %q %v", text, err)
	}
}

// cut wants the other side to have closed the connection.
func cut(t *testing.T, c net.Conn, what string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(soon))
	if n, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("%s is still open: %d bytes, %v", what, n, err)
	}
}

// open wants the connection to answer still.
func stays(t *testing.T, c net.Conn, known bool) {
	t.Helper()
	send(t, c, "/", known)
	ok(t, c)
}

// settled waits until so many connections are open and anonymous.
func (s *site) settled(t *testing.T, open, anonymous int) {
	t.Helper()
	l := s.listener.(*connections)
	for until := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		o, a := l.count()
		if o == open && a == anonymous {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d open, %d anonymous: want %d and %d", o, a, open, anonymous)
		}
	}
}

// quiet waits until the server knows that no anonymous connection is at work. Its state changes after the
// client has read the answer, perhaps only when the next client is there.
func (s *site) quiet(t *testing.T) {
	t.Helper()
	l := s.listener.(*connections)
	for until := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		active := 0
		l.mu.Lock()
		for e := l.strangers.Front(); e != nil; e = e.Next() {
			if e.Value.(*conn).active {
				active++
			}
		}
		l.mu.Unlock()
		if active == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d anonymous connections are at work", active)
		}
	}
}

// rests waits until so many connections are idle. A client may read its answer before the
// server knows that the connection is idle.
func (s *site) rests(t *testing.T, idle int) {
	t.Helper()
	l := s.listener.(*connections)
	for until := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		n := l.idle.Len()
		l.mu.Unlock()
		if n == idle {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d connections are idle, want %d", n, idle)
		}
	}
}

func TestTheConnectionThatIsIdleLongestIsClosedForTheNext(t *testing.T) {
	s := openSite(t, Options{Connections: 4, Anonymous: 4}, nil)
	var idle []net.Conn
	for range 4 {
		c := s.dial(t, "/", true)
		ok(t, c)
		idle = append(idle, c)
		s.rests(t, len(idle))
	}
	stays(t, idle[0], true) // it is the youngest again
	s.rests(t, 4)
	ok(t, s.dial(t, "/", true))
	cut(t, idle[1], "the longest idle one")
	for _, i := range []int{0, 2, 3} {
		stays(t, idle[i], true)
	}
	if n := testutil.ToFloat64(s.closed.WithLabelValues(closedFull)); n != 1 {
		t.Errorf("%v were closed", n)
	}
}

func TestAnonymousConnectionsGoBeforeThoseOfCallers(t *testing.T) {
	s := openSite(t, Options{Connections: 3, Anonymous: 3}, nil)
	known := s.dial(t, "/", true)
	ok(t, known)
	s.settled(t, 1, 0)
	silent, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s.settled(t, 2, 1)
	probe := s.dial(t, "/", false)
	ok(t, probe)
	s.settled(t, 3, 2)
	ok(t, s.dial(t, "/", false))
	cut(t, silent, "the silent one")
	stays(t, known, true)
	stays(t, probe, false)
}

func TestAnonymousConnectionsHaveABoundOfTheirOwn(t *testing.T) {
	s := openSite(t, Options{Connections: 100, Anonymous: 2}, nil)
	var all []net.Conn
	for i := range 5 {
		c := s.dial(t, "/", false)
		ok(t, c)
		all = append(all, c)
		s.quiet(t)
		s.settled(t, min(i+1, 2), min(i+1, 2))
	}
	for _, c := range all[:3] {
		cut(t, c, "an old one")
	}
	if n := testutil.ToFloat64(s.closed.WithLabelValues(closedAnonymous)); n != 3 {
		t.Errorf("%v were closed", n)
	}
}

func TestACallerBecomesAnonymousWithItsNextRequest(t *testing.T) {
	s := openSite(t, Options{Connections: 10, Anonymous: 1}, nil)
	c := s.dial(t, "/", true)
	ok(t, c)
	s.settled(t, 1, 0)
	stays(t, c, false)
	s.settled(t, 1, 1)
	ok(t, s.dial(t, "/", true))
	cut(t, c, "the one whose last request showed no token")
}

func TestWhatWorksForACallerIsNotCutForAnother(t *testing.T) {
	s := openSite(t, Options{Connections: 2, Anonymous: 2, AnonymousWait: time.Second}, nil)
	working := s.dial(t, "/wait", true)
	<-s.inside
	s.settled(t, 1, 0)
	for range 10 {
		ok(t, s.dial(t, "/", false))
	}
	silent, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cut(t, silent, "an anonymous one that came after it") // so it has lasted longer than they may
	s.leave <- struct{}{}
	ok(t, working)
}

func TestAnAnswerThatAnAnonymousClientDoesNotReadBlocksNobody(t *testing.T) {
	s := openSite(t, Options{Connections: 3, Anonymous: 3}, nil)
	var stuck []net.Conn
	for range 3 {
		stuck = append(stuck, s.dial(t, "/endless", false))
		<-s.inside
	}
	ok(t, s.dial(t, "/", true))
	cut(t, stuck[0], "the first")
}

func TestAnonymousConnectionsAreCutInTime(t *testing.T) {
	s := openSite(t, Options{AnonymousWait: 50 * time.Millisecond}, nil)
	known := s.dial(t, "/", true)
	ok(t, known)
	silent, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cut(t, silent, "a silent one")
	endless := s.dial(t, "/endless", false)
	<-s.inside
	cut(t, endless, "one that is being answered")
	body, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	_, _ = io.WriteString(body, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n1")
	cut(t, body, "one whose body does not come")
	stays(t, known, true)
}

func TestConnectionsOverTLSAreCountedAsOthers(t *testing.T) {
	for name, protocols := range map[string][]string{"HTTP/1.1": {"http/1.1"}, "HTTP/2": {"h2"}} {
		t.Run(name, func(t *testing.T) {
			origin := httptest.NewTLSServer(nil) // for its certificate
			defer origin.Close()
			secure := &tls.Config{Certificates: origin.TLS.Certificates, NextProtos: protocols, MinVersion: tls.VersionTLS12}
			s := openSite(t, Options{Connections: 2, Anonymous: 2}, secure)
			client := origin.Client()
			client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
			ask := func(path string, known bool) error {
				r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+s.Addr()+path, nil)
				if err != nil {
					return err
				}
				if known {
					r.Header.Set("Authorization", "mine")
				}
				resp, err := client.Do(r)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if string(text) != "ok" || resp.Proto[:len(name)] != name {
					return fmt.Errorf("%s %q %w", resp.Proto, text, err)
				}
				return nil
			}
			waited := make(chan error, 1)
			go func() { waited <- ask("/wait", true) }()
			<-s.inside
			s.settled(t, 1, 0)
			for range 5 {
				half, err := net.Dial("tcp", s.Addr()) // a handshake that never comes
				if err != nil {
					t.Fatal(err)
				}
				defer half.Close()
			}
			if err := ask("/", true); err != nil {
				t.Error(err)
			}
			s.leave <- struct{}{}
			if err := <-waited; err != nil {
				t.Errorf("the one that worked: %v", err)
			}
		})
	}
}

func TestAServerShowsItsConnections(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := openSite(t, Options{Name: "api", Metrics: reg}, nil)
	s2 := openSite(t, Options{Name: "probes", Metrics: reg}, nil) // two servers of one process
	ok(t, s.dial(t, "/", true))
	ok(t, s2.dial(t, "/", false))
	s.settled(t, 1, 0)
	s2.settled(t, 1, 1)
	want := `# HELP edda_http_connections Open connections of each HTTP server: anonymous ones, and those of callers who are known.
# TYPE edda_http_connections gauge
edda_http_connections{server="api",who="anonymous"} 0
edda_http_connections{server="api",who="known"} 1
edda_http_connections{server="probes",who="anonymous"} 1
edda_http_connections{server="probes",who="known"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "edda_http_connections"); err != nil {
		t.Error(err)
	}
}
