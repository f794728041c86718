package effects

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errLapsed ends the calls of a claim that could not be renewed in time: another
// worker may have it now.
var errLapsed = errors.New("the claim's lease ran out")

// Shares of a lease: it is renewed three times over its length, and calls are
// cut a sixth before its end, for clocks that do not run alike.
const (
	renewals  = 3
	leaseEdge = 6
)

// lease keeps a claim live from its first call to its result.
type lease struct {
	ledger Ledger
	ctx    context.Context // ends with errLapsed or ErrTaken when the claim is not ours any more
	// Both are nil where claims have no lease: those are not lost, and nothing renews them.
	lose  context.CancelCauseFunc
	ended chan struct{} // closed when nothing renews any more

	mu    sync.Mutex // guards below
	entry *Entry
	until time.Time // the calls may go on; zero is for ever
}

// acquireLease makes an entry this worker's and keeps it so until release.
func acquireLease(ctx context.Context, ledger Ledger, e Entry) (*lease, error) {
	sent := time.Now()
	e, err := ledger.Claim(ctx, e)
	if err != nil {
		return nil, err
	}
	h := &lease{ledger: ledger, ctx: ctx, entry: &e}
	if ledger.Lease() == 0 {
		return h, nil
	}
	h.ctx, h.lose = context.WithCancelCause(ctx)
	h.ended = make(chan struct{})
	h.extend(e, sent)
	go func() { defer close(h.ended); h.renew() }()
	return h, nil
}

func (h *lease) extend(e Entry, sent time.Time) {
	*h.entry, h.until = e, sent.Add(h.ledger.Lease()-h.ledger.Lease()/leaseEdge)
}

// renew keeps the lease until the hold is let go or lost.
func (h *lease) renew() {
	tick := time.NewTicker(h.ledger.Lease() / renewals)
	defer tick.Stop()
	edge := time.NewTimer(time.Until(h.until)) // nobody else has seen h yet
	defer edge.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-edge.C:
			if left := h.remaining(); left > 0 {
				edge.Reset(left)
				continue
			}
			h.lose(errLapsed)
		case <-tick.C:
			h.renewOnce()
		}
	}
}

// renewOnce tries to renew; what fails for a moment is tried at the next tick, until
// the edge of the lease.
func (h *lease) renewOnce() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return
	}
	sent := time.Now()
	ctx, cancel := context.WithDeadline(h.ctx, h.until)
	defer cancel()
	e, err := h.ledger.Renew(ctx, *h.entry)
	switch {
	case errors.Is(err, ErrTaken):
		h.lose(ErrTaken)
	case err == nil:
		h.extend(e, sent)
	}
}

// remaining is how long calls may still go on. Both clocks are asked: the one that
// runs evenly stands still while a machine is suspended.
func (h *lease) remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	return min(h.until.Sub(now), h.until.Round(0).Sub(now.Round(0)))
}

// live tells, just before a call, whether the claim is still surely ours.
func (h *lease) live() bool {
	if h.ledger.Lease() != 0 && h.remaining() <= 0 {
		h.lose(errLapsed)
	}
	return h.ctx.Err() == nil
}

// finish stores the result; it may be tried again after an error.
func (h *lease) finish(ctx context.Context, e Entry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.Revision = h.entry.Revision
	return h.ledger.Finish(ctx, e)
}

// stop ends the renewing.
func (h *lease) stop() {
	if h.lose == nil {
		return
	}
	h.lose(nil)
	<-h.ended
}

// releaseWithin bounds the releasing of a claim while the worker stops.
const releaseWithin = time.Second

// release gives up a claim that has no result yet, if it is still ours. Paused
// says that none of the calls made is in doubt. It is false where nobody is told.
func (h *lease) release(paused bool, made int) bool {
	h.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), releaseWithin)
	defer cancel()
	h.entry.Claim.Paused, h.entry.Claim.Attempts = paused, made
	return h.ledger.Release(ctx, *h.entry) == nil // lost: its lease runs out by itself, and then it is unknown
}
