package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda"
	"edda/store"
)

// outboxStore is the part of *store.DB that the relay uses.
type outboxStore interface {
	Outbox(after ulid.ULID, limit int) ([]store.Row, error)
	OutboxSize() (int, time.Time)
	Outboxed(kinds ...edda.WorkKind) int
	Added() <-chan store.Added
	Committed() <-chan struct{}
	Commit(ctx context.Context, c store.Change) error
	CommitWithin(ctx context.Context, c store.Change, within time.Duration) error
}

// Relay delivers the outbox. The goroutine of Run owns the fields. Deliveries and removals run in
// goroutines of their own and report to it over channels.
type Relay struct {
	db      outboxStore
	o       Options
	metrics *metrics
	routes  []*route
	byKind  map[edda.WorkKind]*route
	chains  map[edda.Key]*chain

	scanDue     bool // the store may hold rows that the relay has not scanned
	echoLeft    bool // the echo of a result is in the store, because its route had no room
	sweep       sweep
	accepted    []*item // to be removed from the store
	removing    bool
	marks       []edda.Mark // committed by the last removal
	removeAfter time.Time   // the earliest next removal, after one failed
	stopping    bool
	unrouted    map[edda.WorkKind]bool // kinds without a destination that were logged
	lastError   string                 // the last error of the store, to log it once

	delivered chan delivery
	removed   chan removal
	flushes   chan flush
	again     chan struct{}
	waiters   []flush
}

// delivery is the outcome of one Deliver.
type delivery struct {
	route *route
	items []*item
	errs  []error
}

// removal is one commit that removes delivered rows, and its outcome.
type removal struct {
	items []*item
	marks []edda.Mark // all current marks; the change has those that differ from the last ones
	err   error
}

// New makes a relay. It does nothing before Run.
func New(db *store.DB, o Options) (*Relay, error) { return newRelay(db, o) }

func newRelay(db outboxStore, o Options) (*Relay, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Relay{
		db: db, o: o,
		byKind:    map[edda.WorkKind]*route{},
		chains:    map[edda.Key]*chain{},
		unrouted:  map[edda.WorkKind]bool{},
		delivered: make(chan delivery),
		removed:   make(chan removal),
		flushes:   make(chan flush),
		again:     make(chan struct{}, 1),
	}
	for _, l := range o.Routes {
		route := newRoute(l)
		r.routes = append(r.routes, route)
		for _, k := range l.Kinds {
			r.byKind[k] = route
		}
	}
	var err error
	r.metrics, err = newMetrics(o.Metrics, db, r.routes, r.o.Max)
	return r, err
}

// Run relays until ctx ends. Then it waits for the deliveries in flight and removes what they
// delivered. The store's committer must outlive it.
func (r *Relay) Run(ctx context.Context) error {
	if !r.awaitStart(ctx) {
		return nil
	}
	r.scanDue = true
	r.sweep.last = time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		busy := r.runOnce(ctx)
		timer.Reset(r.idleTime(busy))
		r.await(ctx, timer.C)
	}
	return r.stop(ctx)
}

// awaitStart waits until deliveries may start, and reports false when ctx ended first.
func (r *Relay) awaitStart(ctx context.Context) bool {
	if r.o.After == nil {
		return ctx.Err() == nil
	}
	for {
		select {
		case <-r.o.After:
			return true
		case f := <-r.flushes:
			f.done <- errNotStarted
		case <-ctx.Done():
			return false
		}
	}
}

// runOnce does what can be done now, and reports whether more can be done at once.
func (r *Relay) runOnce(ctx context.Context) bool {
	now := time.Now()
	busy := r.scan()
	busy = r.sweepOnce(now) || busy
	for _, l := range r.routes {
		for it := l.due(now); it != nil; it = l.due(now) {
			it.state = waiting
			it.chain.release() // queues it unless other rows block it
		}
	}
	for r.offerOnce() {
	}
	for _, l := range r.routes {
		for batch := l.batch(now); batch != nil; batch = l.batch(now) {
			r.deliver(ctx, l, batch)
		}
	}
	r.remove(ctx)
	r.answerFlushes()
	return busy
}

