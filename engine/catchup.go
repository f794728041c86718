package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/store"
)

const (
	// maxReaders bounds the catch-up readers. Each reads the streams for one laggard at a
	// time, and buffers some events.
	maxReaders = 2
	// readerSlice is how long a reader stays with one laggard while others wait.
	readerSlice = 10 * time.Second
	// readRetry is the pause after a failed read.
	readRetry = time.Second
	// fetchWait is how long a reader waits for the first event of a fetch.
	fetchWait = 250 * time.Millisecond
)

// Past gives a laggard's aggregate events and facts. Those that lay in the streams when it
// was opened come in stored order.
type Past interface {
	// Fetch is [Source.Take], but waits that long for the first event. It fails when no more
	// can be read.
	Fetch(ctx context.Context, max int, wait time.Duration) (Fetched, error)
	// Ends is that of a [Source].
	Ends(ctx context.Context) ([]End, error)
	// Start is where reading began, and Losses describes the messages that have expired.
	Start() []edda.Checkpoint
	Losses() []string
	// Close ends the reading. No other method is called after it.
	Close()
}

// CatchUpOptions says how sagas that are behind catch up. With the zero value they do not.
type CatchUpOptions struct {
	// Open begins to read for a laggard after the given positions. After a permanent error
	// ([edda.Permanent]) it is not called again before the sagas or the tenants change.
	Open func(ctx context.Context, p SagaTenant, from []edda.Checkpoint) (Past, error)
	// Streams are those with aggregate events and facts.
	Streams []string
	// After, if set, is closed when catch-up may begin and sagas may fall behind. A restored
	// store first applies its own past.
	After <-chan struct{}
}

// open tells whether catch-up may run now.
func (c *CatchUpOptions) open() bool {
	if c.Open == nil {
		return false
	}
	if c.After == nil {
		return true
	}
	select {
	case <-c.After:
		return true
	default:
		return false
	}
}

// catchUp is what the loop knows of the sagas that are behind.
type catchUp struct {
	laggards laggards
	idle     []*assignment // of readers that wait for a laggard
	audits   []store.Audit // of losses, for the next change set
}

// assignment is a reader's work for one laggard, until it is dismissed.
type assignment struct {
	laggard *laggard
	from    []edda.Checkpoint
	begun   time.Time
	ready   chan struct{} // closed by the loop when the fields above are set
	cancel  context.CancelFunc
}

// errReassigned ends an assignment because another laggard waits, or to start over.
var errReassigned = errors.New("engine: the reader is reassigned")

// reader is a goroutine that reads the streams for one laggard after the other.
type reader struct{ *Engine }

