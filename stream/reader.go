package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda"
	"edda/internal/backoff"
	"edda/stream/wire"
)

const (
	// pullMessages and pullBytes bound the messages of one stream in flight from the server,
	// besides those in the buffer.
	pullMessages = 1024
	pullBytes    = 8 << 20
	// lostAfter is the interval in which a message that does not come is noticed when no later message
	// reveals the gap.
	lostAfter = 30 * time.Second
	// pullHeartbeat detects a server that has forgotten the consumer, or has ended with it: two of them are missed then.
	pullHeartbeat = 2 * time.Second
	// replaceWithin bounds the removal of the consumer before. The server that had it may never answer.
	replaceWithin = 2 * time.Second
	// abandonedAfter is when the server removes the consumer of a process that does not come back.
	// The position is in the checkpoint, not in the consumer.
	abandonedAfter = 24 * time.Hour
	// retryFirst and retryMost bound the backoff of a reader.
	retryFirst = 50 * time.Millisecond
	retryMost  = 5 * time.Second
	// unreadAfter is how long a stream must fail to be read before it is reported.
	unreadAfter = 10 * time.Second
)

// errGap says that a message has not come. The reader recreates the consumer behind the last message
// it has.
var errGap = errors.New("a message of the stream has not come")

// errEnded says that the client stopped consuming without an error.
var errEnded = errors.New("the client stopped consuming")

// errRecreate recreates the consumer because the tenants have changed, the backlog has ended, or
// the server was away.
var errRecreate = errors.New("the consumer must be recreated")

// reader reads one stream into a buffer without gaps. After a missing message it recreates the
// consumer behind the last message it has.
type reader struct {
	js         jetstream.JetStream
	stream     jetstream.Stream
	messages   jetstream.Stream // the same, for single messages; see leaderOf
	name       string           // of the stream
	consumer   string
	sharedName string // of the consumer without a cluster, which those of all epochs begin with
	epoch      uint64 // 0 without a cluster
	families   []wire.Family
	mapping    *wire.Mapping // nil in Edda's own streams
	unfiltered bool          // the stream holds inputs of sagas only
	codec      wire.Codec
	tenants    *atomic.Pointer[wire.Tenants]
	buffer     *buffer
	strays     *Strays
	fence      func(context.Context) error // nil: none
	restored   bool                        // the store is a backup that catches up with the streams
	lenient    bool                        // what the stream does not hold any more is skipped
	wake       chan<- struct{}             // the buffer has a new event
	log        *zap.Logger
	recreate   chan struct{}   // capacity 1: recreate the consumer
	alone      bool            // the consumers of former owners are removed; owned by run
	created    time.Time       // of the stream
	from       edda.Checkpoint // the position at which reading began
	// committed returns the positions in the store; nil where the store handles nothing of what is
	// read.
	committed func() ([]edda.Checkpoint, error)

	mu       sync.Mutex      // guards the fields below
	read     uint64          // last sequence that was read
	at       time.Time       // store time of that message
	buffered uint64          // last sequence that went into the buffer
	emptyTo  uint64          // no message between read and this one matches the filters
	begins   uint64          // the stream's first message, when it was last looked at
	reported edda.Checkpoint // the last message of the stream that Ends has returned
	atStart  backlog
	failure  error     // why the stream is not read; nil while it is
	failed   time.Time // since when
}

// run reads until ctx ends or the stream has lost messages.
func (r *reader) run(ctx context.Context) error {
	retry := backoff.Exponential{First: retryFirst, Most: retryMost}
	for ctx.Err() == nil {
		before := r.position()
		err := r.consume(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errRecreate) {
			continue
		}
		if errors.Is(err, edda.Permanent) {
			return err
		}
		if r.position() > before {
			retry.Reset()
		}
		r.noteFailure(err)
		wait := retry.Next()
		r.log.Warn("reading a stream again", zap.String("stream", r.name), zap.Duration("wait", wait), zap.Error(err))
		_ = backoff.Wait(ctx, wait)
	}
	return ctx.Err()
}

// noteFailure records why the stream is not read, or that it is.
func (r *reader) noteFailure(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || r.failure == nil {
		r.failed = time.Now()
	}
	r.failure = err
}

// failing describes a failure that lasts; nil if there is none.
func (r *reader) failing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil || time.Since(r.failed) < unreadAfter {
		return nil
	}
	return fmt.Errorf("stream %s is not read since %s: %w", r.name, stamp(r.failed), r.failure)
}

