package engine

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/store"
)

const (
	// maxReaders bounds the pairs that are caught up at once: each reads the streams by
	// itself and buffers some of them.
	maxReaders = 2
	// readerTurn is how long a reader goes on with one pair while others wait.
	readerTurn = 10 * time.Second
	// readAgain is how long a pair that could not be read waits.
	readAgain = time.Second
	// fetchWait is how long a reader waits for the first event.
	fetchWait = 250 * time.Millisecond
)

// Past is what a pair that is behind reads: aggregate events and facts, those that lay in
// the streams when it was opened in the order in which they were stored.
type Past interface {
	// Fetch is [Source.Take], but waits so long for the first event. It fails when nothing
	// is read any more.
	Fetch(ctx context.Context, max int, wait time.Duration) (Fetched, error)
	// Ends is that of a [Source].
	Ends(ctx context.Context) ([]End, error)
	// Start is where reading began, and Losses what the streams do not hold any more.
	Start() []edda.Checkpoint
	Losses() []string
	// Close ends the reading; nothing else is called afterwards.
	Close()
}

// CatchUpOptions says how sagas that are behind are caught up. The zero value catches none up.
type CatchUpOptions struct {
	// Open begins to read for a pair behind the positions. An error that is
	// [edda.Permanent] stays until the sagas or the tenants change.
	Open func(ctx context.Context, p SagaTenant, from []edda.Checkpoint) (Past, error)
	// Streams are those with aggregate events and facts.
	Streams []string
	// After, where set, is closed when catching up may begin, and sagas may fall behind:
	// a restored store takes in its past first.
	After <-chan struct{}
}

// open tells whether sagas are caught up now.
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

// errand is one pair that a reader goes to, until it is dismissed.
type errand struct {
	laggard *laggard
	from    []edda.Checkpoint
	ctx     context.Context
	cancel  context.CancelFunc
	begun   time.Time
}

// errTurn ends an errand that others wait for, or that is to begin anew.
var errTurn = errors.New("engine: the reader goes on elsewhere")

