// Package grpceffect calls effects over gRPC: one unary method of one target, with a message in the
// JSON form of protobuf.
//
// There is no generated code: the types of a method come from a .proto file, a descriptor set, or
// the server's reflection. Every call sends its idempotency key as metadata idempotency-key, the
// trace as traceparent, and its remaining time as the deadline. A message that does not fit the
// method is never sent. gRPC repeats a call by itself only if the server surely never saw it. An
// answer has at most 1 MiB. Addresses that are not public are refused when they are dialled, unless
// the options allow them.
package grpceffect

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"edda"
	"edda/effects"
	"edda/effects/dial"
)

// The bounds of a call.
const (
	// maxAnswer bounds an answer, as NATS bounds a message.
	maxAnswer = 1 << 20
	// maxMessage bounds a message. It is the default bound of gRPC servers.
	maxMessage = 4 << 20
)

// Provider makes gRPC calls on connections that it keeps.
type Provider struct {
	conns   *pool
	schemas *schemas
}

// New makes a provider. It connects to nothing yet.
func New(o Options) *Provider {
	return &Provider{conns: newPool(o), schemas: newSchemas()}
}

// Close closes the connections, those in use when their calls end.
func (p *Provider) Close() { p.conns.close() }

// Call makes one call; see effects.Provider.
func (p *Provider) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	r, err := read(c)
	if err != nil {
		return effects.Response{}, impossible(err)
	}
	conn, err := p.conns.take(r.target, r.plaintext, r.tls)
	if err != nil {
		return effects.Response{}, impossible(err)
	}
	defer p.conns.give(conn)
	from := r.source(conn)
	e := p.schemas.entry(r.method + "\x00" + from.key())
	m, raw, err := fit(ctx, e, from, r)
	if err != nil {
		return effects.Response{}, unsent(err)
	}
	return invoke(r.traced(ctx), conn, e, m, r, raw)
}

// fit encodes the message for the known method. If the message does not fit, fit reads the method
// again, because the server may have changed.
func fit(ctx context.Context, e *entry, from descriptors, r request) (*method, []byte, error) {
	m, err := e.get(ctx, from, r.method)
	if err != nil {
		return nil, nil, err
	}
	raw, misfit := m.encode(r.message)
	if misfit == nil {
		return m, raw, nil
	}
	e.doubt()
	newer, err := e.get(ctx, from, r.method)
	if err == nil && newer != m {
		raw, misfit = newer.encode(r.message)
	}
	if misfit != nil {
		return nil, nil, edda.Classify(edda.Permanent, "%w", misfit)
	}
	return newer, raw, nil
}

// invoke sends the message and reads the answer.
func invoke(ctx context.Context, c *conn, e *entry, m *method, r request, raw []byte) (effects.Response, error) {
	t, in, out := &progress{}, &frame{data: raw}, &frame{}
	var header, trailer metadata.MD
	ctx = metadata.NewOutgoingContext(t.in(ctx), r.metadata())
	err := c.cc.Invoke(ctx, m.path, in, out, grpc.Header(&header), grpc.Trailer(&trailer), grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxAnswer))
	if err != nil && t.unread(err) {
		return effects.Response{}, edda.Classify(edda.Permanent, "an answer came that cannot be taken: %s", text(err))
	}
	if err != nil && (!in.taken || !t.answered.Load() || overtaken(ctx, err)) {
		return effects.Response{}, lost(ctx, c, in, t, err)
	}
	resp, newer, err := m.response(out.data, status.Convert(err), metadata.Join(header, trailer))
	if newer || resp.Status == int(codes.Unimplemented) {
		e.doubt()
	}
	if err != nil {
		return effects.Response{}, edda.Classify(edda.Permanent, "the call was accepted, and its answer cannot be read: %w", err)
	}
	return resp, nil
}

// overtaken reports whether the call's own context ended it, whatever arrived before.
func overtaken(ctx context.Context, err error) bool {
	code := status.Code(err)
	return ctx.Err() != nil && (code == codes.Canceled || code == codes.DeadlineExceeded)
}

// lost returns the error of a call without an answer. A connection on which nothing arrived in time
// may be dead.
func lost(ctx context.Context, c *conn, in *frame, t *progress, err error) error {
	if !in.taken && ctx.Err() != nil {
		return unsent(errors.New(text(err)))
	}
	if !in.taken {
		return unsent(c.why(err))
	}
	if status.Code(err) == codes.DeadlineExceeded && !t.begun.Load() {
		c.broken.Store(true)
	}
	return edda.Classify(edda.Temporary, "no answer: %s", text(err))
}

// unsent is the error of a call that was not sent.
func unsent(err error) error {
	class := edda.Temporary
	if errors.Is(err, edda.Permanent) || errors.Is(err, dial.ErrForbidden) {
		class = edda.Permanent
	}
	return edda.Classify(class, "%w: %w", effects.ErrNotSent, err)
}

// impossible is the error of a call that no attempt can make.
func impossible(err error) error {
	return edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
}

// text returns the message of a status.
func text(err error) string { return strings.ToValidUTF8(status.Convert(err).Message(), "\uFFFD") }
