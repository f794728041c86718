package effects

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of an admission.
const (
	// maxIdleKeys are remembered for the tokens they have spent. Beyond it the one
	// that would soonest be forgotten is forgotten: who floods with keys gains a
	// call of one of them for every so many of others.
	maxIdleKeys = 1 << 16
	// A message that was sent away comes back within these: not at once, and
	// soon enough that it is not forgotten in a long queue.
	minAway = time.Second
	maxAway = time.Minute
)

// What a call waits for, as the metric says it: what stopped it when it came.
const (
	forSlot       = "slot"       // as many run as may
	forRate       = "rate"       // its key's tokens are spent
	forConcurrent = "concurrent" // as many of its key run as may
	forBreaker    = "breaker"
)

// health is how a call ended, for the breaker.
type health int

const (
	neutral health = iota // it says nothing of the other side: it was cut off, or not made for good reasons
	unused                // it was not made: its token is given back too, where that is safe
	healthy
	ill
)

// limiterOptions say what an effect's calls may use.
type limiterOptions struct {
	slots   int
	limit   *limit   // nil: none
	breaker *breaker // nil: none
	// observe hears of every wait, when it is over; nil: nobody does. It is called without a lock, concurrently.
	observe func(reason string, waited time.Duration)
}

// limiter decides when the calls of one effect may begin: it has a number of
// slots, and each key has its limit, and all share a breaker. Free slots go round
// the keys that may go, so that the flood of one delays a call of another by one
// round at most. A call that waits holds nothing. Its methods may be called
// concurrently. It needs no end: nothing of it runs while nothing waits.
type limiter struct {
	o limiterOptions
	// resting counts the fetched commands that wait for the time of their next call, and
	// not here yet.
	resting atomic.Int64
	// recheck, of capacity 1, tells the consumer that there may be room for other
	// commands: limited has become true, or a command rests or has ended.
	recheck chan struct{}

	mu         sync.Mutex // guards all below; a breaker's is taken within it, never the other way round
	limit      *limit
	breaker    *breaker
	free       int // slots
	keys       map[string]*queue
	ring       list.List // of *queue: those whose next call may go, in turn
	later      queues    // those whose next call waits for a token, by when it is there
	idle       queues    // those that only wait to be forgotten, by when their bucket is full
	longest    queues    // those of which calls could be sent away
	waiting    int
	alarm      *time.Timer // for the next instant at which something may go
	wasLimited bool        // limited, when it was last looked at
}

// request is who asks for a turn.
type request struct {
	key  string
	high bool
	// begun says that its command holds a claim: it goes before the others of its
	// key, and is not sent away.
	begun bool
	until time.Time // it waits no longer; zero: as long as its ctx
}

// shedError says that a call was sent away: its message should come back then.
type shedError struct{ after time.Duration }

func (e *shedError) Error() string { return fmt.Sprintf("sent away for %s", e.after) }

func newLimiter(o limiterOptions) *limiter {
	return &limiter{
		o: o, limit: o.limit, breaker: o.breaker, free: o.slots, keys: map[string]*queue{}, recheck: make(chan struct{}, 1),
		later: byTime(), idle: byTime(), longest: byLength(),
	}
}

// configure replaces the limit and the breaker, as a reload does. What waits
// goes on under the new ones, and what the keys have spent stays spent where the
// keys are the same.
func (a *limiter) configure(l *limit, b *breaker) {
	a.mu.Lock()
	was, now := a.limit, time.Now()
	a.limit, a.breaker = l, b
	for _, q := range a.keys {
		q.bucket = l.refit(was, q.bucket, now)
		a.place(q, now)
	}
	a.dispatch(now)
	a.unlock()
}

// acquire waits until a call may begin. Where ctx ends first, the error is its
// cause, and context.DeadlineExceeded at the applicant's until; a *laterError
// where the call was sent away.
func (a *limiter) acquire(ctx context.Context, r request) (*permit, error) {
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !r.until.IsZero() && !time.Now().Before(r.until):
		return nil, context.DeadlineExceeded
	}
	w := a.join(r)
	if w.done == nil { // most calls: no timer is made for them
		return &w.permit, nil
	}
	if !r.until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.until)
		defer cancel()
	}
	return a.await(ctx, w)
}

