package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// scanWait bounds the wait for the next message of a scan.
const scanWait = 10 * time.Second

// Past reads what the input streams still hold, for replays. It changes nothing. It is not safe for
// concurrent use.
type Past struct {
	js    jetstream.JetStream
	codec wire.Codec
}

func NewPast(js jetstream.JetStream, codec wire.Codec) *Past { return &Past{js: js, codec: codec} }

// Each calls visit with every input of the tenant at or before the positions. It reads one stream
// after the other, each in its order, and skips streams without a position. It returns the first
// sequence of each stream.
func (p *Past) Each(ctx context.Context, tenant string, upto []edda.Checkpoint, visit func(edda.Event) error) (map[string]uint64, error) {
	first := map[string]uint64{}
	for _, c := range upto {
		first[c.Stream] = c.Seq + 1 // if no source reads it any more
	}
	for _, in := range inputs(p.codec) {
		for _, c := range upto {
			if c.Stream != in.stream {
				continue
			}
			at, err := p.stream(ctx, in, tenant, c, visit)
			if err != nil {
				return nil, err
			}
			first[in.stream] = at
		}
	}
	return first, nil
}

func (p *Past) stream(ctx context.Context, in inputStream, tenant string, upto edda.Checkpoint, visit func(edda.Event) error) (uint64, error) {
	s, err := in.open(ctx, p.js)
	if err != nil {
		return 0, err
	}
	first := s.CachedInfo().State.FirstSeq
	if in.mapping != nil && s.CachedInfo().State.NumDeleted > 0 { // its owner may remove any message
		first = upto.Seq + 1
	}
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	if in.mapping == nil {
		cfg.FilterSubjects = p.codec.Filters(wire.Tenants{tenant}, "*", in.families...)
	} else if !in.all(s, p.codec.Grammar) {
		cfg.FilterSubjects = in.mapping.Subjects()
	}
	return first, scanStream(ctx, p.js, in.stream, cfg, upto.Last(), func(m jetstream.Msg, md *jetstream.MsgMetadata) error {
		msg := wire.Message{Subject: m.Subject(), Header: m.Headers(), Data: m.Data(), Stream: in.stream, Seq: md.Sequence.Stream, Time: md.Timestamp}
		if in.mapping == nil && isStrayAck(msg) {
			return nil
		}
		for _, m := range p.codec.Split(msg) {
			ev := p.codec.Event(m)
			if in.mapping != nil && !p.codec.NoTenancy && ev.Tenant != tenant || !upto.Covers(&ev) {
				continue
			}
			if err := visit(ev); err != nil {
				return err
			}
		}
		return nil
	})
}

// scanStream calls visit with the messages up to sequence last, in order, through an ordered
// consumer of its own.
func scanStream(ctx context.Context, js jetstream.JetStream, name string, cfg jetstream.OrderedConsumerConfig, last uint64,
	visit func(jetstream.Msg, *jetstream.MsgMetadata) error) error {
	cons, err := js.OrderedConsumer(ctx, name, cfg)
	if err != nil {
		return fmt.Errorf("read stream %s again: %w", name, err)
	}
	info, err := cons.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", name, err)
	}
	if info.NumPending == 0 && info.Delivered.Consumer == 0 {
		return nil
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(pullMessages))
	if err != nil {
		return fmt.Errorf("read stream %s again: %w", name, err)
	}
	defer it.Stop()
	for {
		m, err := nextScanned(ctx, it)
		if err != nil {
			return fmt.Errorf("read stream %s again: %w", name, err)
		}
		md, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("read metadata: %w", err)
		}
		if md.Sequence.Stream > last {
			return nil
		}
		if err := visit(m, md); err != nil {
			return err
		}
		if md.NumPending == 0 || md.Sequence.Stream == last {
			return nil
		}
	}
}

// nextScanned waits up to scanWait for the next message.
func nextScanned(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	wait, cancel := context.WithTimeout(ctx, scanWait)
	defer cancel()
	m, err := it.Next(jetstream.NextContext(wait))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("no message came within %s", scanWait)
	}
	return m, err
}
