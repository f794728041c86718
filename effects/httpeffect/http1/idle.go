package http1

import (
	"slices"
	"sync"
	"time"
)

// idle are the connections that no call uses. One that is idle for too long is
// closed by a timer, one that there is no room for when another comes.
type idle struct {
	most    int
	longest time.Duration

	mu     sync.Mutex // guards below
	kept   []*conn    // the last used at the end
	closed bool       // what comes back is closed, until another call is made
	timer  *time.Timer
	armed  bool // the timer will go off
}

// take gives the connection to an address that was used last, nil where there is
// none: it is the least likely to have been closed.
func (i *idle) take(address string) *conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = false
	for at, c := range slices.Backward(i.kept) {
		if c.address == address {
			i.kept = slices.Delete(i.kept, at, at+1)
			return c
		}
	}
	return nil
}

// put keeps a connection, or tells that it is not to be kept.
func (i *idle) put(c *conn) bool {
	c.since = time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || i.most <= 0 || i.longest <= 0 {
		return false
	}
	if len(i.kept) == i.most {
		_ = i.kept[0].Close()
		i.kept = slices.Delete(i.kept, 0, 1)
	}
	i.kept = append(i.kept, c)
	if !i.armed {
		i.arm(i.longest)
	}
	return true
}

// tooLong tells of a connection that was kept over a sleep of the machine, in which
// timers stand still and the time of day does not.
func (i *idle) tooLong(c *conn) bool {
	return time.Now().Round(0).Sub(c.since.Round(0)) > i.longest
}

// arm has expire look again. It runs under the lock.
func (i *idle) arm(in time.Duration) {
	i.armed = true
	if i.timer == nil {
		i.timer = time.AfterFunc(in, i.expire)
		return
	}
	i.timer.Reset(in)
}

// expire closes what has been idle for too long.
func (i *idle) expire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	young := slices.IndexFunc(i.kept, func(c *conn) bool { return now.Sub(c.since) < i.longest })
	if young < 0 {
		i.drop(len(i.kept))
		i.armed = false
		return
	}
	i.drop(young)
	i.arm(i.longest - now.Sub(i.kept[0].since))
}

// drop closes the n that were used longest ago. It runs under the lock.
func (i *idle) drop(n int) {
	for _, c := range i.kept[:n] {
		_ = c.Close()
	}
	i.kept = slices.Delete(i.kept, 0, n)
}

func (i *idle) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.drop(len(i.kept))
	i.closed = true
	if i.timer != nil {
		i.timer.Stop()
	}
	i.armed = false
}
