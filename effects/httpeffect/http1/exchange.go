package http1

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"
)

// writtenAtOnce is how long a request may be that is written before its answer is
// read: the kernel takes as much without the other side reading, which may answer
// and read no more. A longer one is written beside.
const writtenAtOnce = 16 << 10

// writtenSoon is how long a connection waits to be kept for the end of a writing
// whose request was answered: as a rule it has ended, and only its goroutine has not.
const writtenSoon = 50 * time.Millisecond

// exchange is a request and its answer over one connection. It is the answer's body,
// with whose end the connection is free.
type exchange struct {
	over  *Transport
	ctx   context.Context
	conn  *conn
	stop  func() bool // from ending the connection with the context
	wrote wrote
	done  chan struct{} // closed when wrote is known; nil where it is
	keep  bool          // what the answer says of the connection
	body  io.ReadCloser // as net/http frames it
	err   error         // why no more of the body can be read
}

// wrote is what became of writing a request: n bytes were taken.
type wrote struct {
	n   int
	err error
}

// exchange makes a call over a connection, which it uses up.
func (t *Transport) exchange(c *conn, req *http.Request, message []byte) (*http.Response, error) {
	x := &exchange{over: t, ctx: req.Context(), conn: c}
	x.stop = context.AfterFunc(x.ctx, c.cut)
	x.write(message)
	if x.unsent() {
		return x.failed(nil)
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

// write has the request written, a large one beside the reading of its answer.
func (x *exchange) write(message []byte) {
	if len(message) <= writtenAtOnce {
		x.wrote.n, x.wrote.err = x.conn.Conn.Write(message)
		return
	}
	x.done = make(chan struct{})
	go func() {
		defer close(x.done)
		x.wrote.n, x.wrote.err = x.conn.Conn.Write(message)
	}()
}

// written tells whether the writing is over.
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

// settled tells whether all was written, or soon is.
func (x *exchange) settled() bool {
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

// unsent tells that the connection took none of the request.
func (x *exchange) unsent() bool { return x.written() && x.wrote.err != nil && x.wrote.n == 0 }

// read reads the answer up to its body, also where the request was not taken whole:
// the other side may say why.
func (x *exchange) read(req *http.Request) (*http.Response, error) {
	x.conn.left = x.over.o.MaxHeader
	for {
		resp, err := http.ReadResponse(x.conn.in, req)
		switch {
		case err != nil && x.conn.left <= 0:
			return nil, fmt.Errorf("%w: more than %d bytes", errTooLong, x.over.o.MaxHeader)
		case err != nil:
			return nil, err
		case resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols: // which nobody asked for
			x.conn.left = math.MaxInt64
			return resp, nil
		}
	}
}

// failed ends a call without an answer.
func (x *exchange) failed(err error) (*http.Response, error) {
	x.end(false)
	if err == nil {
		err = x.wrote.err
	}
	err = because(x.ctx, err)
	if x.unsent() {
		err = unsent{err}
	}
	return nil, err
}

// end gives the connection back, or closes it: where the context has ended, its
// deadline may strike at any time. The writing beside ends with it.
func (x *exchange) end(keep bool) {
	undisturbed := x.stop()
	x.over.leave(x.conn, keep && undisturbed && x.settled())
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

// Close gives up what was not read, and the connection with it.
func (x *exchange) Close() error {
	if x.err == nil {
		x.end(false)
		x.err = http.ErrBodyReadAfterClose
	}
	return nil
}
