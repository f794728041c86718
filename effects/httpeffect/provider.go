// Package httpeffect calls effects over HTTP: method, url, headers, query and a
// body that is JSON, a form or raw.
//
// Every call carries its idempotency key as Idempotency-Key and the trace as
// traceparent, and is sent once: what may have reached the other side is not
// sent again here. An answer is read up to 1 MiB. Redirects are followed where
// the manifest says so, and nothing of the manifest goes to another host with
// them. Addresses that are not public are refused when dialled, so that a name
// which resolves to one does not help, unless the options allow them. 408, 429
// and 5xx may be answered otherwise later; after 408 and 5xx the call may have
// had its effect; after 429 it surely had none.
package httpeffect

import (
	"context"
	"time"

	"edda"
	"edda/effects"
)

// Provider makes HTTP calls over connections that it keeps.
type Provider struct{ transports *transports }

// New makes a provider; nothing is called yet.
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
