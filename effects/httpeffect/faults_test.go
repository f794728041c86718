package httpeffect

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"edda/effects"
	"edda/effects/dial"
	"edda/effects/effecttest"
)

// TestFaults breaks the network between the call and a server that would answer it.
func TestFaults(t *testing.T) {
	s, secure := open(t), openTLS(t, nil)
	f, overTLS := effecttest.NewFaults(t, s.Listener.Addr().String()), effecttest.NewFaults(t, secure.Listener.Addr().String())
	const short, long = 100 * time.Millisecond, 10 * time.Second
	for _, tt := range []struct {
		name    string
		fault   func(*effecttest.Faults)
		timeout time.Duration
		want    string // over http
		tls     string // over https, where the handshake breaks first
		seen    bool   // over http
	}{
		{"none", (*effecttest.Faults).None, long, answered, answered, true},
		{"slow", func(f *effecttest.Faults) { f.SlowAnswers(time.Minute) }, short, unknown, notSent, true},
		{"half-open, no requests", (*effecttest.Faults).NoRequests, short, unknown, notSent, false},
		{"half-open, no answers", (*effecttest.Faults).NoAnswers, short, unknown, notSent, true},
		{"reset on requests", (*effecttest.Faults).ResetRequests, long, unknown, notSent, false},
		{"reset on answers", (*effecttest.Faults).ResetAnswers, long, unknown, notSent, true},
		{"cut", func(f *effecttest.Faults) { f.CutAnswers(100) }, long, unknown, notSent, true},
		{"down", (*effecttest.Faults).Down, long, notSent, notSent, false},
	} {
		tt.fault(f)
		tt.fault(overTLS)
		key := "key of " + tt.name
		if got := through(t, key, tt.timeout, map[string]any{"url": "http://" + f.Address()}); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		for deadline := time.Now().Add(long); tt.seen && s.count(key) == 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if n := s.count(key); n > 1 || (n == 1) != tt.seen {
			t.Errorf("%s: the server saw %d requests of one call", tt.name, n)
		}
		if got := through(t, key, tt.timeout, map[string]any{"url": "https://" + overTLS.Address(), "tls": map[string]any{"ca": secure.ca()}}); got != tt.tls {
			t.Errorf("%s, over TLS: %s, want %s", tt.name, got, tt.tls)
		}
	}
}

// through is what comes of a call over a connection of its own.
func through(t *testing.T, key string, timeout time.Duration, config map[string]any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := provider(t, dial.Options{AllowLoopback: true}).Call(ctx, effects.Call{Key: key, Config: config})
	return class(err)
}

// TestFaultsOnAKeptConnection breaks it between two calls, or in the second.
func TestFaultsOnAKeptConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		fault func(*effecttest.Faults)
		want  string
	}{
		"no answers":       {(*effecttest.Faults).NoAnswers, unknown},
		"no requests":      {(*effecttest.Faults).NoRequests, unknown},
		"reset on answers": {(*effecttest.Faults).ResetAnswers, unknown},
		"cut":              {func(f *effecttest.Faults) { f.CutAnswers(10) }, unknown},
	} {
		plain, secure := open(t), openTLS(t, nil)
		for _, s := range []*shop{plain, secure} {
			f := effecttest.NewFaults(t, s.Listener.Addr().String())
			p := provider(t, dial.Options{AllowLoopback: true})
			config := map[string]any{"url": "http://" + f.Address()}
			if s == secure {
				config = map[string]any{"url": "https://" + f.Address(), "tls": map[string]any{"ca": s.ca()}}
			}
			if _, err := call(t, p, config); err != nil {
				t.Fatal(err)
			}
			tt.fault(f)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := p.Call(ctx, effects.Call{Key: "second", Config: config}); class(err) != tt.want {
				t.Errorf("%s to %s: %s, %v", name, s.URL, class(err), err)
			}
			if n := s.count("second"); n > 1 {
				t.Errorf("%s to %s: sent %d times", name, s.URL, n)
			}
		}
	}
}

