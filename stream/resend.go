package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// Resend publishes the message that a dead letter was made of once more, with
// another body where there is data, under an id of its own: the stream would drop
// the id it had. The same id is stored once. What the letter does not hold is
// read from the stream. An error that is edda.Permanent says what is missing.
func (p *Publisher) Resend(ctx context.Context, d edda.DeadLetter, data json.RawMessage, id string) (Sent, error) {
	m, err := p.original(ctx, d)
	if err != nil {
		return Sent{}, err
	}
	if len(data) > 0 {
		m.Data = data
	}
	if len(m.Data) == 0 {
		return Sent{}, edda.Classify(edda.Permanent, "nobody has the whole message any more: give its body with --data")
	}
	if m, err = p.codec.Fresh(m, id); err != nil {
		return Sent{}, err
	}
	return p.publish(ctx, m)
}

// original is the message as it was: from the stream where that still has it,
// else what the letter keeps of it.
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
		return nil, edda.Classify(edda.Permanent, "the stream no longer has the message, and nobody knows its subject: send it anew, and drop this dead letter")
	}
	m := &nats.Msg{Subject: d.Subject, Header: nats.Header{}}
	if len(d.Raw) < wire.MaxRaw { // else it is the beginning only
		m.Data = d.Raw
	}
	return m, nil
}

// ReadBack fills in what a dead letter lacks, from the message in its stream. An
// error that is edda.Permanent says that the stream no longer has that message.
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

func inStream(d edda.DeadLetter) string {
	return fmt.Sprintf("message %d of stream %s", d.Event.Seq, d.Event.Stream)
}

// message is the message of a dead letter, as its stream has it. A stream that was
// made anew may have another at the same sequence, which is never taken.
func (p *Publisher) message(ctx context.Context, d edda.DeadLetter) (wire.Message, error) {
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
	if !p.isOf(m, d) {
		return wire.Message{}, edda.Classify(edda.Permanent, "%s is another message now, because the stream was made anew", inStream(d))
	}
	return m, nil
}

// isOf tells whether the message is the one of which the dead letter was made: it was
// stored at the same time, under the same subject, with the same id. A message that could
// not be read is known by the id of its header; a long id may be kept in part.
func (p *Publisher) isOf(m wire.Message, d edda.DeadLetter) bool {
	ev := p.codec.Event(m)
	return m.Time.Equal(d.Event.StoredAt()) && (d.Subject == "" || d.Subject == m.Subject) && ev.Tenant == d.Event.Tenant &&
		(strings.HasPrefix(ev.ID, d.Event.ID) || strings.HasPrefix(p.codec.ID(m), d.Event.ID))
}

// echo is the message of a result that was applied within the process.
func (p *Publisher) echo(ctx context.Context, ev edda.Event) (*nats.Msg, error) {
	s, err := p.js.Stream(ctx, wire.WorkflowEvents)
	if err != nil {
		return nil, edda.Classify(edda.Temporary, "look at stream %s: %w", wire.WorkflowEvents, err)
	}
	// Echoes of versions before have the subject of a result.
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
