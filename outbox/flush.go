package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// flush is one caller of Flush.
type flush struct {
	done chan error // capacity 1, so that the loop never blocks
}

// errNotStarted says that the relay does not deliver yet.
var errNotStarted = errors.New("flush outbox: deliveries have not started: the restored store is still catching up with its streams")

// Flush waits until the relay has delivered and removed the rows that are in the outbox; it has
// published the effects among them. It returns an error with the number of the rows whose
// destination does not accept them. Run must be running. Flush may be called concurrently.
func (r *Relay) Flush(ctx context.Context) error {
	f := flush{done: make(chan error, 1)}
	select {
	case r.flushes <- f:
	case <-ctx.Done():
		return fmt.Errorf("flush outbox: %w", context.Cause(ctx))
	}
	select {
	case err := <-f.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("flush outbox: %w", context.Cause(ctx))
	}
}

// answerFlushes answers the callers of Flush when the relay can deliver nothing more.
func (r *Relay) answerFlushes() {
	if len(r.waiters) == 0 || r.deliverable() {
		return
	}
	var err error
	for _, l := range r.routes {
		if l.held > 0 || l.behind {
			err = fmt.Errorf("flush outbox: %d or more rows wait for %s, which does not take them", l.held, l.Name)
			break
		}
	}
	for _, f := range r.waiters {
		f.done <- err
	}
	r.waiters = nil
}

func (r *Relay) deliverable() bool {
	if r.scanDue || r.removing || len(r.accepted) > 0 {
		return true
	}
	for _, l := range r.routes {
		retryable := func(it *item) bool { return it.fails < flushTries }
		if l.active > 0 || !l.down && (l.queued() > 0 || slices.ContainsFunc(l.retry, retryable)) {
			return true
		}
	}
	return false
}
