package httpeffect

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"edda/effects/dial"
)

// mayBeProxied asks the guard about a target that a proxy would dial for us.
// Over plain HTTP a proxy goes by the Host header, which is then no other.
func (t *transports) mayBeProxied(req *http.Request, proxy *url.URL) error {
	speaksHTTP := proxy.Scheme == "http" || proxy.Scheme == "https"
	if speaksHTTP && req.URL.Scheme == "http" && req.Host != "" && !strings.EqualFold(req.Host, req.URL.Host) {
		return impossible{errors.New("a Host header of its own does not go through a proxy: it would be called instead of the url")}
	}
	return t.o.Guard.Check(req.Context(), hostPort(req.URL))
}

// hostPort is where a url is dialled.
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

// plain is the url of a proxy whose dialer does its TLS: the transport would use
// the tls: map of the manifest, which is for the target alone.
func plain(proxy *url.URL) *url.URL {
	if proxy.Scheme != "https" {
		return proxy
	}
	out := *proxy
	out.Scheme, out.Host = "http", hostPort(proxy)
	return &out
}

// proxyDialer dials a proxy, wherever it is: the operator named it.
type proxyDialer struct{ secure bool }

func (d proxyDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dial.Timeout)
	defer cancel()
	if d.secure {
		return (&tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12}}).DialContext(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}