func (r reader) run(ctx context.Context) error {
	if r.opts.CatchUp.Open == nil {
		return nil
	}
	if after := r.opts.CatchUp.After; after != nil {
		select {
		case <-after:
		case <-r.halt:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	for r.runOnce(ctx) {
	}
	return nil
}

// runOnce waits for an assignment and reads for it. It returns false when the engine stops or
// drains.
func (r reader) runOnce(ctx context.Context) bool {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &assignment{ready: make(chan struct{}), cancel: cancel}
	if err := r.post(ctx, func(v *loop) { v.catchUp.idle = append(v.catchUp.idle, a); v.assignReaders() }); err != nil {
		return false
	}
	select {
	case <-a.ready:
		err := r.read(reading, a)
		_ = r.post(ctx, func(v *loop) { v.readEnded(a, err) }) // fails only when the engine stops
		return true
	case <-r.halt:
	case <-ctx.Done():
	}
	return false
}

// read sends the loop the events of a laggard until ctx ends or the reader is reassigned.
func (r reader) read(ctx context.Context, a *assignment) error {
	past, err := r.opts.CatchUp.Open(ctx, a.laggard.SagaTenant, a.from)
	if err != nil {
		return err
	}
	defer past.Close()
	start, losses := past.Start(), past.Losses()
	if err := r.ask(ctx, func(v *loop, done report) { done <- v.readBegan(a, start, losses) }); err != nil {
		return err
	}
	for live := false; ; {
		got, err := past.Fetch(ctx, maxCaught, fetchWait)
		if err != nil {
			return err
		}
		// gofail: var engineReadPast struct{}
		if !got.Past && !live || len(got.Events) == 0 {
			live = true
			if err := r.readEnds(ctx, a, past); err != nil {
				return err
			}
		}
		if len(got.Events) > 0 {
			if err := r.ask(ctx, func(v *loop, done report) { v.readEvents(a, got, done) }); err != nil {
				return err
			}
		}
	}
}

// readEnds tells the loop the end offsets of the streams, up to which it has every event. If
// the streams do not answer, the next fetch without events asks again.
func (r reader) readEnds(ctx context.Context, a *assignment, past Past) error {
	request, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	ends, err := past.Ends(request)
	if err != nil {
		return ctx.Err()
	}
	return r.ask(ctx, func(v *loop, done report) { done <- v.readUpTo(a, ends) })
}

// assignReaders gives idle readers a laggard each.
func (v *loop) assignReaders() {
	if !v.opts.CatchUp.open() || v.draining.on {
		return
	}
	for len(v.catchUp.idle) > 0 {
		l := v.nextToRead()
		if l == nil {
			return
		}
		a := v.catchUp.idle[0]
		v.catchUp.idle = v.catchUp.idle[1:]
		a.laggard, a.begun = l, time.Now()
		for _, p := range l.positions() {
			at := p.Checkpoint
			read := readFrom(at).further(l.read[at.Stream]) // the events up to there are in the queue
			if at.Partly = read.within; read.seq > at.Seq {
				at.Seq, at.Time = read.seq, time.Time{}
			}
			a.from = append(a.from, at)
		}
		l.assignment, l.problem = a, nil
		close(a.ready)
	}
}

// nextToRead returns the laggard that has waited longest for a reader, nil if none needs one.
func (v *loop) nextToRead() (next *laggard) {
	now := time.Now()
	for _, l := range v.catchUp.laggards.sorted() {
		if l.assignment != nil || l.rejoining || l.paused != "" || now.Before(l.retryAt) || l.allRead() {
			continue
		}
		if next == nil || l.retryAt.Before(next.retryAt) {
			next = l
		}
	}
	return next
}

// readBegan notes where a reader began: after the messages that have expired.
func (v *loop) readBegan(a *assignment, start []edda.Checkpoint, losses []string) error {
	l := a.laggard
	if l.assignment != a {
		return errReassigned
	}
	for _, at := range start {
		if was, ok := l.applied[at.Stream]; ok && (at.Seq > l.reached(at.Stream) || !was.Created.Equal(at.Created)) {
			l.skipTo(at)
		}
	}
	for _, loss := range losses {
		v.log.Warn("a saga that catches up misses messages that have expired in their stream",
			zap.String("saga", l.Saga), zap.String("tenant", l.Tenant), zap.String("what", loss))
		v.catchUp.audits = append(v.catchUp.audits, store.Audit{Time: time.Now(), By: "catch-up", Verb: "accept", Key: edda.Key{Saga: l.Saga}, Detail: loss})
	}
	return nil
}

// readEvents queues the events of a reader. It answers when the queue has room for more.
func (v *loop) readEvents(a *assignment, got Fetched, done report) {
	l := a.laggard
	if l.assignment != a || v.draining.on {
		done <- errReassigned
		return
	}
	if !got.Past && l.lag(l.reached) > farBehind {
		l.retryAt = time.Now()
		done <- errReassigned
		return
	}
	for i := range got.Events {
		ev := &got.Events[i]
		if l.has(ev) {
			continue
		}
		l.read[ev.Stream] = readWith(ev)
		if ev.Kind == edda.KindEvent && ev.Malformed == "" {
			it := arrival(*ev, got)
			it.past, it.lag = true, l
			l.queue = append(l.queue, it)
		}
	}
	switch {
	case v.sliceOver(a):
		done <- errReassigned
	case len(l.queue) <= maxCaught:
		done <- nil
	default:
		l.blocked = done
	}
}

// readUpTo takes end offsets up to which the reader has given every event. A stream that is
// read up to its needed message counts as read up to its last message.
func (v *loop) readUpTo(a *assignment, ends []End) error {
	l := a.laggard
	if l.assignment != a || v.draining.on {
		return errReassigned
	}
	for _, end := range ends {
		at, ok := l.applied[end.Stream]
		if !ok || l.reached(end.Stream) < end.Need || end.Last.Seq <= at.Seq {
			continue
		}
		end.Last.Stream = end.Stream
		l.skipTo(end.Last)
	}
	if v.sliceOver(a) {
		return errReassigned
	}
	return nil
}

// readEnded follows the end of a reader's assignment.
func (v *loop) readEnded(a *assignment, err error) {
	l := a.laggard
	if l.assignment != a {
		return // it was dismissed
	}
	l.dismiss()
	switch {
	case errors.Is(err, errReassigned) || err == nil:
	case errors.Is(err, edda.Permanent):
		l.problem, l.retryAt = err, time.Now().Add(100*365*24*time.Hour)
		v.log.Warn("a saga that is behind cannot catch up", zap.String("saga", l.Saga), zap.String("tenant", l.Tenant), zap.Error(err))
	default:
		if l.problem == nil {
			v.log.Warn("reading for a saga that is behind failed, trying again", zap.String("saga", l.Saga), zap.String("tenant", l.Tenant), zap.Error(err))
		}
		l.problem, l.retryAt = err, time.Now().Add(readRetry)
		time.AfterFunc(readRetry, func() { _ = v.post(context.Background(), func(v *loop) { v.assignReaders() }) })
	}
	v.showBehind()
	v.assignReaders()
}

// sliceOver tells whether a reader is due for another laggard: because one waits and the
// slice is used up, or its own laggard has every event.
func (v *loop) sliceOver(a *assignment) bool {
	l := a.laggard
	if time.Since(a.begun) <= readerSlice && !l.allRead() || v.nextToRead() == nil {
		return false
	}
	l.retryAt = time.Now()
	return true
}

// skipTo moves the laggard to a position up to which it has no events but those in its queue.
func (l *laggard) skipTo(at edda.Checkpoint) {
	l.read[at.Stream] = readFrom(at)
	for _, it := range l.queue {
		if it.position().Stream == at.Stream {
			return
		}
	}
	l.applied[at.Stream], l.dirty = at, true
}

// dismiss ends the laggard's assignment, if it has one.
func (l *laggard) dismiss() {
	if l.assignment != nil {
		l.assignment.cancel()
		l.assignment = nil
	}
	if l.blocked != nil {
		l.blocked <- errReassigned
		l.blocked = nil
	}
}

// serveReaders answers the readers whose laggards have room in their queues again, and
// assigns the idle ones.
func (v *loop) serveReaders() {
	if len(v.catchUp.laggards) == 0 {
		return
	}
	for _, l := range v.catchUp.laggards {
		if l.blocked != nil && len(l.queue) <= maxCaught {
			l.blocked <- nil
			l.blocked = nil
		}
	}
	v.showBehind()
	v.assignReaders()
}

// Rejudge starts the catch-up readers over, because the tenants have changed. It returns once
// they have begun.
func (e *Engine) Rejudge(ctx context.Context) error {
	return e.ask(ctx, func(v *loop, done report) {
		v.rejudge()
		done <- nil
	})
}

func (v *loop) rejudge() {
	for _, l := range v.catchUp.laggards {
		l.dismiss()
		l.problem, l.retryAt = nil, time.Time{}
		// The queue may hold events of other tenants now, and the main line may have passed
		// events that are now meant for the laggard.
		l.queue, l.read = nil, map[string]readPosition{}
		for stream := range l.applied {
			if slices.Contains(v.opts.CatchUp.Streams, stream) {
				l.withheld[stream] = max(l.withheld[stream], v.positions.applied[stream].Last())
			}
		}
	}
	v.showBehind()
	v.assignReaders()
}
