// Package natseffect calls effects over NATS: a request to a subject, and the reply of the service that
// subscribes to it.
//
// Every call carries its idempotency key as Nats-Msg-Id and Idempotency-Key, and the trace as
// traceparent. A request is published once, and only while the connection stands: the client does
// not keep it for a reconnect, because the saga may have undone the step by then. The first reply
// is the answer, and has at most 1 MiB. Without a service at the subject the call was not sent.
//
// An error of NATS's services API is an answer. Its codes 408, 429 and 5xx may be answered
// differently later. After 408 and 5xx the call may have had its effect; after 429 it surely had
// none.
package natseffect

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/effects"
)

// Options configure a provider.
type Options struct {
	// Connect returns a connection that reconnects by itself and buffers nothing meanwhile:
	// nats.ReconnectBufSize(-1). The provider calls it for its first call, and closes the
	// connection. After an error it calls it again.
	Connect func() (*nats.Conn, error)
}

// Provider makes calls on one connection.
type Provider struct {
	o Options

	mu     sync.Mutex // guards below
	conn   *nats.Conn // nil before the first call
	closed bool
}

// New makes a provider. It connects to nothing yet.
func New(o Options) *Provider { return &Provider{o: o} }

// Close closes the connection. Calls in flight end without an answer.
func (p *Provider) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed = true; p.conn != nil {
		p.conn.Close()
	}
}

// Call makes one call; see effects.Provider.
func (p *Provider) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	m, err := request(c)
	if err != nil {
		return effects.Response{}, edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
	}
	conn, err := p.connected(ctx)
	if err != nil {
		return effects.Response{}, edda.Classify(edda.Temporary, "%w: %w", effects.ErrNotSent, err)
	}
	if size, most := int64(m.Size()), conn.MaxPayload(); size > most {
		return effects.Response{}, edda.Classify(edda.Permanent, "%w: the request has %d bytes, and the NATS server allows %d", effects.ErrNotSent, size, most)
	}
	reply, err := conn.RequestMsgWithContext(ctx, m)
	if err != nil {
		return effects.Response{}, lost(m.Subject, err)
	}
	return response(m.Subject, reply, c.Bare)
}

var errApart = errors.New("NATS is not connected")

// connected returns the connection, if it stands.
func (p *Provider) connected(ctx context.Context) (*nats.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case p.closed:
		return nil, nats.ErrConnectionClosed
	case p.conn == nil:
		conn, err := p.o.Connect()
		if err != nil {
			return nil, err
		}
		p.conn = conn
	}
	if !p.conn.IsConnected() {
		return nil, errApart
	}
	return p.conn, nil
}

// lost returns the error of a request without a reply. The client's other errors come also after it
// has published the request.
func lost(subject string, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return edda.Classify(edda.Temporary, "%w: no service subscribes to %s", effects.ErrNotSent, subject)
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return edda.Classify(edda.Temporary, "%w: %w", effects.ErrNotSent, errApart)
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrHeadersNotSupported), errors.Is(err, nats.ErrBadSubject):
		return edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
	default:
		return edda.Classify(edda.Temporary, "no answer: %w", fmt.Errorf("%s: %w", subject, err))
	}
}
