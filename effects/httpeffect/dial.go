package httpeffect

import (
	"net/http"
	"time"

	"edda/effects/dial"
)

// The bounds of connections.
const (
	// idlePerHost connections are kept: as many as one effect calls at once.
	idlePerHost = 64
	idleFor     = 90 * time.Second
)

// Options of the provider. Guard is required where Transport is not set.
type Options struct {
	Guard *dial.Guard
	// Transport replaces the guarded one, for tests and tracing.
	Transport http.RoundTripper
}

func (o Options) transport() http.RoundTripper {
	if o.Transport != nil {
		return o.Transport
	}
	return &http.Transport{
		DialContext:         o.Guard.DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     idleFor,
		TLSHandshakeTimeout: dial.Timeout,
		Proxy:               nil, // a proxy would dial for us, past the guard
	}
}
