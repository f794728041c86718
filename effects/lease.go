package effects

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errLapsed ends the calls of a claim that could not be renewed in time: another worker
// may have taken it.
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
	ctx    context.Context // ends with errLapsed or ErrTaken when the claim is lost
	// Both are nil for a ledger without leases: its claims are never lost nor renewed.
	lose  context.CancelCauseFunc
	ended chan struct{} // closed when renew has returned

	mu    sync.Mutex // guards below
	entry *Entry
	until time.Time // calls may go on; zero: forever
}

// acquireLease claims an entry for this worker and renews the claim until release or stop.
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

// renew renews the lease until it is stopped or lost.
func (h *lease) renew() {
	tick := time.NewTicker(h.ledger.Lease() / renewals)
	defer tick.Stop()
	edge := time.NewTimer(time.Until(h.until)) // no lock: h is not shared yet
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

// renewOnce tries to renew. After a temporary error the next tick tries again, until the
// edge of the lease.
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

// remaining is how long calls may go on. It asks both clocks, because the monotonic one
// stands still while a machine is suspended.
func (h *lease) remaining() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	return min(h.until.Sub(now), h.until.Round(0).Sub(now.Round(0)))
}

// live tells, just before a call, whether the claim is certainly ours.
func (h *lease) live() bool {
	if h.ledger.Lease() != 0 && h.remaining() <= 0 {
		h.lose(errLapsed)
	}
	return h.ctx.Err() == nil
}

// finish stores the result. It may be called again after an error.
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

// release gives up a claim without a result. Paused says that no call is in doubt. It is
// false where the ledger could not be told: then the lease runs out.
func (h *lease) release(paused bool, made int) bool {
	h.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), releaseWithin)
	defer cancel()
	h.entry.Claim.Paused, h.entry.Claim.Attempts = paused, made
	return h.ledger.Release(ctx, *h.entry) == nil
}
