package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
	"edda/stream/wire"
)

const (
	// pullMessages and pullBytes bound what is on its way for one stream,
	// besides the buffer.
	pullMessages = 1024
	pullBytes    = 8 << 20
	// lostAfter is how long a message may be on its way, of which nothing that comes
	// behind it shows that it was lost.
	lostAfter = 2 * time.Minute
	// pullHeartbeat finds out about a server that forgot the consumer.
	pullHeartbeat = 5 * time.Second
	// abandonedAfter is when the server removes the consumer of a process that
	// is gone for good: the checkpoint is the position, not the consumer.
	abandonedAfter = 24 * time.Hour
	// retryFirst and retryMost space the attempts to read again after trouble.
	retryFirst = 50 * time.Millisecond
	retryMost  = 5 * time.Second
)

// errGap says that a message was lost on its way; it is read again.
var errGap = errors.New("a message was lost on its way")

// errEnded says that the client reads no more, for a reason that trouble does not know.
var errEnded = errors.New("the client has ended the reading")

// errAgain says that the tenants have changed, the backlog has ended, or the server was away.
var errAgain = errors.New("the consumer is made anew")

// reader reads one stream into a buffer, without gaps: when one message is
// missed, it makes the consumer anew behind the last one it has.
type reader struct {
	js       jetstream.JetStream
	stream   jetstream.Stream
	name     string // of the stream
	consumer string
	families []wire.Family
	whole    bool // the stream holds nothing but what sagas take in
	codec    wire.Codec
	tenants  *atomic.Pointer[wire.Tenants]
	buffer   *buffer
	strays   *Strays
	restored bool            // the store is a backup that has still to catch up
	wake     chan<- struct{} // something was put into the buffer
	log      *zap.Logger
	again    chan struct{} // capacity 1: make the consumer anew
	created  time.Time     // when the stream was
	from     uint64        // reading began behind it
	// committed gives the positions that the store has; nil: nothing that is read is handled here.
	committed func() ([]edda.Checkpoint, error)

	mu      sync.Mutex      // guards what follows
	read    uint64          // last sequence that was read
	at      time.Time       // when that message was stored
	kept    uint64          // last of them that went into the buffer
	quiet   uint64          // nothing of ours is between read and this
	told    edda.Checkpoint // the last message of the stream, as Ends has told
	atStart backlog
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) error {
	retry := backoff.Exponential{First: retryFirst, Most: retryMost}
	for ctx.Err() == nil {
		before := r.position()
		err := r.consume(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errAgain) {
			continue
		}
		if errors.Is(err, edda.Permanent) {
			return err
		}
		if r.position() > before {
			retry.Reset()
		}
		wait := retry.Next()
		r.log.Warn("reading a stream again", zap.String("stream", r.name), zap.Duration("wait", wait), zap.Error(err))
		_ = backoff.Wait(ctx, wait)
	}
	return ctx.Err()
}

// consume makes the consumer behind what was read, and reads until trouble.
func (r *reader) consume(ctx context.Context) error {
	if err := r.findBacklog(ctx); err != nil {
		return err
	}
	cons, err := r.create(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := r.watch(ctx, cancel)
	defer stop()
	f := &feed{reader: r, end: cancel, busy: make(chan struct{}, 1)}
	reading, err := cons.Consume(func(m jetstream.Msg) { f.message(ctx, m) }, jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes),
		jetstream.PullHeartbeat(pullHeartbeat), jetstream.ConsumeErrHandler(f.trouble))
	if err != nil {
		return fmt.Errorf("pull from %s: %w", r.name, err)
	}
	looks := time.NewTicker(lostAfter)
	defer looks.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-reading.Closed(): // the client gave up, whatever for
			cancel(fmt.Errorf("read %s: %w", r.name, errEnded))
		case <-looks.C:
			f.look(ctx, cons)
		}
	}
	reading.Stop()
	f.over()
	return context.Cause(ctx)
}

// feed gives the messages of one consumer to its reader. The client calls it for each,
// one after the other: its iterator would make a timer for every message.
type feed struct {
	reader *reader
	end    context.CancelCauseFunc
	busy   chan struct{} // capacity 1: a message is being taken in
	number atomic.Uint64 // of the last message, as the consumer counts them
	sent   uint64        // of the last one that the server had sent at the last look; look's
}

func (f *feed) message(ctx context.Context, m jetstream.Msg) {
	f.busy <- struct{}{}
	defer func() { <-f.busy }()
	if ctx.Err() != nil {
		return
	}
	if err := f.reader.accept(ctx, m, f.number.Add(1)); err != nil {
		f.end(err)
	}
}

// look ends the reading where a message that was sent before the last look has not come:
// as nothing has come behind it, accept has not missed it. What waits for room has.
func (f *feed) look(ctx context.Context, cons jetstream.Consumer) {
	if f.number.Load() < f.sent && len(f.busy) == 0 {
		f.end(errGap)
		return
	}
	if info, err := cons.Info(ctx); err == nil { // else the heartbeats tell of what lasts
		f.sent = info.Delivered.Consumer
	}
}

// trouble ends the reading where no more messages would come. The client sees to all
// else, or the heartbeats stay away.
func (f *feed) trouble(_ jetstream.ConsumeContext, err error) {
	for _, last := range []error{jetstream.ErrNoHeartbeat, jetstream.ErrConsumerDeleted, jetstream.ErrBadRequest, jetstream.ErrConnectionClosed} {
		if errors.Is(err, last) {
			f.end(fmt.Errorf("read %s: %w", f.reader.name, err))
		}
	}
}

