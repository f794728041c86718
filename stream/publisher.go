package stream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
	"edda/outbox"
	"edda/stream/wire"
)

const (
	// publishWindow bounds the messages without an ack in one Deliver.
	publishWindow = 256
	// publishWait bounds the wait for one ack. After it the message may or may not be stored, and
	// the relay offers it again under the same id.
	publishWait = 5 * time.Second
)

// Publisher writes to the streams. Its methods may be called concurrently.
type Publisher struct {
	js       jetstream.JetStream
	codec    wire.Codec
	unacked  *unacked
	failures publishFailures
	tail     atomic.Pointer[Tail] // nil: published messages are not recorded
	fence    atomic.Pointer[func(context.Context) error]
}

var (
	_ outbox.Destination = (*Publisher)(nil)
	_ outbox.Rejecter    = (*Publisher)(nil)
	_ effects.Publisher  = (*Publisher)(nil)
)

func NewPublisher(js jetstream.JetStream, c wire.Codec) *Publisher {
	return &Publisher{js: js, codec: c, unacked: newUnacked(js.Conn())}
}

// Follow sets the tail that records what Deliver publishes.
func (p *Publisher) Follow(t *Tail) { p.tail.Store(t) }

// Fence sets what each window of Deliver must pass. An error of it says that this process may not publish now.
func (p *Publisher) Fence(pass func(context.Context) error) { p.fence.Store(&pass) }

// mayPublish passes the fence. Without a connection nothing is published either: the client would keep the
// messages, and send them when another process may have the lease.
func (p *Publisher) mayPublish(ctx context.Context) error {
	if !p.js.Conn().IsConnected() {
		return nats.ErrDisconnected
	}
	if pass := p.fence.Load(); pass != nil {
		return (*pass)(ctx)
	}
	return nil
}

// Deliver publishes all kinds of work but messages; commands only if there is no gateway. It
// publishes in the order of the batch. Errors are edda.Temporary or an *outbox.Rejection.
func (p *Publisher) Deliver(ctx context.Context, batch []edda.Work) []error {
	errs, began := make([]error, len(batch)), time.Now()
	for from := 0; from < len(batch); from += publishWindow {
		to := min(from+publishWindow, len(batch))
		p.window(ctx, batch[from:to], errs[from:to])
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		p.failures.noteAll(batch, began, nil)
		return nil
	}
	p.failures.noteAll(batch, began, errs)
	return errs
}

// window publishes, then waits for all acks. It does not retry, because then later messages would
// overtake the failed one.
func (p *Publisher) window(ctx context.Context, batch []edda.Work, errs []error) {
	var w *window
	var err error
	tail := p.tail.Load()
	if tail != nil {
		err = tail.await(ctx)
	}
	if err == nil {
		err = p.mayPublish(ctx)
	}
	if err == nil {
		w, err = p.unacked.open(batch, tail)
	}
	if err != nil {
		for i := range errs {
			errs[i] = temporary(&batch[i], err)
		}
		return
	}
	defer w.close()
	d := wire.NewDraft()
	for i := range batch {
		errs[i] = p.start(ctx, w, i, d, &batch[i])
	}
	for i, fate := range w.wait(ctx) {
		if errs[i] == nil && fate != nil {
			errs[i] = temporary(&batch[i], fate)
		}
	}
	p.confirm(ctx, d, w.duplicates(), batch, errs)
}

// confirm compares each duplicate with the stored message. If that is another publisher's, confirm
// publishes the work under another Nats-Msg-Id. No other work in the batch is from the same
// instance, so it overtakes nothing. confirm stops at the first error.
func (p *Publisher) confirm(ctx context.Context, d *wire.Draft, dups []duplicate, batch []edda.Work, errs []error) {
	var failed error
	for _, t := range dups {
		w := &batch[t.place]
		if failed == nil {
			failed = p.confirmOne(ctx, d, t, w)
		}
		if failed != nil {
			errs[t.place] = temporary(w, failed)
		}
	}
}

func (p *Publisher) confirmOne(ctx context.Context, d *wire.Draft, t duplicate, w *edda.Work) error {
	if err := p.codec.WriteWork(d, w); err != nil {
		return err
	}
	d.Reply = "" // the client sets its own
	is, err := p.stored(ctx, t.stream, t.seq, &d.Msg)
	stream, seq := t.stream, t.seq
	if err == nil && !is {
		p.codec.Rename(&d.Msg, rand.Text())
		var ack *jetstream.PubAck
		if ack, err = p.put(ctx, &d.Msg); err == nil {
			stream, seq = ack.Stream, ack.Sequence
		}
	}
	if tail := p.tail.Load(); err == nil && tail != nil {
		tail.found(stream, seq, w)
	}
	return err
}

