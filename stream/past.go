package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
)

// pastWait is how long the next message of a stream that is read again may take.
const pastWait = 10 * time.Second

// Past reads what the input streams still hold, beside live processing and without
// changing anything. It is for one goroutine.
type Past struct {
	js    jetstream.JetStream
	codec Codec
}

// NewPast makes one.
func NewPast(js jetstream.JetStream, codec Codec) *Past { return &Past{js: js, codec: codec} }

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
	cons, err := p.js.OrderedConsumer(ctx, in.name, jetstream.OrderedConsumerConfig{
		FilterSubjects: p.codec.filters(Tenants{tenant}, "*", in.families...), DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return first, fmt.Errorf("read stream %s again: %w", in.name, err)
	}
	info, err := cons.Info(ctx)
	if err != nil {
		return first, fmt.Errorf("look at stream %s: %w", in.name, err)
	}
	if info.NumPending == 0 && info.Delivered.Consumer == 0 {
		return first, nil
	}
	return first, p.read(ctx, in.name, cons, last, visit)
}

func (p *Past) read(ctx context.Context, name string, cons jetstream.Consumer, last uint64, visit func(edda.Event) error) error {
	it, err := cons.Messages(jetstream.PullMaxMessages(pullMessages))
	if err != nil {
		return fmt.Errorf("read stream %s again: %w", name, err)
	}
	defer it.Stop()
	for {
		m, err := p.next(ctx, it)
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
		ev := p.codec.Event(Message{
			Subject: m.Subject(), Header: m.Headers(), Data: m.Data(), Stream: name, Seq: md.Sequence.Stream, Time: md.Timestamp,
		})
		if err := visit(ev); err != nil {
			return err
		}
		if md.NumPending == 0 || md.Sequence.Stream == last {
			return nil
		}
	}
}

// next waits for a message, and no longer than it may take.
func (p *Past) next(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	wait, cancel := context.WithTimeout(ctx, pastWait)
	defer cancel()
	m, err := it.Next(jetstream.NextContext(wait))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("no message came within %s", pastWait)
	}
	return m, err
}
