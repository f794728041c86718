package clusterlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
)

const (
	// fewMessages are read one by one from the leader of the stream. That is faster than a consumer,
	// and needs no other leader: a takeover reads what a busy owner has just appended.
	fewMessages = 16
	// pullMessages and pullBytes bound the messages in flight from the server.
	pullMessages = 256
	pullBytes    = 8 << 20
	// pullHeartbeat is the least that the client allows. Two lost ones would tell that the consumer is gone with its
	// server, if the client waited for a message that long.
	pullHeartbeat = 500 * time.Millisecond
	// checkAfter is how long nothing comes until the consumer is looked at.
	checkAfter = time.Second
	// quietLeast and quietMost bound how long the consumer sends nothing until the leader is asked. The consumer may be on
	// a server that follows, which learns of the last message with the next one, or up to a second later. The last message
	// of an owner is the one that hands over.
	quietLeast = 20 * time.Millisecond
	quietMost  = 250 * time.Millisecond
	// consumerWithin bounds the creation and the removal of a consumer.
	consumerWithin = 2 * time.Second
	// abandonedAfter is when the server removes the consumer of a reader that has ended.
	abandonedAfter = 30 * time.Second
)

// Read implements cluster.Log. It reads through an ephemeral consumer, and makes another one behind
// the last message when the consumer is lost or the connection has lost a message. A few messages it
// gets from the leader instead.
func (l *Log) Read(ctx context.Context, after cluster.Mark, until uint64, visit cluster.Visit) error {
	r := cluster.NewReader(after)
	retry := backoff.Exponential{First: retryFirst, Most: retryMost}
	for r.Seq() < until {
		before, read := r.Seq(), l.consume
		if until-before <= fewMessages {
			read = l.get
		}
		err := read(ctx, r, until, visit)
		switch {
		case ctx.Err() != nil && !errors.As(err, new(visitError)):
			return context.Cause(ctx)
		case err == nil:
			return nil
		case errors.As(err, new(visitError)):
			return errors.Unwrap(err)
		case errors.Is(err, cluster.ErrGap):
			if err := l.trimmed(ctx, r.Seq()); err != nil {
				return err
			}
		case errors.Is(err, edda.Permanent):
			return fmt.Errorf("read %s: %w", l.name, err)
		}
		if r.Seq() > before {
			retry.Reset()
		}
		_ = backoff.Wait(ctx, retry.Next())
	}
	return nil
}

// visitError is an error of the caller's visit, which ends the read.
type visitError struct{ error }

func (e visitError) Unwrap() error { return e.error }

// consume reads from a new consumer until an error, or nil at the end.
func (l *Log) consume(ctx context.Context, r *cluster.Reader, until uint64, visit cluster.Visit) error {
	cons, err := l.consumer(ctx, r.Seq()+1)
	if err != nil {
		return err
	}
	defer l.remove(ctx, cons)
	messages, err := cons.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes),
		jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return final(err)
	}
	defer messages.Stop()
	p := pace{last: time.Now()}
	wait, checked := p.patience(), p.last
	for r.Seq() < until {
		m, err := next(ctx, messages, wait)
		if err != nil {
			return final(err)
		}
		if m == nil {
			before := r.Seq()
			if err := l.ahead(ctx, r, until, visit); err != nil {
				return err
			}
			wait = min(2*wait, quietMost)
			if r.Seq() > before {
				p.came()
				wait = p.patience()
			}
			if time.Since(checked) >= checkAfter {
				checked = time.Now()
				if err := l.check(ctx, cons, r.Seq()); err != nil {
					return err
				}
			}
			continue
		}
		p.came()
		wait, checked = p.patience(), p.last
		md, err := m.Metadata()
		if err != nil {
			return err
		}
		if md.Sequence.Stream <= r.Seq() {
			continue // the client pulled it again
		}
		if err := accept(r, md.Sequence.Stream, m.Headers(), m.Data(), visit); err != nil {
			return err
		}
	}
	return nil
}

