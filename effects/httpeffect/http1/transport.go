// Package http1 makes calls of plain HTTP/1.1, each wholly on the goroutine that
// makes it: the request is written at once, and what net/http parses of the
// answer is read straight from the connection. net/http's own transport has two
// goroutines for each connection and hands each call to and fro between them; see
// docs/adr/0026.
//
// A request goes out once. It takes another connection only where none of its
// bytes were taken by the one it had; an error that is no ErrUnsent is of a
// request that the other side may have seen, in part or whole. A context that ends
// ends the call, and the reading of its answer's body, at once.
//
// There is no TLS, no HTTP/2, no proxy, no httptrace, and no body whose length is
// not known before: net/http does those.
package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options of a transport. Dial is required.
type Options struct {
	// Dial makes a connection to host:port; the network is always tcp.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxIdle connections are kept for later calls, to all hosts together, and each
	// for MaxIdleTime. None is kept where either is zero.
	MaxIdle     int
	MaxIdleTime time.Duration
	// MaxHeader bytes of an answer are headers, at most, those of the answers 1xx
	// before it included.
	MaxHeader int64
}

// Transport is a RoundTripper that keeps connections. It is safe for concurrent
// use; the body of one answer is not.
type Transport struct {
	o       Options
	idle    idle
	readers sync.Pool // of *bufio.Reader, none of which an idle connection has
	buffers sync.Pool // of *bytes.Buffer, for requests that are written at once
}

// New makes a transport; nothing is dialled yet.
func New(o Options) *Transport {
	return &Transport{
		o: o, idle: idle{most: o.MaxIdle, longest: o.MaxIdleTime},
		readers: sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }},
		buffers: sync.Pool{New: func() any { return new(bytes.Buffer) }},
	}
}

// readBuffer is that of net/http, where a trailer has to fit into it.
const readBuffer = 4 << 10

// CloseIdleConnections closes those that are idle, and those of calls under way when they end.
func (t *Transport) CloseIdleConnections() { t.idle.close() }

// ErrUnsent marks the error of a request of which nothing can have reached the other side.
var ErrUnsent = errors.New("nothing was sent")

// unsent reads as its cause does.
type unsent struct{ error }

func (u unsent) Unwrap() error        { return u.error }
func (u unsent) Is(target error) bool { return target == ErrUnsent }

// RoundTrip makes a call; see http.RoundTripper. Its error is ErrUnsent, or the
// request may have been seen.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	buffer := t.buffers.Get().(*bytes.Buffer)
	defer t.giveBack(buffer)
	address, err := encode(buffer, req)
	if err != nil {
		return nil, unsent{err}
	}
	for {
		c, kept, err := t.connection(req.Context(), address)
		if err != nil {
			return nil, unsent{because(req.Context(), err)}
		}
		resp, err := t.exchange(c, req, buffer.Bytes())
		if kept && errors.Is(err, ErrUnsent) {
			continue // there are fewer kept each time
		}
		return resp, err
	}
}

// giveBack keeps a buffer for another request, but not a large one's, which may still
// be written.
func (t *Transport) giveBack(buffer *bytes.Buffer) {
	if buffer.Len() <= writtenAtOnce {
		buffer.Reset()
		t.buffers.Put(buffer)
	}
}

// connection is a kept one that is still good, or else a new one.
func (t *Transport) connection(ctx context.Context, address string) (c *conn, kept bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	for c = t.idle.take(address); c != nil; c = t.idle.take(address) {
		if !t.idle.tooLong(c) && c.silent() {
			t.lend(c)
			return c, true, nil
		}
		_ = c.Close()
	}
	made, err := t.o.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, false, err
	}
	c = newConn(made, address)
	t.lend(c)
	return c, false, nil
}

// lend gives a connection a reader for one call.
func (t *Transport) lend(c *conn) {
	c.in = t.readers.Get().(*bufio.Reader)
	c.in.Reset(c)
}

// leave ends the use of a connection: it is kept for another call, or closed.
func (t *Transport) leave(c *conn, keep bool) {
	// what nobody asked for may be the answer to anything
	keep = keep && c.raw != nil && c.in.Buffered() == 0
	c.in.Reset(nil)
	t.readers.Put(c.in)
	c.in = nil
	if !keep || !t.idle.put(c) {
		_ = c.Close()
	}
}

// because is why a call failed: its context's end is the reason for all that comes of it.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