// offerOnce offers new rows to the takers, and reports whether they took any: an accepted row may
// have blocked others.
func (r *Relay) offerOnce() bool {
	any := false
	for _, l := range r.routes {
		for _, it := range l.offerUntried() {
			r.accept(it)
			it.chain.release()
			any = true
		}
	}
	return any
}

// await handles the next event, or returns when the timer fires.
func (r *Relay) await(ctx context.Context, timer <-chan time.Time) {
	select {
	case <-ctx.Done():
	case <-timer:
		r.scanDue = true
	case a := <-r.db.Added():
		r.take(a)
	case <-r.db.Committed():
		r.scanDue = true
	case d := <-r.delivered:
		r.deliveryDone(d)
	case d := <-r.removed:
		r.removalDone(d)
	case f := <-r.flushes:
		r.scanDue, r.waiters = true, append(r.waiters, f)
	case <-r.again:
		r.republish()
	}
}

// idleTime is how long the relay has nothing to do unless an event comes.
func (r *Relay) idleTime(busy bool) time.Duration {
	if busy {
		return 0
	}
	wait := lookEvery
	for _, l := range r.routes {
		if at := l.wakeAt(); !at.IsZero() {
			wait = min(wait, max(time.Until(at), 0))
		}
	}
	if len(r.accepted) > 0 && !r.removing {
		wait = min(wait, max(time.Until(r.removeAfter), 0))
	}
	return wait
}

// deliver gives a batch to the route's destination, in a goroutine of its own.
func (r *Relay) deliver(ctx context.Context, l *route, items []*item) {
	l.active++
	work := make([]edda.Work, len(items))
	for i, it := range items {
		work[i] = *it.row.Work
	}
	go func() {
		// gofail: var outboxRead struct{}
		errs := r.send(ctx, l, work)
		// gofail: var outboxPublished struct{}
		errs = r.handleRejections(ctx, work, errs)
		r.delivered <- delivery{l, items, errs}
	}()
}

// send calls Deliver if the fence lets it.
func (r *Relay) send(ctx context.Context, l *route, work []edda.Work) []error {
	if r.o.Fence != nil {
		if err := r.o.Fence(ctx); err != nil {
			return slices.Repeat([]error{err}, len(work))
		}
	}
	return l.Destination.Deliver(ctx, work)
}

// deliveryDone handles the outcome of a Deliver.
func (r *Relay) deliveryDone(d delivery) {
	d.route.active--
	now, accepted, failed := time.Now(), 0, 0
	var after time.Duration
	var last error
	for i, it := range d.items {
		err := errorOf(d.errs, i)
		if err == nil {
			r.accept(it)
			accepted++
			continue
		}
		failed, last = failed+1, err
		after = max(after, retryDelay(err))
		r.fail(it, err, now)
	}
	if accepted+failed > 0 {
		r.updateHealth(d.route, accepted, failed, last)
	}
	if after > 0 {
		d.route.until = latest(d.route.until, now.Add(after))
	}
	for _, it := range d.items {
		it.chain.release()
	}
}

func errorOf(errs []error, i int) error {
	if i < len(errs) {
		return errs[i]
	}
	return nil
}

