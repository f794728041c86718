// Package logthrottle bounds what a retry loop logs of its failures. It logs the
// first failure, then at most one warning per interval with the number of failures,
// and the recovery. It has no influence on the loop.
package logthrottle

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// Every is the least time between two warnings of one loop, because an outage of
// Redis should show in the log at once and not fill it.
const Every = 30 * time.Second

// Throttle throttles the log of one loop. It is safe for concurrent use.
type Throttle struct {
	log  *zap.Logger
	what string

	mu      sync.Mutex // guards the fields below
	told    time.Time  // time of the last warning
	untold  int        // failures since the last warning
	ongoing bool       // there was a warning, and no success since
}

// New makes the throttle of one loop. The text what is the log message: it names the
// loop's work.
func New(log *zap.Logger, what string) *Throttle { return &Throttle{log: log, what: what} }

// Failed records a failure. It logs a warning unless the last one is less than Every
// ago.
func (t *Throttle) Failed(err error, more ...zap.Field) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.untold++
	now := time.Now()
	if !t.told.IsZero() && now.Sub(t.told) < Every {
		return
	}
	fields := append(more, zap.Error(err))
	if t.untold > 1 {
		fields = append(fields, zap.Int("failures", t.untold))
	}
	t.log.Warn(t.what, fields...)
	t.told, t.untold, t.ongoing = now, 0, true
}

// Worked records a success. It logs the recovery if there was a warning.
func (t *Throttle) Worked() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ongoing {
		t.log.Info(t.what+": works again", zap.Int("failures", t.untold))
		t.ongoing = false
	}
	t.untold = 0
}

// Note calls Failed with the error, or Worked if it is nil.
func (t *Throttle) Note(err error) {
	if err != nil {
		t.Failed(err)
		return
	}
	t.Worked()
}