// reader catches up one pair after the other.
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
	for {
		next := make(chan *errand, 1)
		if err := r.post(ctx, func(v *loop) { v.idle = append(v.idle, next); v.employ() }); err != nil {
			return nil
		}
		select {
		case e := <-next:
			err := r.read(e)
			e.cancel()
			_ = r.post(ctx, func(v *loop) { v.left(e, err) }) // fails only when the engine stops
		case <-r.halt:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// read gives the loop what is stored for a pair, until it is dismissed.
func (r reader) read(e *errand) error {
	past, err := r.opts.CatchUp.Open(e.ctx, e.laggard.SagaTenant, e.from)
	if err != nil {
		return err
	}
	defer past.Close()
	start, losses := past.Start(), past.Losses()
	if err := r.ask(e.ctx, func(v *loop, done report) { done <- v.opened(e, start, losses) }); err != nil {
		return err
	}
	for over := false; ; {
		got, err := past.Fetch(e.ctx, maxCaught, fetchWait)
		if err != nil {
			return err
		}
		// gofail: var engineReadPast struct{}
		if !got.Past && !over || len(got.Events) == 0 {
			over = true
			if err := r.survey(e, past); err != nil {
				return err
			}
		}
		if len(got.Events) > 0 {
			if err := r.ask(e.ctx, func(v *loop, done report) { v.caught(e, got, done) }); err != nil {
				return err
			}
		}
	}
}

// survey tells the loop how far the streams go of which it has all that was read. Where
// they do not answer, the next fetch without events asks again.
func (r reader) survey(e *errand, past Past) error {
	look, cancel := context.WithTimeout(e.ctx, pollTimeout)
	defer cancel()
	ends, err := past.Ends(look)
	if err != nil {
		return e.ctx.Err()
	}
	return r.ask(e.ctx, func(v *loop, done report) { done <- v.covered(e, ends) })
}

// employ sends readers that wait to pairs that nobody reads for.
func (v *loop) employ() {
	if !v.opts.CatchUp.open() || v.draining {
		return
	}
	for len(v.idle) > 0 {
		l := v.unread()
		if l == nil {
			return
		}
		e := &errand{laggard: l, begun: time.Now()}
		e.ctx, e.cancel = context.WithCancel(v.ctx)
		for _, p := range l.positions() {
			at := p.Checkpoint
			if given := l.given[at.Stream]; given > at.Seq { // the rest of it waits in the queue
				at.Seq, at.Time = given, time.Time{}
			}
			e.from = append(e.from, at)
		}
		l.errand, l.problem = e, nil
		next := v.idle[0]
		v.idle = v.idle[1:]
		next <- e
	}
}

// unread is the pair that has waited longest for a reader; nil where none needs one.
func (v *loop) unread() (next *laggard) {
	now := time.Now()
	for _, l := range v.lagging.sorted() {
		if l.errand != nil || l.live || l.paused != "" || now.Before(l.again) || l.caughtUp() {
			continue
		}
		if next == nil || l.again.Before(next.again) {
			next = l
		}
	}
	return next
}

// opened takes note of where the reading began: behind what is gone.
func (v *loop) opened(e *errand, start []edda.Checkpoint, losses []string) error {
	l := e.laggard
	if l.errand != e {
		return errTurn
	}
	for _, at := range start {
		if was, ok := l.done[at.Stream]; ok && (at.Seq > l.reached(at.Stream) || !was.Created.Equal(at.Created)) {
			l.cover(at)
		}
	}
	for _, what := range losses {
		v.log.Warn("a saga that is caught up misses messages which its stream does not hold any more",
			zap.String("saga", l.Saga), zap.String("tenant", l.Tenant), zap.String("what", what))
		v.notes = append(v.notes, store.Audit{Time: time.Now(), By: "catch-up", Verb: "accept", Key: edda.Key{Saga: l.Saga}, Detail: what})
	}
	return nil
}

// caught takes events that were read for a pair. It answers once there is room for more.
func (v *loop) caught(e *errand, got Fetched, done report) {
	l := e.laggard
	if l.errand != e || v.draining {
		done <- errTurn
		return
	}
	if !got.Past && l.far() > farBehind {
		l.again = time.Now()
		done <- errTurn
		return
	}
	for i := range got.Events {
		ev := &got.Events[i]
		if ev.Seq <= l.reached(ev.Stream) {
			continue
		}
		l.given[ev.Stream] = ev.Seq
		if ev.Kind == edda.KindEvent && ev.Malformed == "" {
			it := arrival(*ev, got)
			it.past, it.lag = true, l
			l.queue = append(l.queue, it)
		}
	}
	switch {
	case v.turnOver(e):
		done <- errTurn
	case len(l.queue) <= maxCaught:
		done <- nil
	default:
		l.asking = done
	}
}

// turnOver tells whether a reader goes on with another pair: one that waits long enough, or
// any where its own has all there is.
func (v *loop) turnOver(e *errand) bool {
	l := e.laggard
	if time.Since(e.begun) <= readerTurn && !l.caughtUp() || v.unread() == nil {
		return false
	}
	l.again = time.Now()
	return true
}

// far is how many messages, ours or not, are still to be read.
func (l *laggard) far() (n uint64) {
	for stream, seq := range l.withheld {
		if at := l.reached(stream); seq > at {
			n += seq - at
		}
	}
	return n
}

// covered takes the ends of the streams of which the reader has given everything that waits:
// a stream of which it has given what is needed is covered up to its last message.
func (v *loop) covered(e *errand, ends []End) error {
	l := e.laggard
	if l.errand != e || v.draining {
		return errTurn
	}
	for _, end := range ends {
		at, ok := l.done[end.Stream]
		if !ok || l.reached(end.Stream) < end.Need || end.Last.Seq <= at.Seq {
			continue
		}
		end.Last.Stream = end.Stream
		l.cover(end.Last)
	}
	if v.turnOver(e) {
		return errTurn
	}
	return nil
}

// cover says that nothing for the pair lies up to a position but what is in its queue.
func (l *laggard) cover(at edda.Checkpoint) {
	l.given[at.Stream] = at.Seq
	if !l.queued(at.Stream) {
		l.done[at.Stream], l.dirty = at, true
	}
}

func (l *laggard) queued(stream string) bool {
	for _, it := range l.queue {
		if it.position().Stream == stream {
			return true
		}
	}
	return false
}

// makeRoom answers the readers whose pairs have taken in what was read for them.
func (v *loop) makeRoom() {
	for _, l := range v.lagging {
		if l.asking != nil && len(l.queue) <= maxCaught {
			l.asking <- nil
			l.asking = nil
		}
	}
}

// dismiss ends the reading for a pair, if there is any.
func (l *laggard) dismiss() {
	if l.errand != nil {
		l.errand.cancel()
		l.errand = nil
	}
	if l.asking != nil {
		l.asking <- errTurn
		l.asking = nil
	}
}

// left follows a reader that has ended its errand.
func (v *loop) left(e *errand, err error) {
	l := e.laggard
	if l.errand != e {
		return // it was dismissed
	}
	l.dismiss()
	switch {
	case errors.Is(err, errTurn) || err == nil:
	case errors.Is(err, edda.Permanent):
		l.problem, l.again = err, time.Now().Add(100*365*24*time.Hour)
		v.log.Warn("a saga that is behind cannot be caught up", zap.String("saga", l.Saga), zap.String("tenant", l.Tenant), zap.Error(err))
	default:
		if l.problem == nil {
			v.log.Warn("reading for a saga that is behind failed, trying again", zap.String("saga", l.Saga), zap.String("tenant", l.Tenant), zap.Error(err))
		}
		l.problem, l.again = err, time.Now().Add(readAgain)
		time.AfterFunc(readAgain, func() { _ = v.post(context.Background(), func(v *loop) { v.employ() }) })
	}
	v.tellBehind()
	v.employ()
}

// Rejudge has those that are behind read anew, as the tenants have changed. It returns once
// that has begun.
func (e *Engine) Rejudge(ctx context.Context) error {
	return e.ask(ctx, func(v *loop, done report) {
		v.rejudge()
		done <- nil
	})
}

func (v *loop) rejudge() {
	for _, l := range v.lagging {
		l.dismiss()
		l.problem, l.again = nil, time.Time{}
		// What was read may be meant for others now, and what the main line passed from
		// here on for nobody.
		l.queue, l.given = nil, map[string]uint64{}
		for stream := range l.done {
			l.withheld[stream] = max(l.withheld[stream], v.applied[stream].Seq)
		}
	}
	v.tellBehind()
	v.employ()
}