func retryDelay(err error) time.Duration {
	var c *edda.Classified
	if errors.As(err, &c) {
		return c.After
	}
	return 0
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// accept removes an accepted row from its chain and schedules its removal. An effect's row stays
// in the store until its result is committed.
func (r *Relay) accept(it *item) {
	it.route.accepted.Inc()
	r.unchain(it)
	if it.row.Work.Kind == edda.WorkEffect {
		it.route.removeHeld(it.row)
		return
	}
	r.accepted = append(r.accepted, it)
}

// fail sets a row aside until its next attempt. The instance's later rows for the same destination
// wait behind it.
func (r *Relay) fail(it *item, err error, now time.Time) {
	it.fails++
	r.metrics.failures.WithLabelValues(it.route.Name).Inc()
	if it.fails == 1 && !it.route.down && !r.stopping {
		w := it.row.Work
		r.o.Log.Warn("work was not accepted, trying again", zap.String("destination", it.route.Name), zap.String("work", w.ID), zap.String("kind", string(w.Kind)),
			zap.String("tenant", w.From.Tenant), zap.String("saga", w.From.Saga), zap.String("correlation", w.From.Correlation),
			zap.String("trace", w.Trace), zap.Error(err))
	}
	wait := max(retryPause(it.fails, r.o.Jitter()), retryDelay(err))
	it.route.retryAt(it, now.Add(wait))
}

// updateHealth decides whether the destination is down, from the outcome of one Deliver.
func (r *Relay) updateHealth(l *route, accepted, failed int, err error) {
	if accepted > 0 {
		l.failures, l.probes = 0, 0
		if l.down {
			r.o.Log.Info("destination is up again", zap.String("destination", l.Name))
			l.until = time.Time{}
			r.metrics.setDown(l, false)
		}
		return
	}
	l.failures += failed
	if l.failures < downAfter || r.stopping {
		return
	}
	l.probes++
	l.until = latest(l.until, time.Now().Add(retryPause(l.probes, r.o.Jitter())))
	if !l.down {
		r.o.Log.Error("destination is down: its work waits in the store", zap.String("destination", l.Name), zap.Error(err))
		r.metrics.setDown(l, true)
		for _, c := range r.chains { // rows for other destinations may overtake the rows of this one
			c.release()
		}
	}
}

// remove starts the removal of accepted rows, one change at a time. The change joins the next
// commit within removeWithin, so that inputs do not wait behind a commit of the relay. With a
// Flush waiting it commits at once.
func (r *Relay) remove(ctx context.Context) {
	if r.removing || len(r.accepted) == 0 || time.Now().Before(r.removeAfter) {
		return
	}
	within := removeWithin
	if len(r.waiters) > 0 {
		within = 0
	}
	n := min(len(r.accepted), removeRows)
	items := r.accepted[:n:n]
	// gofail: var outboxBeforeMark struct{}
	r.accepted, r.removing = r.accepted[n:], true
	d := r.removalOf(items)
	c := d.change(r.marks)
	go func() {
		d.err = r.db.CommitWithin(ctx, c, within)
		r.removed <- d
	}()
}

func (r *Relay) removalOf(items []*item) removal {
	d := removal{items: items}
	if r.o.Marks != nil {
		d.marks = r.o.Marks()
	}
	return d
}

// change is the store change of a removal; before are the marks that the last one committed.
func (d removal) change(before []edda.Mark) store.Change {
	c := store.Change{Delivered: make([]ulid.ULID, len(d.items))}
	for i, it := range d.items {
		c.Delivered[i] = it.row.ID
	}
	for _, m := range d.marks {
		if !slices.Contains(before, m) {
			c.Marks = append(c.Marks, m)
		}
	}
	return c
}

// removalDone handles the outcome of a removal. Rows count as held until they are removed, so that
// the relay does not run ahead of a store that cannot be written.
func (r *Relay) removalDone(d removal) {
	// gofail: var outboxMarked struct{}
	r.removing = false
	if d.err != nil {
		if !errors.Is(d.err, context.Canceled) { // stop removes the rows after ctx has ended
			r.logOnce("remove delivered work", d.err)
		}
		r.removeAfter = time.Now().Add(lookEvery)
		r.accepted = append(d.items, r.accepted...)
		return
	}
	r.marks = d.marks
	for _, it := range d.items {
		it.route.removeHeld(it.row)
	}
}

// logOnce logs an error of the store, unless it was the last one logged.
func (r *Relay) logOnce(doing string, err error) {
	if text := doing + ": " + err.Error(); text != r.lastError {
		r.lastError = text
		r.o.Log.Error(doing, zap.Error(err))
	}
}

// stop waits for the deliveries and the removal in flight, then removes what was accepted.
func (r *Relay) stop(ctx context.Context) error {
	r.stopping = true
	for r.removing || slices.ContainsFunc(r.routes, func(l *route) bool { return l.active > 0 }) {
		select {
		case d := <-r.delivered:
			r.deliveryDone(d)
		case d := <-r.removed:
			r.removalDone(d)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if len(r.accepted) == 0 {
		return nil
	}
	if err := r.db.Commit(ctx, r.removalOf(r.accepted).change(r.marks)); err != nil {
		return fmt.Errorf("remove delivered work: %w", err)
	}
	return nil
}
