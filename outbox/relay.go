package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda"
	"edda/store"
)

// box is what the relay needs of the store; *store.DB is it.
type box interface {
	AppendOutbox(rows []store.Row, after ulid.ULID, limit int) ([]store.Row, error)
	OutboxSize() (int, time.Time)
	Outboxed(kinds ...edda.WorkKind) int
	Owners(least int, kinds ...edda.WorkKind) []store.Owner
	Committed() <-chan struct{}
	Commit(ctx context.Context, c store.Change) error
	CommitWithin(ctx context.Context, c store.Change, within time.Duration) error
}

// Relay carries the outbox out. One goroutine, Run's, owns everything below;
// deliveries and clean-up commits run beside it and report to it.
type Relay struct {
	db      box
	o       Options
	metrics *metrics
	lanes   []*lane
	routes  map[edda.WorkKind]*lane
	chains  map[edda.Key]*chain
	empty   []*chain // for instances to come

	fresh     bool // the store may hold rows that were not looked at
	copyLeft  bool // the copy of a result was left in the store by its lane, which is full
	sweep     sweep
	accepted  []*item     // to be removed from the store
	ended     []*item     // which nothing holds any more, once this round is over
	spare     []*item     // empty, for rows to come
	rows      []store.Row // room for a page, of scanRows at most
	removing  bool
	marks     []edda.Mark // as of the last clean-up commit
	rest      time.Time   // no clean-up commit before, after one failed
	stopping  bool
	unrouted  map[edda.WorkKind]bool // kinds already complained about
	complaint string                 // the store's last error, logged once
	fullness  fullness               // not the loop's: see Full

	delivered chan delivery
	removed   chan removal
	flushes   chan flush
	again     chan struct{}
	waiters   []flush
}

// delivery is the outcome of one Deliver.
type delivery struct {
	lane  *lane
	items []*item
	errs  []error
}

// removal is the outcome of one clean-up commit.
type removal struct {
	items []*item
	marks []edda.Mark // all that were there, of which those that changed are in the change
	err   error
}

// New makes a relay; nothing starts before Run.
func New(db *store.DB, o Options) (*Relay, error) { return newRelay(db, o) }

func newRelay(db box, o Options) (*Relay, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Relay{
		db: db, o: o,
		routes:    map[edda.WorkKind]*lane{},
		chains:    map[edda.Key]*chain{},
		unrouted:  map[edda.WorkKind]bool{},
		delivered: make(chan delivery),
		removed:   make(chan removal),
		flushes:   make(chan flush),
		again:     make(chan struct{}, 1),
	}
	for _, l := range o.Lanes {
		r.addLane(newLane(l))
	}
	var err error
	r.fullness = fullness{db: db, max: r.o.Max, lanes: r.lanes, full: map[string]bool{}}
	r.metrics, err = newMetrics(o.Metrics, db, r.lanes, r.o.Max)
	return r, err
}

func (r *Relay) addLane(l *lane) {
	r.lanes = append(r.lanes, l)
	for _, k := range l.Kinds {
		r.routes[k] = l
	}
}

// Run relays until ctx ends; then it waits for the deliveries under way and
// removes what they had accepted. The store's committer must outlive it.
func (r *Relay) Run(ctx context.Context) error {
	if !r.mayBegin(ctx) {
		return nil
	}
	r.fresh = true
	r.sweep.last = time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		busy := r.runOnce(ctx)
		timer.Reset(r.pause(busy))
		r.await(ctx, timer.C)
	}
	return r.stop(ctx)
}

// mayBegin waits until deliveries may begin; it tells whether they may.
func (r *Relay) mayBegin(ctx context.Context) bool {
	if r.o.After == nil {
		return ctx.Err() == nil
	}
	for {
		select {
		case <-r.o.After:
			return true
		case f := <-r.flushes:
			f.done <- errNotBegun
		case <-ctx.Done():
			return false
		}
	}
}

