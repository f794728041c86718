package redisdb

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"edda/internal/testkit"
)

// wire is a connection between a DB and its Redis that breaks at chosen commands: before Redis
// receives them, or after it has executed them and before the answer arrives.
type wire struct {
	mu     sync.Mutex // guards the fields below
	of     string     // breaks at commands that contain it
	times  int
	before bool
	broken int
}

// tapped opens a DB whose commands go through a wire.
func tapped(t testing.TB, d *DB) (*DB, *wire) {
	w := &wire{}
	o := d.options
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &breakable{Conn: c, wire: w}, err
	}
	through := open(t, Options{Addr: d.where})
	through.options = o
	return through, w
}

// breaks makes the next commands of a kind break, that many times.
func (w *wire) breaks(of string, times int, before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of, w.times, w.before, w.broken = of, times, before, 0
}

// hits reports whether a write is of the kind, and when to break.
func (w *wire) hits(b []byte) (hit, before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.times == 0 || !bytes.Contains(bytes.ToLower(b), []byte(w.of)) {
		return false, false
	}
	w.times--
	w.broken++
	return true, w.before
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

type breakable struct {
	net.Conn
	wire *wire
	dead bool
}

func (c *breakable) Write(b []byte) (int, error) {
	hit, before := c.wire.hits(b)
	if hit && before {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	c.dead = c.dead || hit
	return c.Conn.Write(b)
}

// Read waits for the answer, and drops it if the connection is to break.
func (c *breakable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.dead {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// broken runs a test with a connection that breaks once before, and once after,
// Redis does what has the text in it.
func broken(t *testing.T, of string, test func(t *testing.T, d *DB, in uint32)) {
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			plain, in, _ := fresh(t)
			d, w := tapped(t, plain)
			testkit.Must(t, d.Ping(t.Context()))
			w.breaks(of, 1, before)
			test(t, d, in)
			if w.count() != 1 {
				t.Errorf("broke %d times", w.count())
			}
		})
	}
}
