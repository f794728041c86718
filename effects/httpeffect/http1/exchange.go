package http1

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"
)

// writtenAtOnce bounds a request that is written before its answer is read. The kernel buffers
// as much even if the server answers early and stops reading. A longer request is written by a
// goroutine beside the reading.
const writtenAtOnce = 16 << 10

// writtenSoon bounds how long a connection waits, after its answer, for the goroutine that wrote
// the request. The goroutine has usually written all and is about to return.
const writtenSoon = 50 * time.Millisecond

// exchange is one request and its answer on a connection. It is the answer's body: the end of
// the body frees the connection.
type exchange struct {
	over  *Transport
	ctx   context.Context
	conn  *conn
	stop  func() bool // detaches the connection from ctx
	wrote wrote
	done  chan struct{} // closed when wrote is set; nil: it is set
	keep  bool          // the answer allows another request on the connection
	body  io.ReadCloser // as net/http decodes it
	err   error         // why the body cannot be read further
}

// wrote is the result of writing a request: n bytes were taken.
type wrote struct {
	n   int
	err error
}

// exchange makes a call on a connection and consumes the connection.
func (t *Transport) exchange(c *conn, req *http.Request, message []byte) (*http.Response, error) {
	x := &exchange{over: t, ctx: req.Context(), conn: c}
	x.stop = context.AfterFunc(x.ctx, c.cut)
	if len(message) <= writtenAtOnce {
		x.wrote.n, x.wrote.err = c.Conn.Write(message)
	} else {
		x.done = make(chan struct{})
		go func() {
			defer close(x.done)
			x.wrote.n, x.wrote.err = c.Conn.Write(message)
		}()
	}
	if x.unsent() {
		return x.failed(x.wrote.err)
	}
	resp, err := x.read(req)
	if err != nil {
		return x.failed(err)
	}
	x.keep = !resp.Close && !req.Close && resp.StatusCode >= http.StatusOK
	if resp.Body == http.NoBody {
		x.end(x.keep)
		return resp, nil
	}
	x.body, resp.Body = resp.Body, x
	if asksForGzip(req) {
		unpack(resp)
	}
	return resp, nil
}

// written reports whether the writing has ended.
func (x *exchange) written() bool {
	if x.done == nil {
		return true
	}
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// writtenWhole reports whether the whole request was written. It waits for writtenSoon at most.
func (x *exchange) writtenWhole() bool {
	if !x.written() {
		timer := time.NewTimer(writtenSoon)
		defer timer.Stop()
		select {
		case <-x.done:
		case <-timer.C:
			return false
		}
	}
	return x.wrote.err == nil
}

// unsent reports whether the connection took no byte of the request.
func (x *exchange) unsent() bool { return x.written() && x.wrote.err != nil && x.wrote.n == 0 }

// read reads the answer up to its body. It does so even if the request was not taken in full,
// because the server may say why.
func (x *exchange) read(req *http.Request) (*http.Response, error) {
	x.conn.left = x.over.o.MaxHeader
	for {
		resp, err := http.ReadResponse(x.conn.in, req)
		switch {
		case err != nil && x.conn.left <= 0:
			return nil, fmt.Errorf("%w: more than %d bytes", errTooLong, x.over.o.MaxHeader)
		case err != nil:
			return nil, err
		case resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols: // 101 was not asked for
			x.conn.left = math.MaxInt64
			return resp, nil
		}
	}
}

// failed ends a call that has no answer.
func (x *exchange) failed(err error) (*http.Response, error) {
	x.end(false)
	err = because(x.ctx, err)
	if x.unsent() {
		err = unsent{err}
	}
	return nil, err
}

// end releases or closes the connection, and waits for the goroutine that writes. A connection
// whose context has ended is closed, because its deadline may be set at any time.
func (x *exchange) end(keep bool) {
	detached := x.stop()
	x.over.release(x.conn, keep && detached && x.writtenWhole())
	if x.done != nil {
		<-x.done
	}
}

// Read reads the answer's body.
func (x *exchange) Read(p []byte) (int, error) {
	if x.err != nil {
		return 0, x.err
	}
	n, err := x.body.Read(p)
	switch {
	case err == io.EOF:
		x.end(x.keep)
		x.err = err
	case err != nil:
		x.end(false)
		x.err = because(x.ctx, err)
	}
	return n, x.err
}

// Close closes the connection if the body was not read to its end.
func (x *exchange) Close() error {
	if x.err == nil {
		x.end(false)
		x.err = http.ErrBodyReadAfterClose
	}
	return nil
}

// unpack makes the body of a gzip answer read unpacked, as net/http does for an encoding that
// the caller did not ask for.
func unpack(resp *http.Response) {
	if !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		return
	}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength, resp.Uncompressed = -1, true
	resp.Body = &unpacked{packed: resp.Body}
}

// unpacked is a body that is unpacked from its first Read on.
type unpacked struct {
	packed io.ReadCloser
	plain  *gzip.Reader
	err    error
}

func (u *unpacked) Read(p []byte) (int, error) {
	if u.plain == nil && u.err == nil {
		u.plain, u.err = gzip.NewReader(u.packed)
	}
	if u.err != nil {
		return 0, u.err
	}
	return u.plain.Read(p)
}

func (u *unpacked) Close() error { return u.packed.Close() }