// runOnce does what can be done now, and tells whether there is more of it.
func (r *Relay) runOnce(ctx context.Context) bool {
	now := time.Now()
	r.reuse()
	busy := r.scan()
	busy = r.sweepOnce(now) || busy
	for _, l := range r.lanes {
		r.retry(l, now)
	}
	for r.takenOnce() {
	}
	for _, l := range r.lanes {
		for batch := l.batch(now); batch != nil; batch = l.batch(now) {
			r.deliver(ctx, l, batch)
		}
	}
	r.remove(ctx)
	r.answer()
	return busy
}

// retry lets the rows go on whose time has come.
func (r *Relay) retry(l *lane, now time.Time) {
	for it := l.due(now); it != nil; it = l.due(now) {
		it.state = waiting
		it.chain.release()
	}
}

// takenOnce lets the destinations take what they take at once, and tells whether they
// took any: it may have kept others back.
func (r *Relay) takenOnce() bool {
	any := false
	for _, l := range r.lanes {
		for _, it := range l.taken() {
			r.accept(it)
			it.chain.release()
			any = true
		}
	}
	return any
}

// await takes whatever happens next, or nothing when the timer fires.
func (r *Relay) await(ctx context.Context, timer <-chan time.Time) {
	select {
	case <-ctx.Done():
	case <-timer:
		r.fresh = true
	case <-r.db.Committed():
		r.fresh = true
	case d := <-r.delivered:
		r.settle(d)
	case d := <-r.removed:
		r.cleaned(d)
	case f := <-r.flushes:
		r.fresh, r.waiters = true, append(r.waiters, f)
	case <-r.again:
		r.republish()
	}
}

// pause is how long nothing needs to be done unless something happens.
func (r *Relay) pause(busy bool) time.Duration {
	if busy {
		return 0
	}
	wait := lookEvery
	for _, l := range r.lanes {
		if at := l.wake(); !at.IsZero() {
			wait = min(wait, max(time.Until(at), 0))
		}
	}
	if len(r.accepted) > 0 && !r.removing {
		wait = min(wait, max(time.Until(r.rest), 0))
	}
	return wait
}

// batches are used again: no Deliver keeps one.
var batches = sync.Pool{New: func() any { return new([]edda.Work) }}

// deliver hands a batch to the lane's destination, beside the loop.
func (r *Relay) deliver(ctx context.Context, l *lane, items []*item) {
	l.active++
	batch := batches.Get().(*[]edda.Work)
	*batch = slices.Grow(*batch, len(items))
	for _, it := range items {
		*batch = append(*batch, it.row.Work)
	}
	go func() {
		work := *batch
		// gofail: var outboxRead struct{}
		errs := r.send(ctx, l, work)
		// gofail: var outboxPublished struct{}
		errs = r.rejected(ctx, work, errs)
		clear(work)
		*batch = work[:0]
		batches.Put(batch)
		r.delivered <- delivery{l, items, errs}
	}()
}

// send delivers where the process may.
func (r *Relay) send(ctx context.Context, l *lane, work []edda.Work) []error {
	if r.o.Fence != nil {
		if err := r.o.Fence(ctx); err != nil {
			return slices.Repeat([]error{err}, len(work))
		}
	}
	return l.Destination.Deliver(ctx, work)
}