// await waits for the turn of a call that has joined.
func (a *limiter) await(ctx context.Context, w *waiter) (*permit, error) {
	since := time.Now()
	select {
	case <-w.done:
	case <-ctx.Done():
		a.withdraw(w)
	}
	if a.o.observe != nil {
		a.o.observe(w.reason, time.Since(since))
	}
	switch {
	case w.granted:
		return &w.permit, nil
	case w.shed != nil:
		return nil, w.shed
	default:
		return nil, context.Cause(ctx)
	}
}

// join lets a call wait, unless it may begin at once.
func (a *limiter) join(r request) *waiter {
	a.mu.Lock()
	now := time.Now()
	q := a.keys[r.key]
	if q == nil {
		q = &queue{key: r.key, bucket: a.limit.bucket(), rank: -1}
		a.keys[r.key] = q
	}
	w := &waiter{request: r}
	a.enqueue(q, w)
	a.place(q, now)
	a.dispatch(now)
	if !w.granted {
		w.done, w.reason = make(chan struct{}), a.waitReason(q)
	}
	a.unlock()
	return w
}

func (a *limiter) enqueue(q *queue, w *waiter) {
	q.push(w)
	w.permit.q = q
	a.waiting++
	a.rank(q)
}

func (a *limiter) dequeue(q *queue, w *waiter) {
	w.remove()
	a.waiting--
	a.rank(q)
}

// rank keeps the heap of the longest.
func (a *limiter) rank(q *queue) {
	switch in := q.rank >= 0; {
	case in && q.unbegun() == 0:
		a.longest.remove(q)
	case in:
		a.longest.fix(q)
	case q.unbegun() > 0:
		a.longest.add(q)
	}
}

// waitReason is what keeps a key's call from beginning.
func (a *limiter) waitReason(q *queue) string {
	_, shut := a.breaker.shut()
	switch {
	case shut:
		return forBreaker
	case a.saturated(q):
		return forConcurrent
	case q.heap == &a.later:
		return forRate
	default:
		return forSlot
	}
}

// saturated tells whether as many calls of a key run as may.
func (a *limiter) saturated(q *queue) bool {
	return a.limit != nil && a.limit.concurrent > 0 && q.running >= a.limit.concurrent
}

// withdraw takes back a call whose ctx has ended. A turn it was given at the
// same moment was not used.
func (a *limiter) withdraw(w *waiter) {
	a.mu.Lock()
	now, q := time.Now(), w.permit.q
	if w.at != nil {
		a.dequeue(q, w)
		a.place(q, now)
	}
	granted := w.granted
	w.granted, w.shed = false, nil
	a.dispatch(now)
	a.unlock()
	if granted {
		w.permit.release(unused)
	}
}

// place puts a key where it belongs, after anything about it has changed.
func (a *limiter) place(q *queue, now time.Time) {
	switch token := ready(q.bucket, 1, now); {
	case q.waiting() == 0 && q.running == 0:
		a.retire(q, now)
	case q.waiting() == 0, a.saturated(q):
		a.leave(q) // the end of a call brings it back
	case token.After(now):
		a.move(q, &a.later, token)
	case q.inRing == nil:
		a.leave(q)
		q.inRing = a.ring.PushBack(q)
	}
}

// retire forgets a key that has nothing to do, at the latest when its bucket is
// full: it is then as new.
func (a *limiter) retire(q *queue, now time.Time) {
	full := now
	if q.bucket != nil {
		full = ready(q.bucket, float64(q.bucket.Burst()), now)
	}
	if !full.After(now) {
		a.forget(q)
		return
	}
	a.move(q, &a.idle, full)
	if a.idle.Len() > maxIdleKeys {
		a.forget(a.idle.first())
	}
}

func (a *limiter) forget(q *queue) {
	a.leave(q)
	delete(a.keys, q.key)
}

// leave takes a key out of where it stands.
func (a *limiter) leave(q *queue) {
	if q.inRing != nil {
		a.ring.Remove(q.inRing)
		q.inRing = nil
	}
	if q.heap != nil {
		q.heap.remove(q)
		q.heap = nil
	}
}

// move puts a key into a heap, or to another instant there.
func (a *limiter) move(q *queue, h *queues, when time.Time) {
	if q.heap == h {
		q.when = when
		h.fix(q)
		return
	}
	a.leave(q)
	q.heap, q.when = h, when
	h.add(q)
}