// consume makes the consumer behind the last message and reads until an error. It ends after the
// message in progress, so that the next consumer begins behind it.
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
	f := &feed{reader: r, end: cancel, busy: make(chan struct{}, 1)}
	reading, err := cons.Consume(func(m jetstream.Msg) { f.message(ctx, m) }, jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes),
		jetstream.PullHeartbeat(pullHeartbeat), jetstream.ConsumeErrHandler(f.onError))
	if err != nil {
		return fmt.Errorf("pull from %s: %w", r.name, err)
	}
	r.noteFailure(nil)
	r.removeFormer(ctx)
	checks := time.NewTicker(lostAfter)
	defer checks.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-r.recreate:
			cancel(errRecreate)
		case <-reading.Closed():
			cancel(fmt.Errorf("read %s: %w", r.name, errEnded))
		case <-checks.C:
			f.checkStalled(ctx)
		}
	}
	reading.Stop()
	f.drain()
	return context.Cause(ctx)
}

// feed passes the messages of one consumer to its reader. It uses callbacks, because the client's
// iterator makes a timer for each message.
type feed struct {
	reader *reader
	end    context.CancelCauseFunc
	busy   chan struct{} // capacity 1: full while a message is handled
	number atomic.Uint64 // consumer sequence of the last message
	due    uint64        // the next message of the stream at the last check; 0: none; owned by checkStalled
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

// checkStalled ends the reading if a message that the leader of the stream had at the last check has
// not arrived. accept cannot notice the gap while no later message arrives, and the server with the
// consumer may not have the message: it has one copy of several. A message that waits for room in the
// buffer has arrived.
func (f *feed) checkStalled(ctx context.Context) {
	read, _, emptyTo := f.reader.progress()
	due, err := f.reader.next(ctx, max(read, emptyTo)+1)
	switch {
	case err != nil: // a lasting failure shows in the heartbeats
	case due > 0 && due == f.due && len(f.busy) == 0:
		f.end(errGap)
	default:
		f.due = due
	}
}

// onError ends the reading on errors after which no messages come. The client recovers from the
// others by itself. After a pull that no server has answered it would wait for heartbeats. The first
// pull may find none: in a cluster of NATS the server of this connection may learn of a new consumer
// later than the client does.
func (f *feed) onError(_ jetstream.ConsumeContext, err error) {
	if f.number.Load() == 0 && errors.Is(err, nats.ErrNoResponders) {
		f.end(fmt.Errorf("read %s: %w", f.reader.name, err))
	}
	for _, last := range []error{jetstream.ErrNoHeartbeat, jetstream.ErrConsumerDeleted, jetstream.ErrBadRequest, jetstream.ErrConnectionClosed} {
		if errors.Is(err, last) {
			f.end(fmt.Errorf("read %s: %w", f.reader.name, err))
		}
	}
}

// drain waits for the message in progress. The feed refuses the messages that the client still has;
// the next consumer gets them.
func (f *feed) drain() {
	f.busy <- struct{}{}
	<-f.busy
}

func (r *reader) create(ctx context.Context) (jetstream.Consumer, error) {
	if r.fence != nil {
		if err := r.fence(ctx); err != nil {
			return nil, fmt.Errorf("replace consumer %s of %s: %w", r.consumer, r.name, err)
		}
	}
	before, asked := errgroup.WithContext(ctx)
	before.Go(func() error { return r.verifyStream(asked) })
	before.Go(func() error { return r.removeConsumer(asked) })
	if err := before.Wait(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.emptyTo = 0 // the new consumer may have other filters
	r.mu.Unlock()
	cfg := jetstream.ConsumerConfig{
		Durable: r.consumer, Description: "edda: inputs of sagas",
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.position() + 1,
		// The checkpoint is the position, so the consumer may be lost. One replica is made in a tenth of the time of three.
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: abandonedAfter, FilterSubjects: r.filters(),
	}
	cons, err := r.js.CreateConsumer(ctx, r.name, cfg)
	if err != nil {
		return nil, fmt.Errorf("create consumer %s of %s: %w", r.consumer, r.name, err)
	}
	return cons, nil
}

// removeConsumer removes the consumer before. The cluster of NATS forgets it at once, but nobody answers if the server
// that had it has ended.
func (r *reader) removeConsumer(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, replaceWithin)
	defer cancel()
	err := r.js.DeleteConsumer(within, r.name, r.consumer)
	if err == nil || errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("remove consumer %s of %s: %w", r.consumer, r.name, err)
}

// verifyStream checks that the stream still has the last message that was read. Messages that expired
// unread are noticed at the next message: see skipped.
func (r *reader) verifyStream(ctx context.Context) error {
	was := r.checkpoint()
	s, err := r.js.Stream(ctx, r.name)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", r.name, err)
	}
	r.noteBegin(s.CachedInfo())
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

// allHandledWithin bounds the wait until the engine has handled messages that the stream has lost.
const allHandledWithin = time.Minute

// allHandled waits until everything that was read is handled, because no stream has it any more.
func (r *reader) allHandled(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, allHandledWithin)
	defer cancel()
	for ctx.Err() == nil {
		if _, buffered, _ := r.progress(); r.handled(buffered) {
			return true
		}
		_ = backoff.Wait(ctx, endPoll)
	}
	return false
}

