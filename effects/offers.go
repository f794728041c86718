package effects

import "sync"

// maxOffered commands of one effect wait for its line to take them: as many as it
// may hold. What finds no room takes its way through the stream.
const maxOffered = maxHeld

// Offer hands a command over that the stream need not carry: to the line of its
// effect, beside what that fetches. It is false where nobody takes it: the effect
// is not worked on here, or there is no room. It returns at once and may be called
// from anywhere.
func (w *Worker) Offer(d Delivery) bool {
	w.mu.Lock()
	q := w.offered[d.Command().Effect]
	w.mu.Unlock()
	return q != nil && q.add(d)
}

// Serves tells whether commands of the effect are worked on here, while Run runs.
func (w *Worker) Serves(effect string) bool { return w.effect(effect) != nil }

// offers are the commands that wait for one line. They are open from when the line
// begins to when it stops.
type offers struct {
	ready chan struct{} // capacity 1

	mu      sync.Mutex // guards what follows
	waiting []Delivery
	closed  bool
}

func newOffers() *offers { return &offers{ready: make(chan struct{}, 1)} }

func (q *offers) add(d Delivery) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.waiting) >= maxOffered {
		return false
	}
	q.waiting = append(q.waiting, d)
	wake(q.ready)
	return true
}

// take gives up to n of what waits, in order, and says again that there is more. That
// n is below zero is nothing odd: what rested may have begun since there was room.
func (q *offers) take(n int) []Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = max(0, min(n, len(q.waiting)))
	out := append([]Delivery(nil), q.waiting[:n]...)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:]) // let go of the payloads
	if q.waiting = q.waiting[:rest]; rest > 0 {
		wake(q.ready)
	}
	return out
}

// close refuses whatever comes later, and gives what nobody has taken.
func (q *offers) close() []Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	out := q.waiting
	q.waiting = nil
	return out
}

// listen lets offers for the line in; the returned function ends that.
func (l *line) listen() (end func()) {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offered[l.name] = l.offers
	return func() {
		giveBack(l.offers.close())
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.offered[l.name] == l.offers {
			delete(w.offered, l.name)
		}
	}
}

// offering tells of offers, while the line has room for one.
func (l *line) offering() <-chan struct{} {
	if l.places() <= 0 || l.bytes >= l.w.o.HeldBytes {
		return nil
	}
	return l.offers.ready
}