// promote puts those keys in the ring whose token is there, and forgets those
// whose bucket is full.
func (a *limiter) promote(now time.Time) {
	for q := a.later.first(); q != nil && !q.when.After(now); q = a.later.first() {
		a.place(q, now)
	}
	for q := a.idle.first(); q != nil && !q.when.After(now); q = a.idle.first() {
		a.forget(q)
	}
}

// dispatch begins all that may begin now.
func (a *limiter) dispatch(now time.Time) {
	a.promote(now)
	for a.free > 0 && a.ring.Len() > 0 {
		opening, after, ok := a.breaker.enter(a)
		if !ok {
			a.setAlarm(after) // 0: the breaker tells
			return
		}
		a.begin(a.ring.Front().Value.(*queue), opening, now)
	}
	if q := a.later.first(); q != nil && a.free > 0 {
		a.setAlarm(q.when.Sub(now))
		return
	}
	a.setAlarm(0) // the end of a call looks again
}

// begin gives the next call of a key its turn, and the key goes to the end of
// the ring.
func (a *limiter) begin(q *queue, opening uint64, now time.Time) {
	w := q.next()
	a.dequeue(q, w)
	a.free--
	q.running++
	w.permit.token = q.take(now)
	w.permit.a, w.permit.breaker, w.permit.opening = a, a.breaker, opening
	w.granted = true
	if w.done != nil {
		close(w.done)
	}
	a.leave(q)
	a.place(q, now)
}

// setAlarm lets look again after a time; never where it is 0.
func (a *limiter) setAlarm(after time.Duration) {
	switch {
	case after <= 0 && a.alarm != nil:
		a.alarm.Stop()
	case after <= 0:
	case a.alarm == nil:
		a.alarm = time.AfterFunc(after, a.redispatch)
	default:
		a.alarm.Reset(after)
	}
}

// redispatch begins what may begin now, after something outside has changed.
func (a *limiter) redispatch() {
	a.mu.Lock()
	a.dispatch(time.Now())
	a.unlock()
}

// setResting notes that a command begins to wait for the time of its next call, or has
// ended that.
func (a *limiter) setResting(begins bool) {
	if !begins {
		a.resting.Add(-1)
		return
	}
	a.resting.Add(1)
	wake(a.recheck)
}

// unlock unlocks, and then says so where keys' limits have become all that
// keeps calls waiting.
func (a *limiter) unlock() {
	was := a.wasLimited
	a.wasLimited = a.onlyLimited()
	news := a.wasLimited && !was
	a.mu.Unlock()
	if news {
		wake(a.recheck)
	}
}

// limited tells whether there are free slots and all that waits waits for its
// key's limit, so that commands of other keys could begin.
func (a *limiter) limited() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.onlyLimited()
}

func (a *limiter) onlyLimited() bool {
	if a.waiting == 0 || a.free == 0 || a.ring.Len() > 0 {
		return false
	}
	_, shut := a.breaker.shut()
	return !shut
}

// shed sends away up to n calls of commands that hold no claim, the latest of
// the keys that have most of them.
func (a *limiter) shed(n int) {
	a.mu.Lock()
	now := time.Now()
	for ; n > 0 && a.longest.Len() > 0; n-- {
		q := a.longest.first()
		w := q.last()
		w.shed = &shedError{a.shedDelay(q, now)}
		a.dequeue(q, w)
		a.place(q, now)
		close(w.done)
	}
	a.dispatch(now)
	a.unlock()
}

// shedDelay is when the last call of a key could begin.
func (a *limiter) shedDelay(q *queue, now time.Time) time.Duration {
	open, _ := a.breaker.shut()
	token := ready(q.bucket, float64(q.waiting()), now).Sub(now)
	return min(max(open, token, minAway), maxAway)
}

// permit is the right to make one call.
type permit struct {
	a       *limiter
	q       *queue
	breaker *breaker
	opening uint64
	token   uint64
	ended   bool
}

// release gives the turn back. Only the first release counts, so that it can be deferred.
func (t *permit) release(h health) {
	a := t.a
	a.mu.Lock()
	if t.ended {
		a.mu.Unlock()
		return
	}
	t.ended = true
	now := time.Now()
	a.free++
	t.q.running--
	if h == unused {
		t.q.giveBack(t.token, now)
	}
	told := t.breaker.leave(t.opening, h)
	a.place(t.q, now)
	a.dispatch(now)
	a.unlock()
	for _, other := range told {
		other.redispatch()
	}
}