// checkpoint is the position of the last message that was read or, if it is further, the end that
// Ends has returned: the store's checkpoint may be there.
func (r *reader) checkpoint() edda.Checkpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := edda.Checkpoint{Stream: r.name, Seq: r.read, Time: r.at, Created: r.created}
	if r.reported.Seq > r.read {
		at.Seq, at.Time = r.reported.Seq, r.reported.Time
	}
	return at
}

// results reports whether the stream has results.
func (r *reader) results() bool { return slices.Contains(r.families, wire.FamilyResult) }

// filters select the subjects to read, with echoes only during the backlog. They are as few as possible, and none for the
// whole stream: when the server makes a consumer of several filters it looks at every subject of the stream, which can take
// seconds in which the stream takes no message.
func (r *reader) filters() []string {
	if r.mapping != nil {
		if r.unfiltered {
			return nil
		}
		return r.mapping.Subjects()
	}
	tenants, families, echoes := *r.tenants.Load(), r.families, !r.results() || !r.backlogRead()
	if r.unfiltered {
		return r.codec.FiltersOfAll(tenants, echoes)
	}
	if !echoes {
		families = slices.DeleteFunc(slices.Clone(families), func(f wire.Family) bool { return f == wire.FamilyEcho })
	}
	return r.codec.Filters(tenants, "*", families...)
}

// accept handles one message. Consumer sequences have no gaps, so a jump means that the connection
// lost a message.
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
	if err := r.skipped(seq); err != nil {
		return err
	}
	msg := wire.Message{
		Subject: m.Subject(), Header: m.Headers(), Data: m.Data(),
		Stream: r.name, Seq: seq, Time: md.Timestamp,
	}
	if r.mapping == nil && r.strays.drop(msg) {
		r.advance(seq, md.Timestamp.UTC(), false)
		return nil
	}
	if members := r.codec.Members(msg); members != nil {
		return r.enqueueBatch(ctx, members)
	}
	return r.enqueue(ctx, r.codec.Event(msg))
}

// skipped returns the loss of messages that the stream removed before they were read, as the start
// would report it. seq is the message after them. Only a reader of all messages knows that they were
// inputs. What expires before its first message was never promised.
func (r *reader) skipped(seq uint64) error {
	r.mu.Lock()
	read, begins := max(r.read, r.emptyTo), r.begins
	behind := begins > read+1 && seq >= begins && r.read > r.from.Seq
	r.mu.Unlock()
	if !behind || r.lenient || len(r.filters()) > 0 {
		return nil
	}
	return lossError([]Loss{{Checkpoint: r.checkpoint(), What: fmt.Sprintf("begins at %d, but only messages up to %d were read: those between are gone", begins, read)}})
}

// noteBegin records the stream's first message.
func (r *reader) noteBegin(info *jetstream.StreamInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begins = info.State.FirstSeq
}

// enqueue puts an event of a served tenant into the buffer.
func (r *reader) enqueue(ctx context.Context, ev edda.Event) error {
	served := r.serves(&ev)
	if served {
		if err := r.buffer.put(ctx, ev); err != nil {
			return context.Cause(ctx)
		}
	}
	r.advance(ev.Seq, ev.StoredAt(), served)
	return nil
}

// enqueueBatch puts the members of a batch into the buffer, all at once: the position is that of their
// message. A mapping may read another tenant from each. Those that were handled before reading began are
// left out: if only they are of a served tenant, nothing of the message is awaited.
func (r *reader) enqueueBatch(ctx context.Context, members []wire.Message) error {
	events := make([]edda.Event, 0, len(members))
	for _, m := range members {
		if ev := r.codec.Event(m); r.serves(&ev) && !r.from.Covers(&ev) {
			ev.More = true
			events = append(events, ev)
		}
	}
	if len(events) > 0 {
		events[len(events)-1].More = false
		if err := r.buffer.put(ctx, events...); err != nil {
			return context.Cause(ctx)
		}
	}
	r.advance(members[0].Seq, members[0].Time.UTC(), len(events) > 0)
	return nil
}

// serves reports whether the tenant of an event is served here.
func (r *reader) serves(ev *edda.Event) bool {
	return r.codec.NoTenancy || r.tenants.Load().Match(ev.Tenant)
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

// advance records the position, and wakes the engine if there is an event or the backlog is being
// read.
func (r *reader) advance(seq uint64, at time.Time, buffered bool) {
	r.mu.Lock()
	wakes := buffered || r.atStart.end > 0
	r.read, r.at = seq, at
	if buffered {
		r.noteBuffered(seq)
	}
	r.endBacklog()
	r.mu.Unlock()
	if wakes {
		signal(r.wake)
	}
}

// handled reports whether the store's position has reached seq.
func (r *reader) handled(seq uint64) bool {
	if seq <= r.from.Seq || r.committed == nil {
		return seq <= r.from.Seq
	}
	positions, err := r.committed()
	return err == nil && slices.ContainsFunc(positions, func(at edda.Checkpoint) bool { return at.Stream == r.name && at.Seq >= seq })
}
