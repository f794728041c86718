package httpeffect

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"edda"
	"edda/effects"
	"edda/effects/dial"
)

// maxDrained bytes of a redirect's own body are read, so that its connection can
// be used again; it is closed where there are more.
const maxDrained = 4 << 10

// trip is one call on its way, perhaps over several hosts.
type trip struct {
	over *transports
	tls  any
	leg  *leg // the request under way
	hops int  // redirects that were followed
}

// follow sends a request and goes where the answers lead, at most so many times.
// A redirect that is not followed is an answer like any other.
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
		req = next
	}
}

func (t *trip) send(req *http.Request) (*http.Response, error) {
	t.leg = &leg{}
	resp, err := t.over.roundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), t.leg.trace())), t.tls)
	if err != nil && t.leg.stopped.Load() {
		return nil, errors.New("the connection broke")
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
	case t.leg.connected.Load():
		return edda.Classify(class, "no answer: %w", err)
	default:
		return edda.Classify(class, "%w: %w", effects.ErrNotSent, err)
	}
}

// leg watches one request. The transport sends again by itself what it sent
// over a kept connection that broke, where the method or an Idempotency-Key
// lets it; but then the other side may have seen it, and to call again is for
// the effect to decide.
type leg struct{ connected, written, stopped atomic.Bool }

func (l *leg) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn:          l.gotConn,
		WroteHeaderField: func(string, []string) { l.written.Store(true) }, // before the request can be whole
	}
}

// gotConn closes the connection over which a request would go out once more.
// Over HTTP/2 only what was surely not taken goes out again.
func (l *leg) gotConn(info httptrace.GotConnInfo) {
	l.connected.Store(true)
	if secure, is := info.Conn.(*tls.Conn); is && secure.ConnectionState().NegotiatedProtocol == "h2" {
		return
	}
	if l.written.Load() {
		l.stopped.Store(true)
		_ = info.Conn.Close()
	}
}
