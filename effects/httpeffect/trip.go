package httpeffect

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"edda"
	"edda/effects"
	"edda/effects/dial"
	"edda/effects/httpeffect/http1"
)

// maxDrained bytes of a redirect's own body are read, so that its connection can
// be used again; it is closed where there are more.
const maxDrained = 4 << 10

// trip is one call on its way, perhaps over several hosts.
type trip struct {
	ctx  context.Context // the call's
	over *transports
	tls  any
	leg  *leg // the request under way; nil where it is one of plain http
	sent bool // that of plain http may have been seen by the other side
	hops int  // redirects that were followed
}

// watched is the context of the next request, to that address: what becomes of it shows
// in leg, or for plain http in its error.
func (t *trip) watched(to *url.URL) context.Context {
	if t.over.isPlain(to, t.tls) {
		t.leg = nil
		return t.ctx
	}
	t.leg = &leg{resets: &t.over.resets, before: t.over.resets.Load()}
	ctx := t.ctx
	if to.Scheme == "https" { // HTTP/2 alone has to be cancelled: other requests share the connection
		ctx, t.leg.cancel = context.WithCancel(ctx) // the answer is still to be read: it ends with the call
	}
	t.leg.watch(to)
	return httptrace.WithClientTrace(ctx, &t.leg.hooks)
}

// follow sends a watched request and goes where the answers lead, at most so many
// times. A redirect that is not followed is an answer like any other.
func (t *trip) follow(req *http.Request, most int) (*http.Response, error) {
	for {
		resp, err := t.send(req)
		if err != nil || t.hops == most {
			return resp, err
		}
		next, err := redirected(req, resp)
		if next == nil && err == nil {
			return resp, nil
		}
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrained)
		_ = resp.Body.Close()
		t.hops++
		if err != nil {
			return nil, err
		}
		if !sameHost(req.URL, next.URL) {
			t.tls = trustOnly(t.tls)
		}
		req = next.WithContext(t.watched(next.URL))
	}
}

func (t *trip) send(req *http.Request) (*http.Response, error) {
	if t.leg == nil {
		resp, err := t.over.plain.RoundTrip(req)
		t.sent = !errors.Is(err, http1.ErrUnsent)
		return resp, err
	}
	resp, err := t.over.roundTrip(req, t.tls)
	switch {
	case err != nil && t.leg.stopped.Load():
		return nil, errors.New("the connection broke")
	case err != nil && t.leg.refused.Load():
		t.leg.connected.Store(false)
		return nil, errors.New("the other side took none of the connections")
	}
	return resp, err
}

// lost says what a call without an answer may have done.
func (t *trip) lost(err error) error {
	class, never := edda.Temporary, impossible{}
	if errors.Is(err, dial.ErrForbidden) || errors.As(err, &never) {
		class = edda.Permanent
	}
	switch {
	case t.hops > 0:
		return edda.Classify(class, "redirected: %w", err)
	case t.mayHaveBeenSent():
		return edda.Classify(class, "no answer: %w", err)
	default:
		return edda.Classify(class, "%w: %w", effects.ErrNotSent, err)
	}
}

func (t *trip) mayHaveBeenSent() bool {
	if t.leg == nil {
		return t.sent
	}
	return t.leg.connected.Load()
}

// maxResends is how often a request goes out again that the other side's HTTP/2
// did not take, as when it closes a connection in good order: more is no accident.
const maxResends = 2

// leg watches one request. The transport sends again by itself what it sent
// over a kept connection that broke, where the method or an Idempotency-Key
// lets it, and over HTTP/2 what the other side has reset as a violation of the
// protocol; but then the other side may have seen it, and to call again is for
// the effect to decide.
type leg struct {
	hooks     httptrace.ClientTrace
	cancel    context.CancelFunc // nil where it cannot be HTTP/2
	resets    *atomic.Int64      // see transports.resets
	before    int64              // so many there were when the leg began
	resends   atomic.Int64       // over HTTP/2
	connected atomic.Bool
	written   atomic.Bool
	stopped   atomic.Bool // it would have gone out again, and may have been taken before
	refused   atomic.Bool // the same, and it surely was not
}

// watch has the transport tell before the request can be whole at the other side. A
// request of HTTP/1 is written through a buffer that is not flushed with the end of its
// head in it before WroteHeaders; one of HTTP/2 may be gone by then, and each of its
// fields is told of before.
func (l *leg) watch(to *url.URL) {
	l.hooks.GotConn = l.gotConn
	if to.Scheme == "https" {
		l.hooks.WroteHeaderField = func(string, []string) { l.written.Store(true) }
		return
	}
	l.hooks.WroteHeaders = func() { l.written.Store(true) }
}

// gotConn keeps a request from going out once more. Over HTTP/2, where others
// share the connection, it may where it was surely not taken.
func (l *leg) gotConn(info httptrace.GotConnInfo) {
	l.connected.Store(true)
	if !l.written.Load() {
		return
	}
	secure, is := info.Conn.(*tls.Conn)
	switch {
	case !is || secure.ConnectionState().NegotiatedProtocol != "h2":
		l.stopped.Store(true)
		_ = info.Conn.Close()
	case l.resets.Load() != l.before:
		l.stopped.Store(true)
		l.cancel()
	case l.resends.Add(1) > maxResends:
		l.refused.Store(true)
		l.cancel()
	}
}
