package kv

import (
	"context"
	"sync/atomic"
	"time"
)

// fenceEdge is the last share of the lease, in which the fence is closed. A call that passed just
// before has that long to reach its destination.
const fenceEdge = 6

// Fence reports whether a lease is surely held. Everything that calls, sends, commits or shows state must pass
// it first. It is open for most of the lease after the last acknowledged renewal was sent; then it
// asks the server. So a process that was paused stops before another one can have taken over.
type Fence struct {
	open  time.Duration        // since the last renewal was sent
	clock func() time.Duration // also advances while the process or the machine is paused
	boot  atomic.Int64         // open until this time of clock
	wall  atomic.Int64         // and until this Unix time in nanoseconds
	shut  atomic.Bool
	ask   func(context.Context) error
}

// NewFence returns a closed fence. A renewal opens it for some time. ask must renew and call Extend, or return
// why the process may not act; Pass calls it concurrently. The clock also advances while the process or the
// machine is paused; nil means the system's.
func NewFence(open time.Duration, clock func() time.Duration, ask func(context.Context) error) *Fence {
	if clock == nil {
		clock = sinceBoot
	}
	return &Fence{open: open, clock: clock, ask: ask}
}

// Pass returns nil if the process may act. Usually it reads two clocks. After a pause or an outage
// it waits for the server, a lease's up to leaseRenew. An error forbids the act: edda.Temporary if the server
// did not answer, ErrLeaseLost for good. Pass may be called concurrently.
func (f *Fence) Pass(ctx context.Context) error {
	if f.Open() {
		return nil
	}
	return f.ask(ctx)
}

// Open reports whether the lease is held, without asking the server.
func (f *Fence) Open() bool { return f.Left() > 0 }

// Left returns how long the fence stays open by both clocks. One counts the time that a suspended
// machine sleeps; the other is set right after a virtual machine was paused.
func (f *Fence) Left() time.Duration {
	if f.shut.Load() {
		return 0
	}
	return time.Duration(min(f.boot.Load()-int64(f.clock()), f.wall.Load()-time.Now().UnixNano()))
}

// Instant is the time of both clocks.
type Instant struct {
	Boot time.Duration // of the clock of NewFence
	Wall time.Time
}

// Now returns the time, to be noted before a renewal is sent.
func (f *Fence) Now() Instant { return Instant{f.clock(), time.Now()} }

// Extend opens the fence for the lease whose renewal was sent at that time.
func (f *Fence) Extend(sent Instant) {
	f.boot.Store(int64(sent.Boot + f.open))
	f.wall.Store(sent.Wall.Add(f.open).UnixNano())
}

// Shut closes the fence for good.
func (f *Fence) Shut() { f.shut.Store(true) }
