// Package natseffect calls effects over NATS: a request to a subject, and the reply of the service that
// subscribes to it. Or the request is stored in a stream, and the answer comes later in another one.
//
// Every call carries its idempotency key as Nats-Msg-Id and Idempotency-Key, and the trace as
// traceparent. A request is published once, and only while the connection stands: the client does
// not keep it for a reconnect, because the saga may have undone the step by then. The first reply
// is the answer, and has at most 1 MiB. Without a service at the subject the call was not sent.
//
// An answer in a stream is the last message of a subject that ends with the key. A call looks for it
// before it publishes, so that a process that died between both finds it. The package creates
// nothing in JetStream.
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
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
)

// Options configure a provider.
type Options struct {
	// Connect returns a connection that reconnects by itself and buffers nothing meanwhile:
	// nats.ReconnectBufSize(-1). The provider calls it for its first call, and closes the
	// connection. After an error it calls it again.
	Connect func() (*nats.Conn, jetstream.JetStream, error)
}

// Provider makes calls on one connection.
type Provider struct {
	o Options

	mu     sync.Mutex // guards below
	link   link       // the zero value before the first call
	closed bool
}

// link is a connection.
type link struct {
	conn *nats.Conn
	js   jetstream.JetStream
}

// New makes a provider. It connects to nothing yet.
func New(o Options) *Provider { return &Provider{o: o} }

// Close closes the connection. Calls in flight end without an answer.
func (p *Provider) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed = true; p.link.conn != nil {
		p.link.conn.Close()
	}
}

// Call makes one call; see effects.Provider.
func (p *Provider) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	at, err := placesOf(c)
	if err != nil {
		return effects.Response{}, impossible(err)
	}
	m, err := request(c)
	if err != nil {
		return effects.Response{}, impossible(err)
	}
	l, err := p.connected(ctx)
	if err != nil {
		return effects.Response{}, unsent(err)
	}
	if size, most := int64(m.Size()), l.conn.MaxPayload(); size > most {
		return effects.Response{}, impossible(fmt.Errorf("the request has %d bytes, and the NATS server allows %d", size, most))
	}
	if at != (places{}) {
		return l.stored(ctx, c, m, at)
	}
	reply, err := l.conn.RequestMsgWithContext(ctx, m)
	if err != nil {
		return effects.Response{}, lost(m.Subject, err)
	}
	if stream := acknowledged(reply); stream != "" {
		return effects.Response{}, edda.Classify(edda.Permanent, "the stream %.80q has %s and acknowledged the request before a service could answer: "+
			"say stream: %.80s, and answer: for where the service answers; or use a subject that no stream has", stream, m.Subject, stream)
	}
	return response(reply, c.Bare)
}

var errApart = errors.New("NATS is not connected")

// connected returns the connection, if it stands.
func (p *Provider) connected(ctx context.Context) (link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return link{}, ctx.Err()
	case p.closed:
		return link{}, nats.ErrConnectionClosed
	case p.link.conn == nil || p.link.conn.IsClosed():
		conn, js, err := p.o.Connect()
		if err != nil {
			return link{}, errors.New(err.Error()) // whatever its class: a file may be there soon
		}
		p.link = link{conn, js}
	}
	if !p.link.conn.IsConnected() {
		return link{}, errApart
	}
	return p.link, nil
}

// unsent is the error of a call that was not sent, and may be sent later.
func unsent(err error) error {
	return edda.Classify(edda.Temporary, "%w: %w", effects.ErrNotSent, err)
}

// impossible is the error of a call that no attempt can make.
func impossible(err error) error {
	return edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
}

// lost returns the error of a request without a reply. The client's other errors come also after it
// has published the request.
func lost(subject string, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return unsent(fmt.Errorf("no service subscribes to %s", subject))
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return unsent(errApart)
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrHeadersNotSupported), errors.Is(err, nats.ErrBadSubject):
		return impossible(err)
	default:
		return edda.Classify(edda.Temporary, "no answer: %w", fmt.Errorf("%s: %w", subject, err))
	}
}