// pace is how fast messages come. Where they always come slowly, silence says little, and a question to the leader costs
// as much as a message.
type pace struct {
	last time.Time
	gap  time.Duration // the mean of the last ones
}

func (p *pace) came() {
	now := time.Now()
	p.gap += (min(now.Sub(p.last), quietMost) - p.gap) / 4
	p.last = now
}

// patience is how long a silence is until the leader is asked.
func (p *pace) patience() time.Duration { return min(max(quietLeast, 2*p.gap), quietMost) }

// next returns the next message of the consumer; nil if none came in time.
func next(ctx context.Context, messages jetstream.MessagesContext, wait time.Duration) (jetstream.Msg, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := messages.Next(jetstream.NextContext(waiting))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, nil
	}
	return m, err
}

// check returns an error if a quiet consumer is lost, or has messages that it does not send: the first pull of a new
// consumer may find no server.
func (l *Log) check(ctx context.Context, cons jetstream.Consumer, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	info, err := cons.Info(ctx)
	if err != nil {
		return final(err)
	}
	if info.NumPending > 0 || info.Delivered.Stream > seq {
		return errSilent
	}
	return nil
}

// errSilent says that a consumer sends nothing although it has something to send.
var errSilent = errors.New("the consumer sends nothing")

// ahead reads what the leader has more than the consumer has sent.
func (l *Log) ahead(ctx context.Context, r *cluster.Reader, until uint64, visit cluster.Visit) error {
	for range pullMessages {
		if r.Seq() >= until {
			return nil
		}
		m, err := l.message(ctx, r.Seq()+1)
		if err != nil {
			return nil // there is none, or the consumer tells what is wrong
		}
		if err := accept(r, m.Sequence, m.Header, m.Data, visit); err != nil {
			return err
		}
	}
	return nil
}

// get reads message by message from the leader.
func (l *Log) get(ctx context.Context, r *cluster.Reader, until uint64, visit cluster.Visit) error {
	for r.Seq() < until {
		m, err := l.message(ctx, r.Seq()+1)
		if err != nil {
			return err
		}
		if err := accept(r, m.Sequence, m.Header, m.Data, visit); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) message(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	m, err := l.stream.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("message %d: %w", seq, cluster.ErrGap)
	}
	return m, final(err)
}

func accept(r *cluster.Reader, seq uint64, h nats.Header, body []byte, visit cluster.Visit) error {
	m, err := decode(h, body)
	if err != nil {
		return edda.Classify(edda.Permanent, "message %d: %w", seq, err)
	}
	rec, whole, err := r.Message(seq, m)
	if err != nil || !whole {
		return err
	}
	if err := visit(r.Mark(), rec); err != nil {
		return visitError{err}
	}
	return nil
}

func (l *Log) consumer(ctx context.Context, from uint64) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, consumerWithin)
	defer cancel()
	cons, err := l.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Description:   "edda: a reader of the log",
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, // the reader's mark is the position
		InactiveThreshold: abandonedAfter,
	})
	if err != nil {
		return nil, fmt.Errorf("create a consumer: %w", final(err))
	}
	return cons, nil
}

// remove removes a consumer. The server does that, too, if this fails.
func (l *Log) remove(ctx context.Context, cons jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackWithin)
	defer cancel()
	_ = l.stream.DeleteConsumer(ctx, cons.CachedInfo().Name)
}

// trimmed returns an error if the log no longer has the message behind one with a sequence.
func (l *Log) trimmed(ctx context.Context, seq uint64) error {
	first, err := l.first(ctx)
	if err == nil && first > seq+1 {
		return fmt.Errorf("read %s behind message %d: it begins at message %d: %w", l.name, seq, first, cluster.ErrTrimmed)
	}
	return nil
}

// first is the sequence of the first message that the log still has.
func (l *Log) first(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	info, err := l.stream.Info(ctx)
	if err != nil {
		return 0, final(err)
	}
	return info.State.FirstSeq, nil
}
