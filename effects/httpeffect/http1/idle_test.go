package http1

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// idleConn is a connection to an address, and whether it was closed.
func idleConn(address string) (*conn, *atomic.Bool) {
	near, _ := net.Pipe()
	watched := &watchedConn{Conn: near}
	return newConn(watched, address), &watched.closed
}

type watchedConn struct {
	net.Conn
	closed atomic.Bool
}

func (w *watchedConn) Close() error {
	w.closed.Store(true)
	return w.Conn.Close()
}

// TestIdleConnectionsGoWhenTheirTimeIsOver, each at its own, though nobody calls.
func TestIdleConnectionsGoWhenTheirTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &idle{most: 10, longest: time.Minute}
		var gone [3]*atomic.Bool
		for n := range gone {
			var c *conn
			c, gone[n] = idleConn("a")
			if !i.put(c) {
				t.Fatal("not kept")
			}
			time.Sleep(20 * time.Second)
		}
		for n := range gone { // it is now a minute after the first was put
			synctest.Wait()
			for m := range gone {
				if gone[m].Load() != (m <= n) {
					t.Errorf("after %d more: connection %d is closed %t", n, m, gone[m].Load())
				}
			}
			time.Sleep(20 * time.Second)
		}
		if i.armed {
			t.Error("a timer without anything to close")
		}
		c, closed := idleConn("a")
		i.put(c)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !closed.Load() {
			t.Error("the timer does not start again")
		}
	})
}

// TestIdleConnectionsAreBounded: the one used longest ago goes.
func TestIdleConnectionsAreBounded(t *testing.T) {
	i := &idle{most: 3, longest: time.Minute}
	var gone []*atomic.Bool
	for n := range 5 {
		c, closed := idleConn(fmt.Sprint("host", n%2))
		gone = append(gone, closed)
		i.put(c)
	}
	for n, closed := range gone {
		if closed.Load() != (n < 2) {
			t.Errorf("connection %d is closed %t", n, closed.Load())
		}
	}
	for _, want := range []struct {
		address string
		found   bool
	}{{"host2", false}, {"host1", true}, {"host1", false}, {"host0", true}, {"host0", true}, {"host0", false}} {
		if c := i.take(want.address); (c != nil) != want.found || c != nil && c.address != want.address {
			t.Errorf("%s: found %t", want.address, c != nil)
		}
	}
	i.close()
}

// TestAConnectionIsOfOneHostAndPort: whether another may be reached, and where it is, is
// asked anew, be it the same server.
func TestAConnectionIsOfOneHostAndPort(t *testing.T) {
	s, _ := counting(t)
	var dialled []string
	over := dialling(t, func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return new(net.Dialer).DialContext(ctx, network, s.address)
	})
	for range 2 {
		for _, host := range []string{"pay.test", "pay.test:80", "pay.test:81", "pay.test.", "127.0.0.1", "[::1]"} {
			together(t, 1, over, host)
		}
	}
	if got := strings.Join(dialled, " "); got != "pay.test:80 pay.test:81 pay.test.:80 127.0.0.1:80 [::1]:80" {
		t.Error(got)
	}
}

// TestTheLastUsedIsTakenFirst: it is the least likely to have been closed.
func TestTheLastUsedIsTakenFirst(t *testing.T) {
	i := &idle{most: 3, longest: time.Minute}
	defer i.close()
	first, _ := idleConn("a")
	second, _ := idleConn("a")
	i.put(first)
	i.put(second)
	if i.take("a") != second || i.take("a") != first || i.take("a") != nil {
		t.Error("in another order")
	}
}

// TestNothingIsKeptThatIsNotWanted.
func TestNothingIsKeptThatIsNotWanted(t *testing.T) {
	c, _ := idleConn("a")
	for _, i := range []*idle{{most: 0, longest: time.Minute}, {most: 1, longest: 0}, {most: 1, longest: time.Minute, closed: true}} {
		if i.put(c) {
			t.Errorf("%+v keeps it", i)
		}
	}
}

// TestAConnectionFromBeforeASleepIsNotUsed: the timer stood still meanwhile.
func TestAConnectionFromBeforeASleepIsNotUsed(t *testing.T) {
	s, _ := counting(t)
	over := open(t)
	together(t, 1, over, s.address)
	over.idle.connections()[0].since = time.Now().Round(0).Add(-2 * time.Minute)
	together(t, 1, over, s.address)
	if n := s.connections(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// TestClosingClosesWhatIsIdleAndWhatComesBack; a call that is made later works.
func TestClosingClosesWhatIsIdleAndWhatComesBack(t *testing.T) {
	s, _ := counting(t)
	over := open(t)
	together(t, 3, over, s.address)
	resp, err := over.RoundTrip(request(t, http.MethodPost, s.address, "text"))
	if err != nil {
		t.Fatal(err)
	}
	over.CloseIdleConnections()
	if n := len(over.idle.connections()); n != 0 {
		t.Errorf("%d are left", n)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	if n := len(over.idle.connections()); n != 0 {
		t.Errorf("%d came back", n)
	}
	together(t, 1, over, s.address)
	if n := len(over.idle.connections()); n != 1 {
		t.Errorf("%d after one more call", n)
	}
}

// TestNoConnectionHasAGoroutine, be it idle or used.
func TestNoConnectionHasAGoroutine(t *testing.T) {
	const n = 10
	var together sync.WaitGroup
	together.Add(n)
	s := serveRaw(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1024))
		together.Done()
		together.Wait() // so that each call has a connection
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		_, _ = io.Copy(io.Discard, conn)
	})
	over := open(t)
	var all sync.WaitGroup
	for range n {
		req := request(t, http.MethodPost, s.address, "text")
		all.Go(func() {
			if err := call(over, req); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if kept := len(over.idle.connections()); kept != n {
		t.Errorf("%d are kept", kept)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if at := strings.Index(string(stacks), "http1.(*"); at >= 0 {
		t.Errorf("a goroutine of ours:\n%.2000s", stacks[at:])
	}
}
