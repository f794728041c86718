package outbox

import (
	"container/heap"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"

	"edda/store"
)

// state is the stage of a held row.
type state int

const (
	waiting  state = iota // behind an earlier row of its instance
	ready                 // in the queue of its route
	sending               // in flight, in a Deliver
	retrying              // failed, and waits for its next attempt
)

// item is one row that the relay holds in memory.
type item struct {
	row   store.NewRow
	route *route
	chain *chain // of its instance
	state state
	fails int
	until time.Time // of the next attempt, when retrying
}

// route is one destination and its held rows. Only the relay's loop may use it.
type route struct {
	Route
	taker Taker // the destination, if it implements Taker
	// untried are ready rows that taker has not been offered yet. It is offered each once.
	untried []*item
	cursor  ulid.ULID // the route has admitted its rows up to this one
	behind  bool      // the store has rows after the cursor that the route had no room for
	held    int       // rows admitted, and not yet accepted and durably removed
	bytes   int       // of the payloads of the held rows
	high    []*item
	normal  []*item
	highRun int // high rows queued for sending since the last normal one
	retry   retries
	active  int // Delivers in flight

	accepted prometheus.Counter // of rows
	failures int                // consecutive ones
	down     bool               // the route sends only a probe from time to time
	probes   int                // probes that failed in a row
	until    time.Time          // no Deliver starts before
}

func newRoute(l Route) *route {
	if l.Batch <= 0 {
		l.Batch = defaultBatch
	}
	if l.Parallel <= 0 {
		l.Parallel = 1
	}
	taker, _ := l.Destination.(Taker)
	return &route{Route: l, taker: taker}
}

func (l *route) full() bool { return l.held >= maxHeld || l.bytes >= maxHeldBytes }

// wantsScan reports whether the store has rows for the route and at least half of its room is free.
func (l *route) wantsScan() bool {
	return l.behind && l.held <= maxHeld/2 && l.bytes <= maxHeldBytes/2
}

// addHeld counts a row and its bytes as held; removeHeld takes them off again.
func (l *route) addHeld(row store.NewRow) {
	l.held++
	l.bytes += len(row.Work.Payload)
}

func (l *route) removeHeld(row store.NewRow) {
	l.held--
	l.bytes -= len(row.Work.Payload)
}

func (l *route) push(it *item) {
	it.state = ready
	if l.taker != nil {
		l.untried = append(l.untried, it)
		return
	}
	l.queue(it)
}

func (l *route) queue(it *item) {
	if it.row.Work.High {
		l.high = append(l.high, it)
		return
	}
	l.normal = append(l.normal, it)
}

func (l *route) queued() int { return len(l.high) + len(l.normal) }

// next removes one row from the queues: high before normal, but one normal row after highShare
// high ones.
func (l *route) next() *item {
	if len(l.high) > 0 && (l.highRun < highShare || len(l.normal) == 0) {
		l.highRun++
		return shift(&l.high)
	}
	l.highRun = 0
	return shift(&l.normal)
}

func shift(q *[]*item) *item {
	it := (*q)[0]
	(*q)[0] = nil // lets the collector free it
	*q = (*q)[1:]
	return it
}

// canSend reports whether another Deliver may start. A route that is down has one at a time: a
// probe.
func (l *route) canSend() bool {
	return l.active < l.Parallel && (l.active == 0 || !l.down)
}

// batch dequeues the rows of the next Deliver; nil when none may start now.
func (l *route) batch(now time.Time) []*item {
	if l.queued() == 0 || !l.canSend() || now.Before(l.until) {
		return nil
	}
	n := min(l.queued(), l.Batch)
	if l.down {
		n = 1
	}
	items := make([]*item, n)
	for i := range items {
		items[i] = l.next()
		items[i].state = sending
	}
	return items
}

// offerUntried offers the new ready rows to the taker and returns those that it took. It queues
// the others. It works also while the destination is down.
func (l *route) offerUntried() (all []*item) {
	for _, it := range l.untried {
		if l.taker.Take(it.row.Work) {
			all = append(all, it)
			continue
		}
		l.queue(it)
	}
	clear(l.untried) // lets the collector free them
	l.untried = l.untried[:0]
	return all
}

// retryAt sets a failed row aside until a time.
func (l *route) retryAt(it *item, until time.Time) {
	it.state, it.until = retrying, until
	heap.Push(&l.retry, it)
}

// due removes and returns a failed row whose time has come; nil when there is none.
func (l *route) due(now time.Time) *item {
	if len(l.retry) == 0 || l.retry[0].until.After(now) {
		return nil
	}
	return heap.Pop(&l.retry).(*item)
}

// retryNow makes every failed row due now.
func (l *route) retryNow(now time.Time) {
	for _, it := range l.retry {
		it.until = now
	}
	heap.Init(&l.retry)
}

// wakeAt is when the route next has something to do without an event; zero when only an event
// helps.
func (l *route) wakeAt() time.Time {
	var at time.Time
	if len(l.retry) > 0 {
		at = l.retry[0].until
	}
	if l.queued() > 0 && l.canSend() && (at.IsZero() || l.until.Before(at)) {
		at = l.until
	}
	return at
}

// retries is a heap, ordered by time and then by commit order.
type retries []*item

func (r retries) Len() int { return len(r) }
func (r retries) Less(i, j int) bool {
	if !r[i].until.Equal(r[j].until) {
		return r[i].until.Before(r[j].until)
	}
	return r[i].row.ID.Compare(r[j].row.ID) < 0
}
func (r retries) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)   { *r = append(*r, x.(*item)) }
func (r *retries) Pop() any {
	last := len(*r) - 1
	it := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return it
}
