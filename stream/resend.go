package stream

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// Resend publishes the message of a dead letter again, with another body if data is not empty. It
// publishes under a new id, because the stream drops the old one. The same new id is stored once.
// What the letter lacks is read from the stream. An edda.Permanent error says what is missing.
func (p *Publisher) Resend(ctx context.Context, d edda.DeadLetter, data json.RawMessage, id string) (Sent, error) {
	if p.codec.Mappings[d.Event.Stream] != nil {
		return p.resendMapped(ctx, d, data)
	}
	if err := p.unread(d); err != nil {
		return Sent{}, err
	}
	m, err := p.original(ctx, d)
	if err != nil {
		return Sent{}, err
	}
	if len(data) > 0 {
		m.Data = data
	}
	if len(m.Data) == 0 {
		return Sent{}, edda.Classify(edda.Permanent, "the whole message is not stored any more: give its body with --data")
	}
	if m, err = p.codec.Fresh(m, id); err != nil {
		return Sent{}, err
	}
	return p.publish(ctx, m)
}

// unread returns an error if the dead letter is of a stream of others that no source reads any more.
func (p *Publisher) unread(d edda.DeadLetter) error {
	if d.Event.Stream == "" || reads(p.codec, d.Event.Stream) {
		return nil
	}
	return edda.Classify(edda.Permanent, "no source reads the stream %s any more: configure it again, or publish the event anew and drop this dead letter", d.Event.Stream)
}

// resendMapped reads the message of a stream that others own again, as the source says now, and
// publishes the event to Edda's own stream. The event keeps its id. Of a batch that no event came of it
// publishes each.
func (p *Publisher) resendMapped(ctx context.Context, d edda.DeadLetter, data json.RawMessage) (sent Sent, err error) {
	m, err := p.message(ctx, d)
	switch {
	case errors.Is(err, edda.Permanent) && len(data) > 0 && d.Subject != "":
		m = wire.Message{Subject: d.Subject, Stream: d.Event.Stream, Seq: d.Event.Seq, Time: d.Event.StoredAt(), Member: d.Event.Member}
	case err != nil:
		return Sent{}, err
	}
	if len(data) > 0 {
		m.Data = data
	}
	var events []edda.Event
	for _, one := range p.codec.Split(m) {
		ev := p.codec.Event(one)
		if ev.Malformed != "" {
			return Sent{}, edda.Classify(edda.Permanent, "%s still cannot be read: %s", inStream(d), ev.Error)
		}
		if ev.Tenant != d.Event.Tenant {
			return Sent{}, edda.Classify(edda.Permanent, "%s is now read as an event of another tenant, %s: publish it as an event of that tenant, and drop this dead letter", inStream(d), ev.Tenant)
		}
		events = append(events, ev)
	}
	for _, ev := range events {
		if sent, err = p.Send(ctx, ev); err != nil {
			// Those that are sent count once when all are sent again, while the stream or their instance
			// remembers their ids.
			return Sent{}, err
		}
	}
	return sent, nil
}

// original returns the message of the dead letter: from the stream, or else from what the letter
// has of it.
func (p *Publisher) original(ctx context.Context, d edda.DeadLetter) (*nats.Msg, error) {
	if d.Event.Stream != "" && d.Event.Seq > 0 {
		first, err := p.message(ctx, d)
		if err == nil {
			return p.codec.Copy(first), nil
		}
		if !errors.Is(err, edda.Permanent) {
			return nil, err
		}
	}
	if d.Event.Kind == edda.KindResult && d.Event.Stream == "" {
		return p.echo(ctx, d.Event)
	}
	if d.Subject == "" {
		return nil, edda.Classify(edda.Permanent, "the stream no longer has the message, and its subject is not stored: send it as a new message, and drop this dead letter")
	}
	m := &nats.Msg{Subject: d.Subject, Header: nats.Header{}}
	if len(d.Raw) < wire.MaxRaw { // a longer body was cut off
		m.Data = d.Raw
	}
	return m, nil
}

