// Package list consumes reliable lists of Redis. A consumer moves each key from its list
// into a processing list, which keeps the key until the work on it is recorded: what a
// process took and did not finish is there when it starts again.
package list

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda/hero/redisdb"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

// takeMost bounds how many keys are taken at once, so that the work on the first of them
// does not wait long for the last.
const takeMost = 64

// Consumer takes keys from one list. Only one consumer in the world may take into the
// same processing list.
type Consumer struct {
	DB      *redisdb.DB
	Context uint32
	From    string
	Into    string        // the processing list
	Wait    time.Duration // of one blocking take
	// Next, where set, moves the next key instead of a take from the end of From; ErrEmpty
	// means that there was none. Its keys are not returned to From.
	Next    func(context.Context) (string, error)
	Workers *Workers
	Work    func(key string) // until the key is off the processing list
	Retry   *Retrier
	Log     *zap.Logger
	working sync.WaitGroup
}

// Run starts the work on the keys that an earlier run left in the processing list. Then it
// takes keys while workers are free, until ctx ends, and waits for the work on them. A key
// without a free worker returns to the front of the list, unless work has ended.
func (c *Consumer) Run(ctx, work context.Context) {
	defer c.working.Wait()
	var left []string
	if c.Retry.Do(ctx, "look through "+c.Into, func(ctx context.Context) (err error) {
		left, err = c.DB.Left(ctx, c.Context, c.Into)
		return err
	}) != nil {
		return
	}
	for _, key := range left {
		if !c.Workers.Acquire(ctx) {
			return
		}
		c.begin(key)
	}
	take := c.Next
	if take == nil {
		take = func(ctx context.Context) (string, error) { return c.DB.Take(ctx, c.Context, c.From, c.Into, c.Wait) }
	}
	taking := logthrottle.New(c.Log, "take from "+c.From)
	pause := c.Retry.Pause
	for c.Workers.Acquire(ctx) {
		c.Workers.Release() // another consumer may use the slot during a take that blocks
		key, err := take(ctx)
		switch {
		case errors.Is(err, redisdb.ErrEmpty):
		case err != nil:
			if ctx.Err() == nil {
				taking.Failed(err)
				_ = backoff.Wait(ctx, pause.Next())
			}
			continue
		case ctx.Err() == nil && (c.Workers.TryAcquire() || c.Next != nil && c.Workers.Acquire(ctx)):
			c.begin(key)
			for c.Next == nil && c.more(ctx, work, taking) {
			}
		default: // another consumer has the slot, or this one stops
			c.giveBack(work, key)
		}
		pause.Reset()
		taking.Worked()
	}
}

// begin starts the work on a key whose slot was acquired.
func (c *Consumer) begin(key string) {
	c.working.Add(1)
	c.Workers.Go(func() {
		defer c.working.Done()
		c.Work(key)
	})
}

// more acquires every free slot and takes as many keys in one request. It reports whether
// the list may hold more.
func (c *Consumer) more(ctx, work context.Context, taking *logthrottle.Throttle) bool {
	if !c.Workers.Acquire(ctx) {
		return false
	}
	slots := 1
	for slots < takeMost && c.Workers.TryAcquire() {
		slots++
	}
	keys, err := c.DB.TakeMore(ctx, c.Context, c.From, c.Into, slots)
	if err != nil && ctx.Err() == nil {
		taking.Failed(err)
	}
	for range slots - len(keys) {
		c.Workers.Release()
	}
	if ctx.Err() != nil {
		for _, key := range slices.Backward(keys) { // so that the oldest is at the front
			c.Workers.Release()
			c.giveBack(work, key)
		}
		return false
	}
	for _, key := range keys {
		c.begin(key)
	}
	return len(keys) == slots
}

// giveBack returns a key to the front of its list. If that fails the key stays in the
// processing list, and the next run begins it.
func (c *Consumer) giveBack(work context.Context, key string) {
	if c.Next != nil {
		return
	}
	_ = c.Retry.Do(work, "return "+key, func(ctx context.Context) error {
		return c.DB.Return(ctx, c.Context, c.Into, c.From, key)
	})
}