// settle takes the outcome of a Deliver.
func (r *Relay) settle(d delivery) {
	d.lane.active--
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
		after = max(after, askedFor(err))
		r.fail(it, err, now)
	}
	if accepted+failed > 0 {
		r.judge(d.lane, accepted, failed, last)
	}
	if after > 0 {
		d.lane.until = later(d.lane.until, now.Add(after))
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

func askedFor(err error) time.Duration {
	var c *edda.Classified
	if errors.As(err, &c) {
		return c.After
	}
	return 0
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// accept takes a row out of its instance's chain; an effect's row stays in the
// store until its result is committed.
func (r *Relay) accept(it *item) {
	it.lane.accepted.Inc()
	r.unchain(it)
	if it.row.Work.Kind == edda.WorkEffect {
		r.end(it)
		return
	}
	r.accepted = append(r.accepted, it)
}

// fail puts a row aside for a while; its instance's later rows for the same
// destination wait behind it.
func (r *Relay) fail(it *item, err error, now time.Time) {
	it.fails++
	r.metrics.failed(it.lane)
	if it.fails == 1 && !it.lane.down && !r.stopping {
		r.o.Log.Warn("work was not accepted, trying again", workFields(it, err)...)
	}
	wait := max(retryPause(it.fails, r.o.Jitter()), askedFor(err))
	it.lane.later(it, now.Add(wait))
}

func workFields(it *item, err error) []zap.Field {
	w := it.row.Work
	return []zap.Field{zap.String("destination", it.lane.Name), zap.String("work", w.ID), zap.String("kind", string(w.Kind)),
		zap.String("tenant", w.From.Tenant), zap.String("saga", w.From.Saga), zap.String("correlation", w.From.Correlation),
		zap.String("trace", w.Trace), zap.Error(err)}
}

// judge decides whether the destination is up, from what it just did.
func (r *Relay) judge(l *lane, accepted, failed int, err error) {
	if accepted > 0 {
		r.up(l)
		return
	}
	l.failures += failed
	if l.failures < downAfter || r.stopping {
		return
	}
	l.rounds++
	l.until = later(l.until, time.Now().Add(retryPause(l.rounds, r.o.Jitter())))
	if !l.down {
		r.o.Log.Error("destination is down: its work waits in the store", zap.String("destination", l.Name), zap.Error(err))
		r.setDown(l, true)
		r.releaseAll() // what waited for this one out of order may pass
	}
}

func (r *Relay) up(l *lane) {
	l.failures, l.rounds = 0, 0
	if !l.down {
		return
	}
	r.o.Log.Info("destination is up again", zap.String("destination", l.Name))
	l.until = time.Time{}
	r.setDown(l, false)
}

func (r *Relay) setDown(l *lane, down bool) {
	l.down = down
	r.metrics.down(l)
}

func (r *Relay) releaseAll() {
	for _, c := range r.chains {
		c.release()
	}
}

// remove has what was accepted removed, one change at a time: it goes with the commit
// of others, so that what they wait for does not wait behind a commit of its own. Who
// waits for the outbox to be flushed does not wait for others.
func (r *Relay) remove(ctx context.Context) {
	if r.removing || len(r.accepted) == 0 || time.Now().Before(r.rest) {
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

// change is what is committed, after a commit that had these marks.
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

// cleaned takes the outcome of a clean-up commit. Rows count as held until they
// are gone, so a store that cannot be written stops the relay from running ahead.
func (r *Relay) cleaned(d removal) {
	// gofail: var outboxMarked struct{}
	r.removing = false
	if d.err != nil {
		if !errors.Is(d.err, context.Canceled) { // who stops removes what is left
			r.complain("remove delivered work", d.err)
		}
		r.rest = time.Now().Add(lookEvery)
		r.accepted = append(d.items, r.accepted...)
		return
	}
	r.marks = d.marks
	for _, it := range d.items {
		r.end(it)
	}
}

// end lets go of an item that is done, whose row its caller may still look at. What a
// destination took is its own.
func (r *Relay) end(it *item) {
	it.lane.letGo(it.row)
	if !it.kept {
		r.ended = append(r.ended, it)
	}
}

// reuse empties the items that have ended, and keeps some of them.
func (r *Relay) reuse() {
	for _, it := range r.ended {
		*it = item{}
		if len(r.spare) < maxSpare {
			r.spare = append(r.spare, it)
		}
	}
	clear(r.ended)
	r.ended = r.ended[:0]
}

// item is an empty one.
func (r *Relay) item() *item {
	n := len(r.spare)
	if n == 0 {
		return new(item)
	}
	it := r.spare[n-1]
	r.spare = r.spare[:n-1]
	return it
}

// complain logs an error of the store once, until it is another one.
func (r *Relay) complain(doing string, err error) {
	if text := doing + ": " + err.Error(); text != r.complaint {
		r.complaint = text
		r.o.Log.Error(doing, zap.Error(err))
	}
}

// stop waits for what is under way and removes what was accepted.
func (r *Relay) stop(ctx context.Context) error {
	r.stopping = true
	for r.underway() {
		select {
		case d := <-r.delivered:
			r.settle(d)
		case d := <-r.removed:
			r.cleaned(d)
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

func (r *Relay) underway() bool {
	for _, l := range r.lanes {
		if l.active > 0 {
			return true
		}
	}
	return r.removing
}
