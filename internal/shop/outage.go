package shop

import (
	"sync"
	"time"
)

// outage is the outage of a shop, with its counted calls.
type outage struct {
	Outage

	mu      sync.Mutex // guards below
	calls   int        // before it
	began   time.Time
	refused int
}

// refuses counts a call of an endpoint and tells whether it is down.
func (o *outage) refuses(endpoint string, now time.Time) bool {
	if o.After == 0 || endpoint != o.Endpoint {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began.IsZero() {
		if o.calls++; o.calls <= o.After {
			return false
		}
		o.began = now
	}
	if now.Sub(o.began) >= o.For {
		return false
	}
	o.refused++
	return true
}

// Refused returns the number of calls during the outage, and its start; zero without an
// outage.
func (s *Shop) Refused() (int, time.Time) {
	s.outage.mu.Lock()
	defer s.outage.mu.Unlock()
	return s.outage.refused, s.outage.began
}