// over waits for the message that is being taken in: the next consumer begins behind it.
// What the client still has then is refused, as the reading has ended, and is read again.
func (f *feed) over() {
	f.busy <- struct{}{}
	<-f.busy
}

// watch ends the reading when it is to begin again; stop waits for its end.
func (r *reader) watch(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-r.again:
			cancel(errAgain)
		case <-ctx.Done():
		}
	}()
	return func() {
		cancel(nil)
		<-ended
	}
}

func (r *reader) create(ctx context.Context) (jetstream.Consumer, error) {
	if err := r.same(ctx); err != nil {
		return nil, err
	}
	err := r.js.DeleteConsumer(ctx, r.name, r.consumer)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("remove consumer %s of %s: %w", r.consumer, r.name, err)
	}
	r.forget()
	cfg := jetstream.ConsumerConfig{
		Durable: r.consumer, Description: "edda: inputs of sagas",
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.position() + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, // the checkpoint is the position
		InactiveThreshold: abandonedAfter, FilterSubjects: r.filters(),
	}
	cons, err := r.js.CreateConsumer(ctx, r.name, cfg)
	if err != nil {
		return nil, fmt.Errorf("create consumer %s of %s: %w", r.consumer, r.name, err)
	}
	return cons, nil
}

// same holds what was read against the stream, which may have come back without
// it. What expired before it was read is not looked for: most of it is not ours.
func (r *reader) same(ctx context.Context) error {
	was := r.reached()
	s, err := r.js.Stream(ctx, r.name)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", r.name, err)
	}
	loss := truncated(s.CachedInfo(), was)
	if loss == nil {
		if loss, err = sameMessage(ctx, s, s.CachedInfo(), was); err != nil {
			return err
		}
	}
	if loss == nil {
		if info := s.CachedInfo(); restored(info) {
			r.mu.Lock()
			r.created = info.Created.UTC()
			r.mu.Unlock()
		}
		return nil
	}
	loss.Checkpoint = was
	if loss.Handled && r.allHandled(ctx) {
		return edda.Classify(edda.Permanent, "stream %s %s: %w", r.name, loss.What, ErrShorter)
	}
	return lossError([]Loss{*loss})
}

// allHandledWithin bounds the wait for what was read of a stream that has lost it.
const allHandledWithin = time.Minute

// allHandled waits until all that was read is handled: nobody else has it any more.
func (r *reader) allHandled(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, allHandledWithin)
	defer cancel()
	for ctx.Err() == nil {
		if _, kept, _ := r.progress(); r.handled(kept) {
			return true
		}
		_ = backoff.Wait(ctx, endPoll)
	}
	return false
}

// reached is what was read, as a position, or the end that was told where that is further:
// the checkpoint may be there.
func (r *reader) reached() edda.Checkpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := edda.Checkpoint{Stream: r.name, Seq: r.read, Time: r.at, Created: r.created}
	if r.told.Seq > r.read {
		at.Seq, at.Time = r.told.Seq, r.told.Time
	}
	return at
}

// forget drops what was true of the filters of the old consumer.
func (r *reader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quiet = 0
}

// results tells whether results come in the stream.
func (r *reader) results() bool { return slices.Contains(r.families, wire.FamilyResult) }

// filters select what is read: echoes only while the backlog is read. They are empty where
// that is the whole stream, because the server is faster then.
func (r *reader) filters() []string {
	tenants, families := *r.tenants.Load(), r.families
	if r.backlogRead() {
		families = slices.DeleteFunc(slices.Clone(families), func(f wire.Family) bool { return f == wire.FamilyEcho })
	}
	if r.whole && len(families) == len(r.families) && !tenants.Exact() {
		return nil
	}
	return r.codec.Filters(tenants, "*", families...)
}

// accept takes in one message. Consumer sequences have no gaps: a jump is a
// message that the server sent and the connection lost.
func (r *reader) accept(ctx context.Context, m jetstream.Msg, expected uint64) error {
	md, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("read metadata: %w", err)
	}
	if md.Sequence.Consumer != expected {
		return errGap
	}
	seq := md.Sequence.Stream
	if seq <= r.position() {
		return nil
	}
	msg := wire.Message{
		Subject: m.Subject(), Header: m.Headers(), Data: m.Data(),
		Stream: r.name, Seq: seq, Time: md.Timestamp,
	}
	if r.strays.leftOut(msg) {
		r.moveTo(seq, md.Timestamp.UTC(), false)
		return nil
	}
	return r.keep(ctx, r.codec.Event(msg))
}

// keep gives it to the engine, if it is ours.
func (r *reader) keep(ctx context.Context, ev edda.Event) error {
	ours := r.codec.NoTenancy || r.tenants.Load().Match(ev.Tenant)
	if ours {
		if err := r.buffer.put(ctx, ev); err != nil {
			return context.Cause(ctx)
		}
	}
	r.moveTo(ev.Seq, ev.StoredAt(), ours)
	return nil
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *reader) position() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}

// moveTo notes what was read, and wakes who fetches where there is something for it.
func (r *reader) moveTo(seq uint64, at time.Time, kept bool) {
	r.mu.Lock()
	wakes := kept || r.atStart.end > 0
	r.read, r.at = seq, at
	if kept {
		r.noteKept(seq)
	}
	r.endBacklog()
	r.mu.Unlock()
	if wakes {
		signal(r.wake)
	}
}

// handled tells whether everything up to seq is handled: the store's position is there.
func (r *reader) handled(seq uint64) bool {
	if seq <= r.from || r.committed == nil {
		return seq <= r.from
	}
	positions, err := r.committed()
	return err == nil && slices.ContainsFunc(positions, func(at edda.Checkpoint) bool { return at.Stream == r.name && at.Seq >= seq })
}
