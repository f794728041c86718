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
	Retry   *Retry
	Log     *zap.Logger
	working sync.WaitGroup
}

// Run starts the work on the keys that an earlier run left in the processing list. Then it
// takes keys while workers are free, until ctx ends, and waits for the work on them. A key
// without a free worker returns to the front of the list, unless work has ended.
func (c *Consumer) Run(ctx, work context.Context) {
	defer c.working.Wait()
	if !c.leftovers(ctx) {
		return
	}
	taking := logthrottle.New(c.Log, "take from "+c.From)
	pause := c.Retry.Pause
	for c.room(ctx) {
		key, err := c.take(ctx)
		switch {
		case errors.Is(err, redisdb.ErrEmpty):
		case err != nil:
			if ctx.Err() == nil {
				taking.Failed(err)
				c.Retry.wait(ctx, &pause)
			}
			continue
		case ctx.Err() == nil && c.claim(ctx):
			c.begin(key)
			for c.Next == nil && c.more(ctx, work, taking) {
			}
		default: // another consumer of the workers was quicker, or this one ends
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

// leftovers begins what the processing list holds; false means that ctx ended.
func (c *Consumer) leftovers(ctx context.Context) bool {
	var keys []string
	if err := c.Retry.Do(ctx, "look through "+c.Into, func(ctx context.Context) (err error) {
		keys, err = c.DB.Left(ctx, c.Context, c.Into)
		return err
	}); err != nil {
		return false
	}
	for _, key := range keys {
		if !c.Workers.Acquire(ctx) {
			return false
		}
		c.begin(key)
	}
	return true
}

// room waits until a slot is free, and leaves it free: the list may stay empty.
func (c *Consumer) room(ctx context.Context) bool {
	if !c.Workers.Acquire(ctx) {
		return false
	}
	c.Workers.Release()
	return true
}

func (c *Consumer) take(ctx context.Context) (string, error) {
	if c.Next != nil {
		return c.Next(ctx)
	}
	return c.DB.Take(ctx, c.Context, c.From, c.Into, c.Wait)
}

// claim acquires the slot for a key that was taken. A key that cannot be returned waits
// for it.
func (c *Consumer) claim(ctx context.Context) bool {
	return c.Workers.TryAcquire() || c.Next != nil && c.Workers.Acquire(ctx)
}

// more takes what has slots and is there, in one trip. It reports whether there may be
// even more.
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
		for _, key := range slices.Backward(keys) { // the oldest is the next again
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

// giveBack returns a key to the front of its list.
func (c *Consumer) giveBack(work context.Context, key string) {
	if c.Next != nil {
		return
	}
	_ = c.Retry.Do(work, "return "+key, func(ctx context.Context) error { // else it is a leftover
		return c.DB.Return(ctx, c.Context, c.Into, c.From, key)
	})
}
