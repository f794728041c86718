package shop

import (
	"sync"
	"time"
)

// outage is the one that a shop has, and what was asked of its door meanwhile.
type outage struct {
	Outage

	mu      sync.Mutex // guards below
	calls   int        // before it
	began   time.Time
	refused int
}

// refuses counts a call of a door and tells whether it is down.
func (o *outage) refuses(door string, now time.Time) bool {
	if o.After == 0 || door != o.Door {
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

// Refused is how often the door was called while it was down; the time is when
// that began, zero where it did not.
func (s *Shop) Refused() (int, time.Time) {
	s.outage.mu.Lock()
	defer s.outage.mu.Unlock()
	return s.outage.refused, s.outage.began
}
