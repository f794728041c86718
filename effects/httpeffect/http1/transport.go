// Package http1 makes plain HTTP/1.1 calls on the caller's goroutine. It writes the request,
// and net/http parses the answer straight from the connection. The transport of net/http has
// two goroutines for each connection and passes each call between them; see docs/adr/0026.
//
// A request is sent once. It moves to another connection only if the first one took none of
// its bytes. After an error that is not ErrUnsent the server may have seen the request, in part
// or in full. When the context ends, the call and the reading of its body end at once.
//
// It does not support TLS, HTTP/2, proxies, httptrace and bodies of unknown length: use
// net/http for those.
package http1

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Options of a transport. Dial is required.
type Options struct {
	// Dial connects to host:port. The network is always tcp.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxIdle bounds the idle connections to all hosts together, MaxIdleTime how long each is
	// kept. If either is zero, none is kept. An idle connection takes some 4 KiB.
	MaxIdle     int
	MaxIdleTime time.Duration
	// MaxHeader bounds the bytes of an answer's headers, with its 1xx answers included.
	MaxHeader int64
}

// Transport is an http.RoundTripper that reuses connections. It is safe for concurrent use.
type Transport struct {
	o    Options
	idle idle
}

// New makes a transport. It dials nothing yet.
func New(o Options) *Transport {
	return &Transport{o: o, idle: idle{most: o.MaxIdle, longest: o.MaxIdleTime}}
}

// CloseIdleConnections closes the idle connections now, and those in use when their calls end.
func (t *Transport) CloseIdleConnections() { t.idle.close() }

// ErrUnsent marks the error of a request that sent no byte to the server.
var ErrUnsent = errors.New("nothing was sent")

// unsent makes an error ErrUnsent and keeps its text.
type unsent struct{ error }

func (u unsent) Unwrap() error        { return u.error }
func (u unsent) Is(target error) bool { return target == ErrUnsent }

// RoundTrip makes a call; see http.RoundTripper. Unless the error is ErrUnsent, the server may
// have seen the request.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	message := bytes.NewBuffer(make([]byte, 0, headBytes+max(req.ContentLength, 0)))
	address, err := encode(message, req)
	if err != nil {
		return nil, unsent{err}
	}
	for {
		c, reused, err := t.connection(req.Context(), address)
		if err != nil {
			return nil, unsent{because(req.Context(), err)}
		}
		resp, err := t.exchange(c, req, message.Bytes())
		if reused && errors.Is(err, ErrUnsent) {
			continue // ends, because each attempt uses up an idle connection
		}
		return resp, err
	}
}

// headBytes holds the head of most requests.
const headBytes = 512

// connection takes an idle connection that is still good, or dials a new one.
func (t *Transport) connection(ctx context.Context, address string) (c *conn, reused bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	for c = t.idle.take(address); c != nil; c = t.idle.take(address) {
		if !t.idle.expired(c) && c.silent() {
			return c, true, nil
		}
		_ = c.Close()
	}
	made, err := t.o.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, false, err
	}
	return newConn(made, address), false, nil
}

// release keeps a connection for another call, or closes it.
func (t *Transport) release(c *conn, keep bool) {
	// Bytes after the answer could be taken for the answer to the next request.
	if !keep || c.raw == nil || c.in.Buffered() > 0 || !t.idle.put(c) {
		_ = c.Close()
	}
}

// because returns the cause of ctx if that has ended, since all later errors come from it.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
