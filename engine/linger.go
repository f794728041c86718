package engine

import "time"

const (
	// maxLinger bounds the linger, counted from the start of the last batch. A batch costs the
	// processor as much as about twenty inputs: a commit, and the wake-ups of its waiters.
	maxLinger = 2 * time.Millisecond
	// minExpected is the least expected size at which batches linger. At low load none do.
	minExpected = 4
	// decay is the part of the expected size, one eighth, that each smaller batch takes away.
	decay = 8
	// probeEvery is how often a batch lingers to the end, so that the expected size can grow.
	// The other batches stop at that size, because a fixed number of clients sends no more.
	probeEvery = 16
)

// linger delays a batch until as many inputs wait as the last batches had. Without it,
// batches at partial load would be as small as possible. Each order would cost twice the
// processor time of an order at full load, and a burst would take as much longer.
type linger struct {
	expected int       // size of a batch: the largest of the last ones, decaying
	begun    time.Time // when the last batch began
	batches  int
	timer    *time.Timer // ends the linger
}

func newLinger() linger {
	c := linger{timer: time.NewTimer(0)}
	c.timer.Stop()
	return c
}

// waits tells whether a batch of n inputs lingers. If so, it sets the timer.
func (c *linger) waits(n int, now time.Time) bool {
	if c.expected < minExpected || n >= c.expected && c.batches%probeEvery != 0 {
		return false
	}
	left := maxLinger - now.Sub(c.begun)
	if left > 0 {
		c.timer.Reset(left)
	}
	return left > 0
}

// begin notes that a batch of n inputs begins.
func (c *linger) begin(n int, now time.Time) {
	c.expected = max(n, c.expected-(c.expected+decay-1)/decay)
	c.begun = now
	c.batches++
}

// lingers tells whether the next batch lingers.
func (v *loop) lingers() bool {
	n := v.eventsReady() + v.duesReady()
	return n < v.queue.batchLimit && v.linger.waits(n, time.Now())
}