// TestAServerThatIsGoneWasNotCalled, although there was a connection to it. A span hides
// that no more than it hides an answer.
func TestAServerThatIsGoneWasNotCalled(t *testing.T) {
	o := dial.Options{AllowLoopback: true}
	traced, _ := tracing(t, o)
	for name, p := range map[string]*Provider{"plain": provider(t, o), "traced": traced} {
		address, leave := leaving(t)
		config := map[string]any{"url": "http://" + address}
		if _, err := call(t, p, config); err != nil {
			t.Fatal(err)
		}
		leave()
		if _, err := call(t, p, config); class(err) != notSent {
			t.Errorf("%s: %s, %v", name, class(err), err)
		}
	}
}

// leaving answers one request and keeps the connection. It leaves once its end is with
// the other side, which that of a proxy's connections need not be.
func leaving(t *testing.T) (address string, leave func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = http.ReadRequest(bufio.NewReader(conn))
		}
		if err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		if err != nil {
			t.Error(err)
		}
		taken <- conn
	}()
	return l.Addr().String(), func() {
		_ = l.Close()
		conn := (<-taken).(*net.TCPConn)
		_ = conn.SetLinger(10) // seconds at most, for the other side to say that it has the end
		_ = conn.Close()
	}
}

// TestATruncatedAnswerIsNoSuccess cuts an answer after each byte of its body.
func TestATruncatedAnswerIsNoSuccess(t *testing.T) {
	for _, how := range []string{"length", "chunked", "gzip", "gzip with a length", "to the end"} {
		s := open(t)
		s.answer = func(w http.ResponseWriter, _ *http.Request) { speak(w, how) }
		whole := wire(t, s)
		f := effecttest.NewFaults(t, s.Listener.Addr().String())
		f.CutAnswers(int64(len(whole)))
		config := map[string]any{"method": "GET", "url": "http://" + f.Address()}
		if got := through(t, "whole", 10*time.Second, config); got != answered {
			t.Fatalf("%s: all of the answer: %s", how, got)
		}
		head := strings.Index(whole, "\r\n\r\n")
		for n := 1; n < len(whole); n++ {
			if n < head && n%20 != 0 {
				continue // one place in the headers is like another
			}
			f.CutAnswers(int64(n))
			if got := through(t, "cut", 10*time.Second, config); got != unknown {
				t.Errorf("%s: %d bytes of %d, %q: %s", how, n, len(whole), whole[:n], got)
			}
		}
	}
}

const spoken = `{"id":"P1","paid":true}`

// speak answers with JSON, whose end is told in one way or another.
func speak(w http.ResponseWriter, how string) {
	w.Header().Set("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
	switch how {
	case "length":
		fmt.Fprint(w, spoken)
	case "chunked":
		fmt.Fprint(w, spoken[:9])
		_ = http.NewResponseController(w).Flush()
		fmt.Fprint(w, spoken[9:])
	case "gzip", "gzip with a length":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, spoken)
		if how == "gzip" {
			_ = z.Flush()
			_ = http.NewResponseController(w).Flush()
		}
		_ = z.Close()
	case "to the end":
		conn, _, _ := w.(http.Hijacker).Hijack()
		fmt.Fprint(conn, "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"+spoken)
		_ = conn.Close()
	}
}

// wire is what the server writes to a connection.
func wire(t *testing.T, s *shop) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req, _ := http.NewRequest(http.MethodGet, s.URL, nil)
	req.Header.Set("Accept-Encoding", "gzip")
	req.Close = true
	out, _ := httputil.DumpRequestOut(req, false)
	if _, err := conn.Write(out); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	if _, err := fmt.Fprint(&all, readAll(t, conn)); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(all.String(), "Connection: close\r\n", "")
}

func readAll(t *testing.T, conn net.Conn) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	var all []byte
	for buffer := make([]byte, 4096); ; {
		n, err := conn.Read(buffer)
		all = append(all, buffer[:n]...)
		if err != nil {
			return string(all)
		}
	}
}

// TestAnAnswerThatIsNoHTTPShowsNothingOfIt: it may be the request, sent back.
func TestAnAnswerThatIsNoHTTPShowsNothingOfIt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4096)
			n, _ := conn.Read(buffer)
			_, _ = conn.Write(buffer[:n])
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	_, err = call(t, provider(t, dial.Options{AllowLoopback: true}), map[string]any{"url": "http://" + l.Addr().String() + "/s3cret", "headers": map[string]any{"A": "s3cret"}})
	if class(err) != unknown || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%s: %v", class(err), err)
	}
}
