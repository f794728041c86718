package httpeffect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"code.dny.dev/ssrf"
)

// The bounds of connections.
const (
	dialTimeout = 10 * time.Second
	// idlePerHost connections are kept: as many as one effect calls at once.
	idlePerHost = 64
	idleFor     = 90 * time.Second
)

// Options say what may be called. The zero value allows every public address.
type Options struct {
	// AllowLoopback allows this machine, for edda dev.
	AllowLoopback bool
	// Hosts, when not empty, are the only hosts that may be called: "pay.example",
	// "pay.example:8443", "*.example" or an address. They may be private ones.
	Hosts []string
	// Transport replaces everything above, for tests and tracing.
	Transport http.RoundTripper
}

// errForbidden is a host that the options do not allow.
var errForbidden = errors.New("not an allowed host")

func forbidden(err error) bool {
	for _, no := range []error{errForbidden, ssrf.ErrProhibitedIP, ssrf.ErrProhibitedNetwork, ssrf.ErrProhibitedPort, ssrf.ErrInvalidHostPort} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

func (o Options) transport() (http.RoundTripper, error) {
	if o.Transport != nil {
		return o.Transport, nil
	}
	for _, h := range o.Hosts {
		if h == "" || strings.ContainsAny(h, "/@ ") || strings.Contains(strings.TrimPrefix(h, "*."), "*") {
			return nil, fmt.Errorf("httpeffect: %q is no host", h)
		}
	}
	return &http.Transport{
		DialContext:         o.dial,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     idleFor,
		TLSHandshakeTimeout: dialTimeout,
		Proxy:               nil, // a proxy would dial for us, past the guard
	}, nil
}

// dial connects to what is allowed: a listed host wherever it is, else public
// addresses, looked at after the name was resolved.
func (o Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	switch {
	case o.listed(address):
	case len(o.Hosts) > 0:
		return nil, fmt.Errorf("%s: %w", address, errForbidden)
	default:
		d.Control = o.guard().Safe
	}
	return d.DialContext(ctx, network, address)
}

func (o Options) guard() *ssrf.Guardian {
	allowed := []ssrf.Option{ssrf.WithAnyPort()}
	if o.AllowLoopback {
		allowed = append(allowed, ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.0/8")), ssrf.WithAllowedV6Prefixes(netip.MustParsePrefix("::1/128")))
	}
	return ssrf.New(allowed...)
}

// listed tells whether an address host:port is among Hosts.
func (o Options) listed(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	for _, h := range o.Hosts {
		if matches(strings.ToLower(h), strings.ToLower(host), port) {
			return true
		}
	}
	return false
}

func matches(pattern, host, port string) bool {
	if h, p, err := net.SplitHostPort(pattern); err == nil {
		if p != port {
			return false
		}
		pattern = h
	}
	if suffix, wild := strings.CutPrefix(pattern, "*"); wild {
		return strings.HasSuffix(host, suffix)
	}
	return host == strings.Trim(pattern, "[]")
}
