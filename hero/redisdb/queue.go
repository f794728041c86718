package redisdb

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// slice is how long Redis is asked to wait at a time, which bounds how long Take
// outlasts its context: an answer is never left lying.
const slice = 500 * time.Millisecond

// Push puts a key at the end of a queue. It does not retry: a caller that retries
// may push the key twice.
func (d *DB) Push(ctx context.Context, in uint32, queue, key string) error {
	c, err := d.Client(in)
	if err != nil {
		return err
	}
	return d.refused("push on "+queue, in, c.LPush(ctx, queue, key).Err())
}

// Take moves the oldest key of a queue into another list, which keeps it until
// it is Done, and returns it; ErrEmpty when none came within wait. A context
// that ends ends it within half a second; a key that came until then is
// returned.
//
// A key that Redis moved and whose answer was lost with the connection comes
// with a later Take. That, and Left, require that no other process takes
// into the same list.
func (d *DB) Take(ctx context.Context, in uint32, queue, into string, wait time.Duration) (string, error) {
	op := "take from " + queue
	c, err := d.Client(in)
	if err != nil {
		return "", err
	}
	for until := time.Now().Add(wait); ; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		key, err := d.TakeBy(ctx, in, op, into, func() (string, error) {
			return move(context.WithoutCancel(ctx), c, queue, into, min(slice, time.Until(until)))
		})
		switch {
		case err == nil || !errors.Is(err, ErrEmpty):
			return key, err
		case time.Until(until) <= 0:
			return "", ErrEmpty
		}
	}
}

// TakeBy is one try of Take, with the caller's own move into the list; ErrEmpty where
// that moved nothing. op is what the move does, for errors.
func (d *DB) TakeBy(ctx context.Context, in uint32, op, into string, move func() (string, error)) (string, error) {
	c, err := d.Client(in)
	if err != nil {
		return "", err
	}
	at := d.intakes.at(place{in, into})
	key, err := at.stray(func() ([]string, error) { return list(ctx, c, into) })
	if err == nil && key == "" {
		key, err = at.take(move)
	}
	return key, d.refused(op, in, err)
}

// TakeMore moves up to most keys, the oldest first, as Take does one, and waits for
// none. Call it after a Take that brought a key. While Take has to look for
// a key whose answer was lost, it takes none. Keys that came count even if the
// connection broke behind them.
func (d *DB) TakeMore(ctx context.Context, in uint32, queue, into string, most int) (keys []string, err error) {
	c, err := d.Client(in)
	if err != nil {
		return nil, err
	}
	at := d.intakes.at(place{in, into})
	if at.doubtful() {
		return nil, nil
	}
	pipe, moves := c.Pipeline(), make([]*redis.StringCmd, most)
	for i := range moves {
		moves[i] = pipe.LMove(ctx, queue, into, "right", "left")
	}
	err = at.takeAll(func() []*redis.StringCmd {
		_, _ = pipe.Exec(context.WithoutCancel(ctx)) // each has its own error
		return moves
	}, func(key string) { keys = append(keys, key) })
	return keys, d.refused("take from "+queue, in, err)
}

// move is one BLMOVE, or an LMOVE where there is nothing to wait for.
func move(ctx context.Context, c *redis.Client, queue, into string, wait time.Duration) (string, error) {
	cmd := redis.NewStringCmd(ctx, "lmove", queue, into, "right", "left")
	if wait >= time.Millisecond {
		cmd = redis.NewStringCmd(ctx, "blmove", queue, into, "right", "left", wait.Seconds())
	}
	_ = c.Process(ctx, cmd)
	if errors.Is(cmd.Err(), redis.Nil) {
		return "", ErrEmpty
	}
	return cmd.Result()
}

// list is a list's keys, oldest first.
func list(ctx context.Context, c *redis.Client, name string) ([]string, error) {
	keys, err := c.LRange(ctx, name, 0, -1).Result()
	for i, j := 0, len(keys)-1; i < j; i, j = i+1, j-1 {
		keys[i], keys[j] = keys[j], keys[i]
	}
	return keys, err
}

// Done removes a key that was taken.
func (d *DB) Done(ctx context.Context, in uint32, into, key string) error {
	c, err := d.Client(in)
	if err != nil {
		return err
	}
	at := d.intakes.at(place{in, into})
	return d.try(ctx, "remove "+key+" from "+into, in, func() error {
		return at.leaves(key, func() (bool, error) { return true, c.LRem(ctx, into, -1, key).Err() })
	})
}

// Left lists what is taken and not yet Done, oldest first: at the start, what an
// earlier run left. From then on those count as taken.
func (d *DB) Left(ctx context.Context, in uint32, into string) (keys []string, err error) {
	c, err := d.Client(in)
	if err != nil {
		return nil, err
	}
	op := "read " + into
	return d.intakes.at(place{in, into}).left(func() ([]string, error) {
		err = d.try(ctx, op, in, func() error {
			keys, err = list(ctx, c, into)
			return err
		})
		return keys, err
	})
}

// Depth is how many keys a queue holds.
func (d *DB) Depth(ctx context.Context, in uint32, queue string) (n int64, err error) {
	c, err := d.Client(in)
	if err != nil {
		return 0, err
	}
	err = d.try(ctx, "measure "+queue, in, func() error {
		n, err = c.LLen(ctx, queue).Result()
		return err
	})
	return n, err
}