// ReadBack restores the payload of a dead letter from the message in its stream. An edda.Permanent
// error says that the stream no longer has the message.
func (p *Publisher) ReadBack(ctx context.Context, d edda.DeadLetter) (edda.DeadLetter, error) {
	m, err := p.message(ctx, d)
	if err != nil {
		return d, err
	}
	if d.Event.Malformed != "" {
		d.Event.Payload = wire.Excerpt(m.Data)
		return d, nil
	}
	ev := p.codec.Event(m)
	if ev.Malformed != "" {
		return d, edda.Classify(edda.Permanent, "%s can no longer be read: %s", inStream(d), ev.Error)
	}
	d.Event.Payload = ev.Payload
	return d, nil
}

func inStream(d edda.DeadLetter) string { return d.Event.Place() }

// message reads the message of a dead letter from its stream. A recreated stream may have another
// message at the sequence; that is an error.
func (p *Publisher) message(ctx context.Context, d edda.DeadLetter) (wire.Message, error) {
	if err := p.unread(d); err != nil {
		return wire.Message{}, err
	}
	s, err := p.js.Stream(ctx, d.Event.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return wire.Message{}, edda.Classify(edda.Permanent, "there is no stream %s any more", d.Event.Stream)
	}
	if err != nil {
		return wire.Message{}, edda.Classify(edda.Temporary, "look at stream %s: %w", d.Event.Stream, err)
	}
	raw, err := s.GetMsg(ctx, d.Event.Seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return wire.Message{}, edda.Classify(edda.Permanent, "%s is gone", inStream(d))
	}
	if err != nil {
		return wire.Message{}, edda.Classify(edda.Temporary, "look at %s: %w", inStream(d), err)
	}
	m := wire.Message{Subject: raw.Subject, Header: raw.Header, Data: raw.Data, Stream: d.Event.Stream, Seq: raw.Sequence, Time: raw.Time}
	if n := d.Event.Member; n > 0 {
		members := p.codec.Members(m)
		if len(members) < n {
			return wire.Message{}, edda.Classify(edda.Permanent, "message %d of stream %s is no batch with a member %d", m.Seq, m.Stream, n)
		}
		m = members[n-1]
	}
	if !p.isOf(m, d) {
		return wire.Message{}, edda.Classify(edda.Permanent, "%s is another message now, because the stream was made anew", inStream(d))
	}
	return m, nil
}

// isOf reports whether the dead letter was made of the message: store time, subject and, in Edda's own
// streams, id are the same. An unreadable message has the id of its header. The letter may have only the beginning of a
// long id.
func (p *Publisher) isOf(m wire.Message, d edda.DeadLetter) bool {
	if !m.Time.Equal(d.Event.StoredAt()) || d.Subject != "" && d.Subject != m.Subject {
		return false
	}
	if p.codec.Mappings[m.Stream] != nil { // the source may read another id now
		return true
	}
	ev := p.codec.Event(m)
	return ev.Tenant == d.Event.Tenant &&
		(strings.HasPrefix(ev.ID, d.Event.ID) || strings.HasPrefix(p.codec.ID(m), d.Event.ID))
}

// echo reads the echo of a result that was handed over inside the process.
func (p *Publisher) echo(ctx context.Context, ev edda.Event) (*nats.Msg, error) {
	s, err := p.js.Stream(ctx, wire.WorkflowEvents)
	if err != nil {
		return nil, edda.Classify(edda.Temporary, "look at stream %s: %w", wire.WorkflowEvents, err)
	}
	// Earlier versions published echoes under the subject of a result.
	for _, family := range []wire.Family{wire.FamilyEcho, wire.FamilyResult} {
		subject, err := p.codec.Build(wire.Subject{Tenant: ev.Tenant, Family: family, Name: ev.Type, ID: ev.CommandID})
		if err != nil {
			return nil, err
		}
		m, err := s.GetLastMsgForSubject(ctx, subject)
		if err == nil {
			return p.codec.Copy(wire.Message{Subject: m.Subject, Header: m.Header, Data: m.Data}), nil
		}
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, edda.Classify(edda.Temporary, "look at %s of %s: %w", subject, wire.WorkflowEvents, err)
		}
	}
	return nil, edda.Classify(edda.Permanent, "the echo of the result is not in %s (any more): its command is sent again by and by", wire.WorkflowEvents)
}
