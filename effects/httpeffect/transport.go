package httpeffect

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
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
	// maxTransports bounds the transports, one for each tls: map and proxy. At the bound the one
	// used longest ago is closed, such as one with a secret before its rotation.
	maxTransports = 32
	// idleAtAll bounds the idle connections of a transport, to one host or many. Several effects
	// may call one host, each with its own concurrency. Hosts may come from payloads.
	idleAtAll = 512
	idleFor   = 90 * time.Second
	// maxHeaders bounds the bytes of an answer's headers.
	maxHeaders = 64 << 10
)

// Options of the provider. Guard is required unless Transport is set. New reads the proxies from
// the environment: HTTP_PROXY, HTTPS_PROXY, NO_PROXY.
type Options struct {
	Guard *dial.Guard
	// Tracer makes a span for each request; nil makes none.
	Tracer trace.TracerProvider
	// Standard makes net/http's transport also call plain http, in place of package http1.
	Standard bool
	// Transport replaces all transports in tests. Proxies and tls are then ignored.
	Transport http.RoundTripper
}

// transports keeps connections for later calls.
type transports struct {
	o     Options
	fixed http.RoundTripper // Options.Transport
	proxy func(*url.URL) (*url.URL, error)
	plain http.RoundTripper // calls over direct
	// direct calls plain http without a proxy.
	direct *http1.Transport
	// resets counts the HTTP/2 streams that were reset after the server may have taken them.
	resets atomic.Int64

	mu    sync.Mutex // guards below
	kept  map[string]*list.Element
	order list.List // of *transport, the last used first
}

// transport is the connections for one tls: map and proxy, with spans if there is a tracer.
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

// isPlain reports whether package http1 makes the call. A call with a tls: map goes to net/http's
// transport even over plain http, so that an invalid map is reported.
func (t *transports) isPlain(to *url.URL, tls any) bool {
	if t.fixed != nil || t.o.Standard || to.Scheme != "http" || tls != nil {
		return false
	}
	proxy, err := t.proxy(to)
	return proxy == nil && err == nil
}

// roundTrip sends a request, directly or through a proxy. The guard checks a target that a proxy
// would dial.
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

// find returns the transport for a tls: map and a proxy.
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

// drop closes the idle connections of a transport. Those in use end with their calls.
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
	//lint:ignore SA1019 net/http's own HTTP2Config.CountError does not count reset streams
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

// countReset counts an error of HTTP/2. It is called before the affected request ends.
func (t *transports) countReset(kind string) {
	code, isReset := strings.CutPrefix(strings.ToLower(kind), "recv_rststream_")
	if isReset && code != "refused_stream" {
		t.resets.Add(1)
	}
}

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

// impossible marks the error of a request that no attempt can make.
type impossible struct{ error }

func (e impossible) Unwrap() error { return e.error }

// mayBeProxied asks the guard about a target that a proxy dials for us. Over plain HTTP the proxy
// uses the Host header, so that must be the URL's.
func (t *transports) mayBeProxied(req *http.Request, proxy *url.URL) error {
	speaksHTTP := proxy.Scheme == "http" || proxy.Scheme == "https"
	if speaksHTTP && req.URL.Scheme == "http" && req.Host != "" && !strings.EqualFold(req.Host, req.URL.Host) {
		return impossible{errors.New("a Host header of its own does not go through a proxy: it would be called instead of the url")}
	}
	return t.o.Guard.Check(req.Context(), hostPort(req.URL))
}

// hostPort returns the host:port of a URL.
func hostPort(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), port(u))
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}

// plain returns the URL of a proxy without TLS. The dialer makes the TLS to the proxy, because the
// transport would use the manifest's tls: map, which is for the target.
func plain(proxy *url.URL) *url.URL {
	if proxy.Scheme != "https" {
		return proxy
	}
	out := *proxy
	out.Scheme, out.Host = "http", hostPort(proxy)
	return &out
}

// proxyDialer dials a proxy at any address, because the operator configured it.
type proxyDialer struct{ secure bool }

func (d proxyDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dial.Timeout)
	defer cancel()
	if d.secure {
		return (&tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12}}).DialContext(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}