func (p *Publisher) start(ctx context.Context, in *window, place int, d *wire.Draft, w *edda.Work) error {
	if err := ctx.Err(); err != nil {
		return temporary(w, err)
	}
	if err := p.codec.WriteWork(d, w); err != nil {
		return err
	}
	if tail := p.tail.Load(); tail != nil {
		if err := tail.open(); err != nil {
			return temporary(w, err)
		}
	}
	err := in.publish(place, &d.Msg)
	if errors.Is(err, nats.ErrMaxPayload) {
		return &outbox.Rejection{Code: "too-large", Message: err.Error()}
	}
	if err != nil {
		return temporary(w, err)
	}
	return nil
}

func temporary(w *edda.Work, err error) error {
	return edda.Classify(edda.Temporary, "publish %s %s: %w", w.Kind, w.ID, err)
}

// PublishResult publishes the result of an effect command.
func (p *Publisher) PublishResult(ctx context.Context, r effects.Result) error {
	m, err := p.codec.Result(r)
	if err != nil {
		return fmt.Errorf("write result of %s: %w", r.CommandID, err)
	}
	began := time.Now()
	_, err = p.publish(ctx, m)
	p.failures.note(edda.WorkResult, began, err)
	return err
}

// Reject publishes the result of work that a destination has refused for good.
func (p *Publisher) Reject(ctx context.Context, w edda.Work, r outbox.Rejection) error {
	result, err := wire.Rejected(w, r)
	if err != nil {
		return err
	}
	return p.PublishResult(ctx, result)
}

// Sent is the place of a stored message.
type Sent struct {
	Stream, Subject string
	Seq             uint64
	Duplicate       bool // the stream had it already
}

// Send publishes an event of a person or a program, and returns its place.
func (p *Publisher) Send(ctx context.Context, ev edda.Event) (Sent, error) {
	if len(ev.Payload) > 0 && !json.Valid(ev.Payload) {
		return Sent{}, edda.Classify(edda.Permanent, "the payload is not JSON")
	}
	m, err := p.codec.Input(ev)
	if err != nil {
		return Sent{}, edda.Classify(edda.Permanent, "write %s: %w", ev.Kind, err)
	}
	return p.publish(ctx, m)
}

// publish stores a message. If another message has taken its Nats-Msg-Id, it stores it under a new
// one.
func (p *Publisher) publish(ctx context.Context, m *nats.Msg) (Sent, error) {
	ack, err := p.put(ctx, m)
	if err == nil && ack.Duplicate {
		var is bool
		if is, err = p.stored(ctx, ack.Stream, ack.Sequence, m); err == nil && !is {
			p.codec.Rename(m, rand.Text())
			ack, err = p.put(ctx, m)
		}
	}
	if err != nil {
		return Sent{}, err
	}
	return Sent{Stream: ack.Stream, Subject: m.Subject, Seq: ack.Sequence, Duplicate: ack.Duplicate}, nil
}

// stored reports whether the message at a duplicate's place is the same message. Another one may
// have taken its Nats-Msg-Id, or somebody has deleted it.
func (p *Publisher) stored(ctx context.Context, stream string, seq uint64, m *nats.Msg) (bool, error) {
	s, err := p.js.Stream(ctx, stream)
	if err != nil {
		return false, edda.Classify(edda.Temporary, "look at stream %s: %w", stream, err)
	}
	first, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, edda.Classify(edda.Temporary, "look at message %d of %s, said to be the one for %s: %w", seq, stream, m.Subject, err)
	}
	return first.Subject == m.Subject && first.Header.Get(jetstream.MsgIDHeader) == m.Header.Get(jetstream.MsgIDHeader), nil
}

func (p *Publisher) put(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	ack, err := p.js.PublishMsg(ctx, m)
	if errors.Is(err, nats.ErrMaxPayload) {
		return nil, edda.Classify(edda.Permanent, "publish to %s: %w", m.Subject, err)
	}
	if err != nil {
		return nil, edda.Classify(edda.Temporary, "publish to %s: %w", m.Subject, err)
	}
	return ack, nil
}
