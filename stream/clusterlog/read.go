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
	// pullHeartbeat is the least that the client allows. Two lost ones tell that the consumer is gone with its server.
	pullHeartbeat = 500 * time.Millisecond
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

// consume reads from a new consumer until an error, or nil at the end. The client calls back for each message, and for
// errors that its iterator hides: a pull that no server took is one. In a cluster of NATS the server of this connection may
// learn of a new consumer later than the client does.
func (l *Log) consume(ctx context.Context, r *cluster.Reader, until uint64, visit cluster.Visit) error {
	cons, err := l.consumer(ctx, r.Seq()+1)
	if err != nil {
		return err
	}
	defer l.remove(ctx, cons)
	feeding, cancel := context.WithCancel(ctx)
	defer cancel()
	messages, failed := make(chan jetstream.Msg), make(chan error, 1)
	feed := func(m jetstream.Msg) {
		select {
		case messages <- m:
		case <-feeding.Done():
		}
	}
	fail := func(_ jetstream.ConsumeContext, err error) {
		select {
		case failed <- err:
		default: // the first one ends the reading
		}
	}
	reading, err := cons.Consume(feed, jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes),
		jetstream.PullHeartbeat(pullHeartbeat), jetstream.ConsumeErrHandler(fail))
	if err != nil {
		return final(err)
	}
	defer reading.Stop()
	p := pace{last: time.Now()}
	wait := p.patience()
	quiet := time.NewTimer(wait)
	defer quiet.Stop()
	for r.Seq() < until {
		select {
		case m := <-messages:
			if err := take(r, m, visit); err != nil {
				return err
			}
			p.came()
			wait = p.patience()
		case <-quiet.C:
			came, err := l.ahead(ctx, r, visit)
			switch {
			case err != nil:
				return err
			case came: // look for the next one there, too, unless the consumer sends it meanwhile
				p.came()
				wait = 0
			default:
				wait = min(max(2*wait, p.patience()), quietMost)
			}
		case err := <-failed:
			return final(err)
		case <-reading.Closed():
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
		quiet.Reset(wait)
	}
	return nil
}

// errEnded says that the client has ended a consumer.
var errEnded = errors.New("the client has ended the consumer")

// take takes a message of the consumer. The leader may have had it before.
func take(r *cluster.Reader, m jetstream.Msg, visit cluster.Visit) error {
	md, err := m.Metadata()
	if err != nil || md.Sequence.Stream <= r.Seq() {
		return err
	}
	return accept(r, md.Sequence.Stream, m.Headers(), m.Data(), visit)
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

// ahead takes the next message from the leader, if it has one that the consumer has not sent.
func (l *Log) ahead(ctx context.Context, r *cluster.Reader, visit cluster.Visit) (came bool, err error) {
	m, err := l.message(ctx, r.Seq()+1)
	if err != nil {
		return false, nil // there is none, or the consumer tells what is wrong
	}
	return true, accept(r, m.Sequence, m.Header, m.Data, visit)
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
