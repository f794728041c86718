// Package httpeffect calls effects over HTTP: method, URL, headers, query and a body that is JSON, a
// form or raw.
//
// Every call carries its idempotency key as Idempotency-Key and the trace as traceparent. A request
// is sent once: if it may have reached the server, this package never sends it again. An answer
// has at most 1 MiB. Redirects are followed if the manifest says so, and another host gets nothing
// of the manifest. Addresses that are not public are refused when they are dialled, so that a name
// that resolves to one does not help, unless the options allow them.
//
// 408, 429 and 5xx may be answered differently later. After 408 and 5xx the call may have had its
// effect; after 429 it surely had none.
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
	"time"

	"edda"
	"edda/effects"
	"edda/effects/dial"
	"edda/effects/httpeffect/http1"
)

// Provider makes HTTP calls on connections that it keeps.
type Provider struct{ transports *transports }

// New makes a provider. It connects to nothing yet.
func New(o Options) *Provider { return &Provider{newTransports(o)} }

// Close closes idle connections.
func (p *Provider) Close() { p.transports.close() }

// Call makes one call; see effects.Provider.
func (p *Provider) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	t := &trip{ctx: p.transports.parent(ctx, c.Trace), over: p.transports, tls: c.Config["tls"]}
	req, hops, err := t.request(c)
	if err != nil {
		return effects.Response{}, edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
	}
	resp, err := t.follow(req, hops)
	if err != nil {
		return effects.Response{}, t.lost(err)
	}
	defer resp.Body.Close()
	return response(resp, c.Bare, time.Now())
}

// maxDrained bounds how much of a redirect's body is read so that its connection can be reused.
const maxDrained = 4 << 10

// trip is one call with its redirects.
type trip struct {
	ctx  context.Context // the call's
	over *transports
	tls  any
	leg  *leg // the current request; nil on package http1
	sent bool // the server may have seen the current request on package http1
	hops int  // followed redirects
}

// watched returns the context of the next request, which records in leg whether the request was
// sent. On package http1 the error says so.
func (t *trip) watched(to *url.URL) context.Context {
	if t.over.isPlain(to, t.tls) {
		t.leg = nil
		return t.ctx
	}
	t.leg = &leg{resets: &t.over.resets, before: t.over.resets.Load()}
	ctx := t.ctx
	if to.Scheme == "https" { // only HTTP/2 needs a cancel, because other requests share its connection
		ctx, t.leg.cancel = context.WithCancel(ctx) // it ends with the call, after the answer was read
	}
	t.leg.watch(to)
	return httptrace.WithClientTrace(ctx, &t.leg.hooks)
}

// follow sends a request and follows up to most redirects. A redirect that is not followed is the
// answer.
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

// lost classifies the error of a call without an answer by what the call may have done.
func (t *trip) lost(err error) error {
	class, never := edda.Temporary, impossible{}
	if errors.Is(err, dial.ErrForbidden) || errors.As(err, &never) {
		class = edda.Permanent
	}
	sent := t.sent
	if t.leg != nil {
		sent = t.leg.connected.Load()
	}
	switch {
	case t.hops > 0:
		return edda.Classify(class, "redirected: %w", err)
	case sent:
		return edda.Classify(class, "no answer: %w", err)
	default:
		return edda.Classify(class, "%w: %w", effects.ErrNotSent, err)
	}
}

// maxResends bounds how often a request goes out again that HTTP/2 surely did not take, such as
// when a server closes a connection in order.
const maxResends = 2

// leg watches one request, and keeps net/http's transport from sending it twice. By itself the
// transport resends on a kept connection that broke, if the method or an Idempotency-Key allows it,
// and over HTTP/2 after a protocol error. The server may have seen the first request, and the
// effect decides whether to call again.
type leg struct {
	hooks     httptrace.ClientTrace
	cancel    context.CancelFunc // nil: it cannot be HTTP/2
	resets    *atomic.Int64      // transports.resets
	before    int64              // resets at the beginning
	resends   atomic.Int64       // over HTTP/2
	connected atomic.Bool
	written   atomic.Bool
	stopped   atomic.Bool // not resent: the server may have taken it
	refused   atomic.Bool // not resent: the server surely did not take it
}

// watch sets the hooks that are called before the request can be complete at the server. A request
// of HTTP/1 is buffered, and its head is not flushed before WroteHeaders. One of HTTP/2 may be sent
// by then, but each of its fields is reported before.
func (l *leg) watch(to *url.URL) {
	l.hooks.GotConn = l.gotConn
	if to.Scheme == "https" {
		l.hooks.WroteHeaderField = func(string, []string) { l.written.Store(true) }
		return
	}
	l.hooks.WroteHeaders = func() { l.written.Store(true) }
}

// gotConn stops a request that is being sent again. Over HTTP/2 it may be sent again if the server
// surely did not take it.
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
