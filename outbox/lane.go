package outbox

import (
	"container/heap"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"

	"edda/store"
)

// state is where a held row stands.
type state int

const (
	waiting  state = iota // behind an earlier row of its instance
	ready                 // in its lane's queue
	sending               // in a Deliver under way
	retrying              // failed; waits for its time
)

// item is one row held in memory.
type item struct {
	row   store.Row
	lane  *lane
	chain *chain // of its instance
	kept  bool   // by its destination, which took it
	state state
	fails int
	until time.Time // when retrying
}

// lane is one destination's share of the held rows. The relay's loop owns it.
type lane struct {
	Lane
	taker Taker // the destination, where it is one
	// untried became ready, and are to be offered to taker once.
	untried []*item
	cursor  ulid.ULID // every row of this lane up to it was taken
	behind  bool      // rows after the cursor were left in the store
	held    int       // taken, and not yet accepted and durably removed
	bytes   int       // of their payloads
	high    []*item
	normal  []*item
	run     int // high rows taken since the last normal one
	retry   retries
	active  int // Delivers under way

	accepted prometheus.Counter // of rows
	failures int                // in a row
	down     bool               // nothing but a probe now and then
	rounds   int                // probes that failed
	until    time.Time          // no Deliver before
}

func newLane(l Lane) *lane {
	if l.Batch <= 0 {
		l.Batch = defaultBatch
	}
	if l.Parallel <= 0 {
		l.Parallel = 1
	}
	taker, _ := l.Destination.(Taker)
	return &lane{Lane: l, taker: taker}
}

func (l *lane) full() bool { return l.held >= maxHeld || l.bytes >= maxHeldBytes }

// hungry tells whether it is worth a scan of what was left in the store.
func (l *lane) hungry() bool {
	return l.behind && l.held <= maxHeld/2 && l.bytes <= maxHeldBytes/2
}

// hold and letGo count what is in memory.
func (l *lane) hold(row store.Row) {
	l.held++
	l.bytes += len(row.Work.Payload)
}

func (l *lane) letGo(row store.Row) {
	l.held--
	l.bytes -= len(row.Work.Payload)
}

func (l *lane) push(it *item) {
	it.state = ready
	if l.taker != nil {
		l.untried = append(l.untried, it)
		return
	}
	l.queue(it)
}

func (l *lane) queue(it *item) {
	if it.row.Work.High {
		l.high = append(l.high, it)
		return
	}
	l.normal = append(l.normal, it)
}

func (l *lane) queued() int { return len(l.high) + len(l.normal) }

// next takes one row: high before normal, but after highShare of them a normal one.
func (l *lane) next() *item {
	if len(l.high) > 0 && (l.run < highShare || len(l.normal) == 0) {
		l.run++
		return shift(&l.high)
	}
	l.run = 0
	return shift(&l.normal)
}

func shift(q *[]*item) *item {
	it := (*q)[0]
	(*q)[0] = nil // or the array would keep it alive
	*q = (*q)[1:]
	return it
}

// free tells whether one more Deliver may begin: of a lane that is down, one
// at a time asks whether it is back.
func (l *lane) free() bool {
	return l.active < l.Parallel && (l.active == 0 || !l.down)
}

// batch takes what may go out now; nil when nothing may.
func (l *lane) batch(now time.Time) []*item {
	if l.queued() == 0 || !l.free() || now.Before(l.until) {
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

// taken gives those of the rows that became ready which the destination takes at once,
// also while it does not answer, and queues the others.
func (l *lane) taken() (all []*item) {
	for _, it := range l.untried {
		if it.kept = l.taker.Take(&it.row.Work); it.kept {
			all = append(all, it)
			continue
		}
		l.queue(it)
	}
	clear(l.untried) // or the array would keep them alive
	l.untried = l.untried[:0]
	return all
}

// later puts a row that failed aside until its time.
func (l *lane) later(it *item, until time.Time) {
	it.state, it.until = retrying, until
	heap.Push(&l.retry, it)
}

// due takes a row whose time has come; nil when there is none.
func (l *lane) due(now time.Time) *item {
	if len(l.retry) == 0 || l.retry[0].until.After(now) {
		return nil
	}
	return heap.Pop(&l.retry).(*item)
}

// hurry makes every row that failed due now.
func (l *lane) hurry(now time.Time) {
	for _, it := range l.retry {
		it.until = now
	}
	heap.Init(&l.retry)
}

// wake is when the lane wants to be looked at again; zero when something else
// will happen first.
func (l *lane) wake() time.Time {
	var at time.Time
	if len(l.retry) > 0 {
		at = l.retry[0].until
	}
	if l.queued() > 0 && l.free() && (at.IsZero() || l.until.Before(at)) {
		at = l.until
	}
	return at
}

// retries is a heap by time, then by commit order.
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
