package effects

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of a limiter.
const (
	// maxIdleKeys keys without calls are kept for the tokens they have spent. Beyond it the
	// key whose bucket is full soonest is forgotten: a flood of keys gains one call for
	// every maxIdleKeys others.
	maxIdleKeys = 1 << 16
	// A shed command is redelivered after minShed at the soonest, or it would be fetched in
	// a loop, and after maxShed at the latest, or it would lose its place in a long queue.
	minShed = time.Second
	maxShed = time.Minute
)

// The reasons of a wait, as the metric's label has them. They are decided when it begins.
const (
	forSlot       = "slot"       // all slots are taken
	forRate       = "rate"       // the tokens of its key are spent
	forConcurrent = "concurrent" // limit.concurrent calls of its key run
	forBreaker    = "breaker"
)

// health is what the end of a call says to the breaker.
type health int

const (
	neutral health = iota // no evidence about the upstream: the call was cut off or could not be made
	unused                // no call was made: its token is given back, if that is safe
	healthy
	ill
)

// limiterOptions are the bounds of one effect's calls.
type limiterOptions struct {
	slots   int
	limit   *limit   // nil: none
	breaker *breaker // nil: none
	// observe is called after every wait, without a lock and concurrently. It may be nil.
	observe func(reason string, waited time.Duration)
}

// limiter decides when the calls of one effect begin. It has a number of slots, each key
// has its own limit, and all keys share a breaker. Free slots go round the keys that may
// call, so a flood of one key delays a call of another by one round at most. A waiting
// call holds nothing. The methods may be called concurrently. It needs no end: nothing of
// it runs while no call waits.
type limiter struct {
	o limiterOptions
	// resting counts the fetched commands that wait for the time of their next call and do
	// not ask for a permit yet.
	resting atomic.Int64
	// recheck, of capacity 1, tells the consumer that there may be room for other
	// commands: limited has become true, or a command rests or has ended.
	recheck chan struct{}

	mu         sync.Mutex // guards all below; a breaker's mutex is taken inside it, never outside
	limit      *limit
	breaker    *breaker
	free       int // slots
	keys       map[string]*queue
	ring       list.List // of *queue: keys whose next call may begin, round robin
	later      queues    // keys whose next call waits for a token, by when it comes
	idle       queues    // keys without calls, by when their bucket is full
	longest    queues    // keys with calls to shed, by their number
	waiting    int
	alarm      *time.Timer // at the next instant at which a call may begin
	wasLimited bool        // at the last unlock
}

// request asks for a permit.
type request struct {
	key  string
	high bool
	// begun says that its command has a claim: it goes first within its key and is not
	// shed.
	begun bool
	until time.Time // the end of the wait; zero: that of ctx
}

// shedError ends the wait of a call that was shed. Its message should be redelivered after
// the delay.
type shedError struct{ after time.Duration }

func (e *shedError) Error() string { return fmt.Sprintf("shed for %s", e.after) }

func newLimiter(o limiterOptions) *limiter {
	return &limiter{
		o: o, limit: o.limit, breaker: o.breaker, free: o.slots, keys: map[string]*queue{}, recheck: make(chan struct{}, 1),
		later: byTime(), idle: byTime(), longest: byLength(),
	}
}

// configure replaces the limit and the breaker at a reload. Waiting calls go on under the
// new ones. Tokens that a key has spent stay spent if the key expression is the same.
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

// acquire waits for a permit. The error is the cause of ctx if that ends first,
// context.DeadlineExceeded at the request's until, and a *shedError if the call was shed.
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

// join queues a call, unless it may begin at once.
func (a *limiter) join(r request) *waiter {
	a.mu.Lock()
	now := time.Now()
	q := a.keys[r.key]
	if q == nil {
		q = &queue{key: r.key, bucket: a.limit.bucket(), rank: -1}
		a.keys[r.key] = q
	}
	w := &waiter{request: r}
	q.push(w)
	w.permit.q = q
	a.waiting++
	a.rank(q)
	a.place(q, now)
	a.dispatch(now)
	if !w.granted {
		w.done, w.reason = make(chan struct{}), a.waitReason(q)
	}
	a.unlock()
	return w
}

func (a *limiter) dequeue(q *queue, w *waiter) {
	w.remove()
	a.waiting--
	a.rank(q)
}

// rank keeps the heap of the keys with the most calls to shed.
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

// waitReason is what keeps a key's next call from beginning.
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

// saturated reports whether limit.concurrent calls of a key run.
func (a *limiter) saturated(q *queue) bool {
	return a.limit != nil && a.limit.concurrent > 0 && q.running >= a.limit.concurrent
}

// withdraw removes a call whose ctx has ended. It releases a permit that was granted at
// the same moment.
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

// place moves a key to where it belongs, after anything about it has changed.
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

// retire handles a key without calls: it is forgotten when its bucket is full, because it
// is then like a new key.
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

// leave takes a key out of the ring and the heaps by time.
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

// move puts a key into a heap, or at another instant of it.
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

// promote moves keys whose token has come to the ring, and forgets keys whose bucket is
// full.
func (a *limiter) promote(now time.Time) {
	for q := a.later.first(); q != nil && !q.when.After(now); q = a.later.first() {
		a.place(q, now)
	}
	for q := a.idle.first(); q != nil && !q.when.After(now); q = a.idle.first() {
		a.forget(q)
	}
}

// dispatch begins all calls that may begin now.
func (a *limiter) dispatch(now time.Time) {
	a.promote(now)
	for a.free > 0 && a.ring.Len() > 0 {
		opening, after, ok := a.breaker.enter(a)
		if !ok {
			a.setAlarm(after) // 0: the breaker redispatches
			return
		}
		a.begin(a.ring.Front().Value.(*queue), opening, now)
	}
	if q := a.later.first(); q != nil && a.free > 0 {
		a.setAlarm(q.when.Sub(now))
		return
	}
	a.setAlarm(0) // the end of a call dispatches
}

// begin gives a key's next call its permit and moves the key to the end of the ring.
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

// setAlarm has redispatch run after a time; 0 stops the alarm.
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

// redispatch begins the calls that may begin after a change outside: the time or the
// breaker.
func (a *limiter) redispatch() {
	a.mu.Lock()
	a.dispatch(time.Now())
	a.unlock()
}

// setResting counts a command that waits for the time of its next call, or no longer does.
func (a *limiter) setResting(begins bool) {
	if !begins {
		a.resting.Add(-1)
		return
	}
	a.resting.Add(1)
	wake(a.recheck)
}

// unlock unlocks the mutex. It signals recheck if keys' limits have become all that calls
// wait for.
func (a *limiter) unlock() {
	was := a.wasLimited
	a.wasLimited = a.onlyLimited()
	news := a.wasLimited && !was
	a.mu.Unlock()
	if news {
		wake(a.recheck)
	}
}

// limited reports whether slots are free and every waiting call waits for its key's limit,
// so that commands of other keys could begin.
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

// shed ends the wait of up to n calls of commands without a claim: the latest of the keys
// with the most of them.
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
	return min(max(open, token, minShed), maxShed)
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

// release gives the permit back. Only the first release counts, so it may be deferred.
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
