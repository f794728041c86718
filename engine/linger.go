package engine

import "time"

const (
	// maxGather bounds how long after the last batch began the next one waits for more
	// inputs. A batch costs the processor about as much as twenty inputs: a commit,
	// and the wake-ups of all who wait for it.
	maxGather = 2 * time.Millisecond
	// leastInputs is how many inputs the last batches must have had: where few orders are
	// under way, none is kept waiting for others.
	leastInputs = 4
	// fading is the part of usual that it loses with each batch that has less.
	fading = 8
	// wholeEvery is how often a batch waits to the end, so that usual can grow: where
	// all who are under way have come, as with clients of a fixed number, waiting on is in vain.
	wholeEvery = 16
)

// linger tells whether a batch waits for more inputs. Under load that leaves something
// idle, batches would else be as small as they come: each order would cost twice
// the processor's time of one at full load, and what bursts or a collection of garbage left
// behind would take as much longer.
type linger struct {
	usual   int       // how many inputs the last batches had: the most, fading
	begun   time.Time // when the last one began
	batches int
	timer   *time.Timer // ends the waiting
}

func newLinger() linger {
	c := linger{timer: time.NewTimer(0)}
	c.timer.Stop()
	return c
}

// awaited tells whether a batch of n inputs waits; its timer tells when no longer.
func (c *linger) awaited(n int, now time.Time) bool {
	if c.usual < leastInputs || n >= c.usual && c.batches%wholeEvery != 0 {
		return false
	}
	left := maxGather - now.Sub(c.begun)
	if left > 0 {
		c.timer.Reset(left)
	}
	return left > 0
}

// took notes that a batch of n inputs begins.
func (c *linger) took(n int, now time.Time) {
	c.usual = max(n, c.usual-(c.usual+fading-1)/fading)
	c.begun = now
	c.batches++
}

// lingers tells whether the next batch waits for more inputs.
func (v *loop) lingers() bool {
	n := v.goingOn() + v.dueNow()
	return n < v.most && v.linger.awaited(n, time.Now())
}
