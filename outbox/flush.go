package outbox

import (
	"context"
	"errors"
	"fmt"
)

// flush is one caller of Flush.
type flush struct {
	done chan error // capacity 1: the loop never waits for it
}

// errNotBegun says that nothing goes out yet.
var errNotBegun = errors.New("flush outbox: deliveries have not begun: the restored store had not caught up with its streams")

// Flush returns when every row that was in the outbox can be said to be
// delivered and removed (an effect: published), or to wait for a destination
// that does not take it, which is an error that says how many. Run must be
// running. It may be called concurrently.
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

// answer tells the callers of Flush when nothing more can be delivered.
func (r *Relay) answer() {
	if len(r.waiters) == 0 || r.deliverable() {
		return
	}
	err := r.remainder()
	for _, f := range r.waiters {
		f.done <- err
	}
	r.waiters = nil
}

func (r *Relay) deliverable() bool {
	if r.fresh || r.removing || len(r.accepted) > 0 {
		return true
	}
	for _, l := range r.lanes {
		if l.active > 0 || !l.down && (l.queued() > 0 || l.hopeful()) {
			return true
		}
	}
	return false
}

// hopeful tells whether a row has failed too seldom to be given up for now.
func (l *lane) hopeful() bool {
	for _, it := range l.retry {
		if it.fails < flushTries {
			return true
		}
	}
	return false
}

func (r *Relay) remainder() error {
	for _, l := range r.lanes {
		if l.held > 0 || l.behind {
			return fmt.Errorf("flush outbox: %d or more rows wait for %s, which does not take them", l.held, l.Name)
		}
	}
	return nil
}
