package shop

import (
	"fmt"
	"sort"
	"sync"
)

// Books records everything that happened to one order or trip. A repeated call counts
// once.
type Books struct {
	Charged  int            // payments taken
	Refunded int            // payments given back
	Reserved map[string]int // by thing: stock, flight, car, hotel
	Released map[string]int
	Shipped  int
	Returned int      // shipments called back
	Closed   []string // commands that reached it: Complete, Cancel
}

// ledger is the shop's books, by order or trip, and its calls by idempotency key.
type ledger struct {
	mu      sync.Mutex // guards the fields below
	books   map[string]*Books
	answers map[string]answer // by idempotency key
	calls   map[string]int    // by idempotency key
	byPath  map[string]int
}

// answer is the recorded answer to an idempotency key.
type answer struct {
	status int
	body   map[string]any
}

func newLedger() *ledger {
	return &ledger{books: map[string]*Books{}, answers: map[string]answer{}, calls: map[string]int{}, byPath: map[string]int{}}
}

// once runs act for the first call of a key. Later calls get the same answer.
func (l *ledger) once(path, key, id string, act func(*Books) answer) (answer, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[key]++
	l.byPath[path]++
	if a, done := l.answers[key]; done {
		return a, l.calls[key]
	}
	b := l.books[id]
	if b == nil {
		b = &Books{Reserved: map[string]int{}, Released: map[string]int{}}
		l.books[id] = b
	}
	a := act(b)
	l.answers[key] = a
	return a, l.calls[key]
}

// Of returns a copy of the books of one order or trip.
func (s *Shop) Of(id string) Books {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	b := s.ledger.books[id]
	if b == nil {
		return Books{}
	}
	out := *b
	out.Closed = append([]string(nil), b.Closed...)
	out.Reserved, out.Released = copyCounts(b.Reserved), copyCounts(b.Released)
	return out
}

func copyCounts(m map[string]int) map[string]int {
	out := make(map[string]int, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Count is the number of calls of one endpoint.
type Count struct {
	Path  string
	Calls int
}

// Calls counts the calls of each endpoint, including repeats, and the repeats of an
// idempotency key.
func (s *Shop) Calls() (endpoints []Count, repeats int) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	for path, n := range s.ledger.byPath {
		endpoints = append(endpoints, Count{path, n})
	}
	sort.Slice(endpoints, func(i, j int) bool { return endpoints[i].Path < endpoints[j].Path })
	for _, n := range s.ledger.calls {
		repeats += n - 1
	}
	return endpoints, repeats
}

// Done checks the books of a completed order or trip: everything was taken once and nothing
// was given back.
func (b Books) Done(things ...string) error {
	for _, thing := range things {
		if b.Reserved[thing] != 1 || b.Released[thing] != 0 {
			return fmt.Errorf("%s was reserved %d times and released %d times, want 1 and 0", thing, b.Reserved[thing], b.Released[thing])
		}
	}
	return nil
}

// Undone checks the books of a failed order or trip: everything taken was given back.
func (b Books) Undone() error {
	if b.Charged != b.Refunded {
		return fmt.Errorf("charged %d times and refunded %d times", b.Charged, b.Refunded)
	}
	if b.Shipped != b.Returned {
		return fmt.Errorf("shipped %d times and called back %d times", b.Shipped, b.Returned)
	}
	for thing, n := range b.Reserved {
		if b.Released[thing] != n {
			return fmt.Errorf("%s was reserved %d times and released %d times", thing, n, b.Released[thing])
		}
	}
	return nil
}
