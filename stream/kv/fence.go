package kv

import (
	"context"
	"sync/atomic"
	"time"
)

// fenceEdge is the last share of the lease, in which the fence is closed. A call that passed just
// before has that long to reach its destination.
const fenceEdge = 6

// Fence reports whether a lease is surely held. Everything that calls, sends or commits must pass
// it first. It is open for most of the lease after the last acknowledged renewal was sent; then it
// asks the server. So a process that was paused stops before another one can have taken over.
type Fence struct {
	clock func() time.Duration // also advances while the process or the machine is paused
	boot  atomic.Int64         // open until this time of clock
	wall  atomic.Int64         // and until this Unix time in nanoseconds
	ask   func(context.Context) error
}

func newFence(clock func() time.Duration, ask func(context.Context) error) *Fence {
	if clock == nil {
		clock = sinceBoot
	}
	return &Fence{clock: clock, ask: ask}
}

// Pass returns nil if the process may act. Usually it reads two clocks. After a pause or an outage
// it waits for the server, up to leaseRenew. An error forbids the act: edda.Temporary if the server
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
	return time.Duration(min(f.boot.Load()-int64(f.clock()), f.wall.Load()-time.Now().UnixNano()))
}

// instant is the time of both clocks.
type instant struct {
	boot time.Duration
	wall time.Time
}

func (f *Fence) now() instant { return instant{f.clock(), time.Now()} }

// extend opens the fence for the lease whose renewal was sent at that time.
func (f *Fence) extend(sent instant) {
	const open = leaseTTL - leaseTTL/fenceEdge
	f.boot.Store(int64(sent.boot + open))
	f.wall.Store(sent.wall.Add(open).UnixNano())
}

// shut closes the fence until the next renewal.
func (f *Fence) shut() {
	f.boot.Store(0)
	f.wall.Store(0)
}
