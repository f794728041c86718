package kv

import (
	"context"
	"sync/atomic"
	"time"
)

// fenceEdge is the share of the lease's time in which nothing new begins any more: what
// was begun just before has that long to reach the other side.
const fenceEdge = 6

// Fence tells whether a lease is still surely ours. Everything that calls, sends or
// commits passes it first. It is open for most of the lease's time since the last
// acknowledged renewal was sent; behind that it asks the server. So a process that was
// paused stops before another one can have taken its lease over.
type Fence struct {
	clock func() time.Duration // counts while the process or the machine is paused
	boot  atomic.Int64         // open until then, by clock
	wall  atomic.Int64         // and until then, in nanoseconds of Unix time
	ask   func(context.Context) error
}

func newFence(clock func() time.Duration, ask func(context.Context) error) *Fence {
	if clock == nil {
		clock = sinceBoot
	}
	return &Fence{clock: clock, ask: ask}
}

// Pass is nil where the process may act. It reads two clocks as a rule; it waits for the
// server, for leaseRenew at most, where the process was paused or the server was away.
// An error says that nothing may be done: it is edda.Temporary where the server did not
// answer, and ErrLeaseLost for good. It may be called concurrently.
func (f *Fence) Pass(ctx context.Context) error {
	if f.Open() {
		return nil
	}
	return f.ask(ctx)
}

// Open tells whether the lease is ours without asking anybody.
func (f *Fence) Open() bool { return f.Left() > 0 }

// Left is how long it stays open. Two clocks are asked: one counts what a suspended
// machine sleeps, the other is set right after a virtual machine was paused.
func (f *Fence) Left() time.Duration {
	return time.Duration(min(f.boot.Load()-int64(f.clock()), f.wall.Load()-time.Now().UnixNano()))
}

// instant is what both clocks said at once.
type instant struct {
	boot time.Duration
	wall time.Time
}

func (f *Fence) now() instant { return instant{f.clock(), time.Now()} }

// extend opens it for the lease whose renewal was sent at that moment.
func (f *Fence) extend(sent instant) {
	const open = leaseTTL - leaseTTL/fenceEdge
	f.boot.Store(int64(sent.boot + open))
	f.wall.Store(sent.wall.Add(open).UnixNano())
}

// shut closes it until the next renewal.
func (f *Fence) shut() {
	f.boot.Store(0)
	f.wall.Store(0)
}
