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

// rereadWait is how long the next message of a stream that is read again may take.
const rereadWait = 10 * time.Second

// Past reads what the input streams still hold, beside live processing and without
// changing anything. It is for one goroutine.
type Past struct {
	js    jetstream.JetStream
	codec wire.Codec
}

// NewPast makes one.
func NewPast(js jetstream.JetStream, codec wire.Codec) *Past { return &Past{js: js, codec: codec} }

// Each calls visit with every input of the tenant at or before the positions, one
// stream after the other, each in its order; streams without a position are left
// out. It tells of each stream which sequence is the first that it holds.
func (p *Past) Each(ctx context.Context, tenant string, upto []edda.Checkpoint, visit func(edda.Event) error) (map[string]uint64, error) {
	first := map[string]uint64{}
	for _, in := range inputs() {
		for _, c := range upto {
			if c.Stream != in.name {
				continue
			}
			at, err := p.stream(ctx, in, tenant, c.Seq, visit)
			if err != nil {
				return nil, err
			}
			first[in.name] = at
		}
	}
	return first, nil
}

func (p *Past) stream(ctx context.Context, in plan, tenant string, last uint64, visit func(edda.Event) error) (uint64, error) {
	s, err := p.js.Stream(ctx, in.name)
	if err != nil {
		return 0, fmt.Errorf("open stream %s: %w", in.name, err)
	}
	first := s.CachedInfo().State.FirstSeq
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: p.codec.Filters(wire.Tenants{tenant}, "*", in.families...), DeliverPolicy: jetstream.DeliverAllPolicy}
	return first, readAgain(ctx, p.js, in.name, cfg, last, func(m jetstream.Msg, md *jetstream.MsgMetadata) error {
		msg := wire.Message{Subject: m.Subject(), Header: m.Headers(), Data: m.Data(), Stream: in.name, Seq: md.Sequence.Stream, Time: md.Timestamp}
		if stray(msg) {
			return nil
		}
		return visit(p.codec.Event(msg))
	})
}

// readAgain calls visit with the messages up to last that a consumer of its own gives,
// in their order.
func readAgain(ctx context.Context, js jetstream.JetStream, name string, cfg jetstream.OrderedConsumerConfig, last uint64,
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
		m, err := nextAgain(ctx, it)
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

// nextAgain waits for a message, and no longer than it may take.
func nextAgain(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	wait, cancel := context.WithTimeout(ctx, rereadWait)
	defer cancel()
	m, err := it.Next(jetstream.NextContext(wait))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("no message came within %s", rereadWait)
	}
	return m, err
}
