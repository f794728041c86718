package httpeffect

import (
	"container/list"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpproxy"
	"golang.org/x/net/http2"

	"edda/effects/dial"
	"edda/effects/httpeffect/http1"
)

// The bounds of connections.
const (
	// maxTransports are kept, one for each tls: map and proxy in use. The one
	// used longest ago is closed for a new one: secrets in tls: may rotate.
	maxTransports = 32
	// idleAtAll connections of one transport, that of plain http among them, are kept,
	// be they to one host: several effects call the same one, each so many times at
	// once, and a connection that is not kept is made anew for a later call. Hosts may
	// come from payloads.
	idleAtAll = 512
	idleFor   = 90 * time.Second
	// maxHeaders bytes of an answer are headers, at most: more is no answer.
	maxHeaders = 64 << 10
)

// Options of the provider. Guard is required where Transport is not set. Proxies
// are those of the environment when New is called: HTTP_PROXY, HTTPS_PROXY, NO_PROXY.
type Options struct {
	Guard *dial.Guard
	// Tracer gives each request a span of its own; none when nil.
	Tracer trace.TracerProvider
	// Standard has net/http's transport make the calls of plain http, too, which the
	// direct client of package http1 makes otherwise.
	Standard bool
	// Transport replaces the guarded ones, for tests: neither proxies nor tls
	// then play a part.
	Transport http.RoundTripper
}

// transports are kept so that calls reuse connections.
type transports struct {
	o     Options
	fixed http.RoundTripper // Options.Transport
	proxy func(*url.URL) (*url.URL, error)
	plain http.RoundTripper // calls over direct
	// direct has the connections of plain http that go through no proxy.
	direct *http1.Transport
	// resets counts the streams of HTTP/2 that were reset although they may have been taken.
	resets atomic.Int64

	mu    sync.Mutex // guards below
	kept  map[string]*list.Element
	order list.List // of *transport, the last used in front
}

// transport is one set of connections, traced where that is asked for.
type transport struct {
	http.RoundTripper
	key         string
	connections *http.Transport
}

func newTransports(o Options) *transports {
	t := &transports{o: o, proxy: httpproxy.FromEnvironment().ProxyFunc(), kept: map[string]*list.Element{}}
	if o.Transport != nil {
		t.fixed = traced(o.Transport, o.Tracer)
		return t
	}
	t.direct = http1.New(http1.Options{Dial: o.Guard.DialContext, MaxIdle: idleAtAll, MaxIdleTime: idleFor, MaxHeader: maxHeaders})
	t.plain = traced(t.direct, o.Tracer)
	return t
}

// isPlain tells of calls that need nothing of net/http's transport. Whether a tls:
// map is wrong shows there, be it needed or not.
func (t *transports) isPlain(to *url.URL, tls any) bool {
	if t.fixed != nil || t.o.Standard || to.Scheme != "http" || tls != nil {
		return false
	}
	proxy, err := t.proxy(to)
	return proxy == nil && err == nil
}

// roundTrip sends a request over connections with that tls: map, directly or
// through a proxy. A target that a proxy would reach for us passes the guard first.
func (t *transports) roundTrip(req *http.Request, tls any) (*http.Response, error) {
	if t.fixed != nil {
		return t.fixed.RoundTrip(req)
	}
	proxy, err := t.proxy(req.URL)
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		if err := t.mayBeProxied(req, proxy); err != nil {
			return nil, err
		}
	}
	over, err := t.find(tls, proxy)
	if err != nil {
		return nil, impossible{err}
	}
	return over.RoundTrip(req)
}

// find gives the transport for a tls: map and a proxy, which it makes once.
func (t *transports) find(tls any, proxy *url.URL) (*transport, error) {
	key := dial.TLSKey(tls)
	if proxy != nil {
		key += proxy.String()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.kept[key]; at != nil {
		t.order.MoveToFront(at)
		return at.Value.(*transport), nil
	}
	made, err := t.connections(tls, proxy)
	if err != nil {
		return nil, err
	}
	found := &transport{traced(made, t.o.Tracer), key, made}
	t.kept[key] = t.order.PushFront(found)
	if t.order.Len() > maxTransports {
		t.drop(t.order.Back())
	}
	return found, nil
}

// drop closes what is idle; a call under way ends, and its connection with it.
func (t *transports) drop(at *list.Element) {
	old := t.order.Remove(at).(*transport)
	delete(t.kept, old.key)
	old.connections.CloseIdleConnections()
}

func (t *transports) connections(tls any, proxy *url.URL) (*http.Transport, error) {
	config, err := dial.TLS(tls)
	if err != nil {
		return nil, err
	}
	out := &http.Transport{
		DialContext:            t.o.Guard.DialContext,
		TLSClientConfig:        config,
		MaxIdleConns:           idleAtAll,
		MaxIdleConnsPerHost:    idleAtAll,
		MaxResponseHeaderBytes: maxHeaders,
		IdleConnTimeout:        idleFor,
		TLSHandshakeTimeout:    dial.Timeout,
	}
	//lint:ignore SA1019 as net/http does it by itself, but that never tells HTTP2Config.CountError of a stream that was reset
	secure, err := http2.ConfigureTransports(out)
	if err != nil {
		return nil, err
	}
	//lint:ignore SA1019 see above
	secure.CountError = t.countReset
	if proxy != nil {
		dialer := proxyDialer{secure: proxy.Scheme == "https"}
		out.DialContext, out.Proxy = dialer.DialContext, http.ProxyURL(plain(proxy))
	}
	return out, nil
}

// countReset is told of every error of HTTP/2, before the request that met it ends.
func (t *transports) countReset(kind string) {
	code, isReset := strings.CutPrefix(strings.ToLower(kind), "recv_rststream_")
	if isReset && code != "refused_stream" {
		t.resets.Add(1)
	}
}

// close closes idle connections.
func (t *transports) close() {
	if t.direct != nil {
		t.direct.CloseIdleConnections()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.order.Len() > 0 {
		t.drop(t.order.Back())
	}
}

// impossible marks the error of a request that can never be made.
type impossible struct{ error }

func (e impossible) Unwrap() error { return e.error }
