// Package complaint is what a loop logs of work that it tries again and again: the
// first failure, then one at times with how many there were, and that it is over.
// It decides nothing: the loop goes on as it would.
package complaint

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// Every is the least time between two warnings of one loop: a Redis that is down is
// seen at once in a log, and does not fill it.
const Every = 30 * time.Second

// Complaint is that of one loop. Its methods may be called concurrently.
type Complaint struct {
	log  *zap.Logger
	what string

	mu      sync.Mutex // guards all below
	told    time.Time  // the last warning
	untold  int        // failures since
	ongoing bool       // a warning was not followed by good news yet
}

// New makes that of a loop; what it does is the message.
func New(log *zap.Logger, what string) *Complaint { return &Complaint{log: log, what: what} }

// Failed takes note of a failure, and logs it where the last warning is long ago.
func (c *Complaint) Failed(err error, more ...zap.Field) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.untold++
	now := time.Now()
	if !c.told.IsZero() && now.Sub(c.told) < Every {
		return
	}
	fields := append(more, zap.Error(err))
	if c.untold > 1 {
		fields = append(fields, zap.Int("failures", c.untold))
	}
	c.log.Warn(c.what, fields...)
	c.told, c.untold, c.ongoing = now, 0, true
}

// Worked takes note of a success, and logs it after a warning.
func (c *Complaint) Worked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ongoing {
		c.log.Info(c.what+": works again", zap.Int("failures", c.untold))
		c.ongoing = false
	}
	c.untold = 0
}

// Note is Failed or Worked, by the error.
func (c *Complaint) Note(err error) {
	if err != nil {
		c.Failed(err)
		return
	}
	c.Worked()
}
