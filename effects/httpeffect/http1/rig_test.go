package http1

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	maxIdle   = 512
	maxHeader = 64 << 10
	patience  = 20 * time.Second
)

// transportOf is ours, or that of net/http with the same bounds.
func transportOf(tb testing.TB, name string) http.RoundTripper {
	tb.Helper()
	if name == "http1" {
		return open(tb)
	}
	theirs := &http.Transport{
		DialContext: new(net.Dialer).DialContext, MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader,
	}
	tb.Cleanup(theirs.CloseIdleConnections)
	return theirs
}

func open(tb testing.TB) *Transport {
	tb.Helper()
	return dialling(tb, new(net.Dialer).DialContext)
}

func dialling(tb testing.TB, dial func(context.Context, string, string) (net.Conn, error)) *Transport {
	tb.Helper()
	ours := New(Options{Dial: dial, MaxIdle: maxIdle, MaxIdleTime: time.Minute, MaxHeader: maxHeader})
	tb.Cleanup(ours.CloseIdleConnections)
	return ours
}

// request ends with the test, or when patience does.
func request(t *testing.T, method, address, body string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User-Agent", "edda")
	return req
}

// raw is a server of connections.
type raw struct {
	address string
	listen  net.Listener
	serving sync.WaitGroup // of listen and of each connection
	mu      sync.Mutex     // guards below
	taken   []net.Conn
}

// serveRaw has each connection served by a goroutine; it is closed when that returns.
func serveRaw(t *testing.T, serve func(net.Conn)) *raw {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &raw{address: l.Addr().String(), listen: l}
	s.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.taken = append(s.taken, conn)
			s.mu.Unlock()
			s.serving.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		for _, conn := range s.all() {
			_ = conn.Close()
		}
		s.serving.Wait()
	})
	return s
}

// finish waits until the other sides of all connections have closed them.
func (s *raw) finish() {
	_ = s.listen.Close()
	s.serving.Wait()
}

func (s *raw) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

func (s *raw) all() []net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.taken)
}

// eventually waits for what happens on another goroutine, or at the other side.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

func parse(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
