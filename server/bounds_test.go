package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	"edda/engine"
	"edda/internal/testkit"
)

// pipes is a listener without a network, so that a test runs in virtual time.
type pipes struct {
	calls chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{calls: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (p *pipes) dial() net.Conn { mine, theirs := net.Pipe(); p.calls <- theirs; return mine }

// slow runs a test against the API's own HTTP server, with all its times, in a bubble.
func slow(t *testing.T, f *fakes, test func(t *testing.T, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f, Tenant: "default"})
		if err != nil {
			t.Fatal(err)
		}
		p := newPipes()
		s.main.Use(p)
		testkit.Run(t, s.main.Run)
		test(t, p)
	})
}

// cut tells how long a client that trickles is listened to.
func cut(c net.Conn, first string, pause time.Duration, again string) time.Duration {
	defer c.Close()
	began := time.Now()
	closed := make(chan struct{})
	go func() { defer close(closed); _, _ = io.Copy(io.Discard, c) }()
	go func() {
		if _, err := io.WriteString(c, first); err != nil {
			return
		}
		for {
			select {
			case <-time.After(pause):
			case <-closed:
				return
			}
			if _, err := io.WriteString(c, again); err != nil {
				return
			}
		}
	}()
	<-closed
	return time.Since(began)
}

func TestClientsThatTrickleAreCut(t *testing.T) {
	for name, tt := range map[string]struct {
		first, again string
		within       time.Duration
	}{
		"a header a second": {"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n", "X-A: b\r\n", headerTimeout + time.Second},
		"no request":        {"", "\r\n", headerTimeout + time.Second},
		"a byte a second":   {"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{", " ", readTimeout + time.Second},
		"what nobody reads": {"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n{", " ", readTimeout + time.Second},
		"chunks":            {"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", readTimeout + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			slow(t, newFakes(), func(t *testing.T, p *pipes) {
				if took := cut(p.dial(), tt.first, time.Second, tt.again); took > tt.within {
					t.Errorf("listened to for %s, want %s at most", took, tt.within)
				}
			})
		})
	}
}

func TestManySlowClientsDoNotKeepAnotherWaiting(t *testing.T) {
	slow(t, newFakes(), func(t *testing.T, p *pipes) {
		var all sync.WaitGroup
		for range 300 {
			c := p.dial()
			all.Go(func() { cut(c, "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n", time.Second, "X-A: b\r\n") })
		}
		began := time.Now()
		c := p.dial()
		defer c.Close()
		go func() {
			_, _ = io.WriteString(c, "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 200 || time.Since(began) > time.Second {
			t.Errorf("%v %v after %s", resp, err, time.Since(began))
		}
		all.Wait()
	})
}

func TestAClientThatReadsNothingIsCut(t *testing.T) {
	slow(t, newFakes(), func(t *testing.T, p *pipes) {
		c := p.dial()
		defer c.Close()
		began := time.Now()
		if _, err := io.WriteString(c, "GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(writeTimeout + time.Second)
		if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		if took := time.Since(began); took > writeTimeout+2*time.Second {
			t.Errorf("written to for %s", took)
		}
	})
}

func TestHeadersHaveALimit(t *testing.T) {
	for name, request := range map[string]string{
		"one":     "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n",
		"many":    "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n" + strings.Repeat("X-A: b\r\n", maxHeader/4) + "\r\n",
		"the URL": "GET /live?" + strings.Repeat("a", 2*maxHeader) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			slow(t, newFakes(), func(t *testing.T, p *pipes) {
				c := p.dial()
				defer c.Close()
				go func() { _, _ = io.WriteString(c, request) }()
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
					t.Errorf("%+v %v", resp, err)
				}
			})
		})
	}
}

func TestSoManyCallsAtOnce(t *testing.T) {
	f := newFakes(order("O1"))
	inside, leave := make(chan struct{}, maxCalls), make(chan struct{})
	f.send = func(context.Context, edda.Event) (engine.EventResult, error) {
		inside <- struct{}{}
		<-leave
		return engine.EventResult{Fate: edda.FateHandled}, nil
	}
	h := start(t, f)
	var all sync.WaitGroup
	for range maxCalls {
		all.Go(func() {
			if code, body := call(t, h, "POST", "/v1/instances/order/O1/cancel", "", "x-edda-why: test"); code != 200 {
				t.Errorf("%d %s", code, body)
			}
		})
		<-inside
	}
	if code, body := call(t, h, "GET", "/v1/instances", ""); code != 503 || !strings.Contains(body, "try again") {
		t.Errorf("one too many: %d %s", code, body)
	}
	if code, body := call(t, h, "GET", "/live", ""); code != 200 {
		t.Errorf("a probe: %d %s", code, body)
	}
	if code, body := call(t, h, "GET", "/cluster", ""); code != 200 {
		t.Errorf("the cluster: %d %s", code, body)
	}
	close(leave)
	all.Wait()
	if code, body := call(t, h, "GET", "/v1/instances", ""); code != 200 {
		t.Errorf("afterwards: %d %s", code, body)
	}
}

// keepAlive makes a request and leaves the connection open, silent.
func keepAlive(t *testing.T, p *pipes, request string) net.Conn {
	t.Helper()
	c := p.dial()
	go func() { _, _ = io.WriteString(c, request) }()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return c
}

// answered asks on a connection of its own, which must be had at once.
func answered(t *testing.T, p *pipes, path string) {
	t.Helper()
	began := time.Now()
	c := p.dial()
	defer c.Close()
	go func() {
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 200 || time.Since(began) > time.Second {
		t.Errorf("%s: %v %v after %s", path, resp, err, time.Since(began))
	}
}

func TestIdleConnectionsBlockNeitherAPINorProbes(t *testing.T) {
	for name, request := range map[string]string{
		"of probes":  "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"of callers": "GET /v1/instances HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			slow(t, newFakes(), func(t *testing.T, p *pipes) {
				for range maxConnections + 10 {
					defer keepAlive(t, p, request).Close()
				}
				answered(t, p, "/live")
				answered(t, p, "/v1/instances")
			})
		})
	}
}

func TestConnectionsThatSayNothingBlockNeitherAPINorProbes(t *testing.T) {
	slow(t, newFakes(), func(t *testing.T, p *pipes) {
		for range 3 * maxConnections {
			defer p.dial().Close()
		}
		answered(t, p, "/live")
		answered(t, p, "/v1/instances")
	})
}

func TestAnAnonymousConnectionIsNotKeptForMinutes(t *testing.T) {
	slow(t, newFakes(), func(t *testing.T, p *pipes) {
		began := time.Now()
		c := keepAlive(t, p, "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
		if took := time.Since(began); took < anonymousWait-time.Second || took > anonymousWait+time.Second {
			t.Errorf("kept for %s", took)
		}
	})
}

func TestACallersIdleConnectionOutlivesAnAnonymousOne(t *testing.T) {
	slow(t, newFakes(), func(t *testing.T, p *pipes) {
		began := time.Now()
		c := keepAlive(t, p, "GET /v1/instances HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		for range maxConnections {
			defer keepAlive(t, p, "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").Close()
		}
		_, _ = io.Copy(io.Discard, c)
		if took := time.Since(began); took < idleTimeout-time.Second {
			t.Errorf("kept for %s", took)
		}
	})
}
