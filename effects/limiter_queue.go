package effects

import (
	"container/heap"
	"container/list"
	"time"

	"golang.org/x/time/rate"
)

// highTurns high calls of a key begin before one normal call, where both wait.
const highTurns = 4

// waiter is a call that waits for a permit.
type waiter struct {
	request
	permit  permit        // valid once granted
	reason  string        // what it waits for
	done    chan struct{} // closed when it is granted or shed; nil: granted at once
	granted bool
	shed    *shedError
	in      *list.List // while it waits
	at      *list.Element
}

// queue holds the waiting calls of one key and counts its running ones. The limiter's
// mutex guards it.
type queue struct {
	key     string
	bucket  *rate.Limiter // nil: no rate
	taken   uint64        // tokens, to know the latest by its number
	running int
	streak  int // high calls begun since the last normal one

	begun, high, normal list.List // of *waiter

	// Where the key stands: in the ring of those that may go, in one of two
	// heaps by an instant, or nowhere.
	inRing *list.Element
	heap   *queues
	when   time.Time
	at     int // in that heap
	rank   int // in the heap of the longest
}

// waiting counts the calls that wait.
func (q *queue) waiting() int { return q.begun.Len() + q.unbegun() }

// unbegun counts the waiting calls of commands without a claim.
func (q *queue) unbegun() int { return q.high.Len() + q.normal.Len() }

// push appends a call to those of its kind.
func (q *queue) push(w *waiter) {
	switch {
	case w.begun:
		w.in = &q.begun
	case w.high:
		w.in = &q.high
	default:
		w.in = &q.normal
	}
	w.at = w.in.PushBack(w)
}

// next is the call to begin. Calls of begun commands go first, and high before normal, but
// for every highTurns high calls one normal call.
func (q *queue) next() *waiter {
	switch {
	case q.begun.Len() > 0:
		return q.begun.Front().Value.(*waiter)
	case q.high.Len() > 0 && (q.streak < highTurns || q.normal.Len() == 0):
		q.streak++
		return q.high.Front().Value.(*waiter)
	default:
		q.streak = 0
		return q.normal.Front().Value.(*waiter)
	}
}

// last is the next call to shed.
func (q *queue) last() *waiter {
	if q.normal.Len() > 0 {
		return q.normal.Back().Value.(*waiter)
	}
	return q.high.Back().Value.(*waiter)
}

// take takes a token for a call that begins, and gives its number; 0 without a rate.
func (q *queue) take(now time.Time) uint64 {
	if q.bucket == nil {
		return 0
	}
	q.bucket.AllowN(now, 1)
	q.taken++
	return q.taken
}

// giveBack returns a token that was not used, unless a later one was taken. The bucket
// might have been full in the meantime, and then it would hold too much.
func (q *queue) giveBack(token uint64, now time.Time) {
	if q.bucket == nil || token == 0 || token != q.taken {
		return
	}
	q.bucket.AllowN(now, -1)
	q.taken--
}

// remove takes a call out.
func (w *waiter) remove() {
	w.in.Remove(w.at)
	w.in, w.at = nil, nil
}

// queues is a heap of keys. The key before all others is at index 0.
type queues struct {
	all    []*queue
	before func(a, b *queue) bool
	index  func(q *queue) *int // where the key's place in this heap is kept
}

// byTime is a heap of keys by their instant.
func byTime() queues {
	return queues{before: func(a, b *queue) bool { return a.when.Before(b.when) }, index: func(q *queue) *int { return &q.at }}
}

// byLength is a heap of keys by the number of calls to shed.
func byLength() queues {
	return queues{before: func(a, b *queue) bool { return a.unbegun() > b.unbegun() }, index: func(q *queue) *int { return &q.rank }}
}

func (h *queues) Len() int           { return len(h.all) }
func (h *queues) Less(i, j int) bool { return h.before(h.all[i], h.all[j]) }

func (h *queues) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	*h.index(h.all[i]), *h.index(h.all[j]) = i, j
}

// Push is for package heap.
func (h *queues) Push(x any) {
	q := x.(*queue)
	*h.index(q) = len(h.all)
	h.all = append(h.all, q)
}

// Pop is for package heap.
func (h *queues) Pop() any {
	last := len(h.all) - 1
	q := h.all[last]
	h.all[last] = nil // or the array would keep it alive
	h.all = h.all[:last]
	*h.index(q) = -1
	return q
}

func (h *queues) first() *queue {
	if len(h.all) == 0 {
		return nil
	}
	return h.all[0]
}

func (h *queues) add(q *queue)    { heap.Push(h, q) }
func (h *queues) remove(q *queue) { heap.Remove(h, *h.index(q)) }
func (h *queues) fix(q *queue)    { heap.Fix(h, *h.index(q)) }
