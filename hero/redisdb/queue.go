package redisdb

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// slice bounds one wait in Redis, and so the time by which Take outlasts its context: it
// always reads the answer.
const slice = 500 * time.Millisecond

// Push puts a key at the end of a queue. It does not retry, because a repeated push may add
// the key twice.
func (d *DB) Push(ctx context.Context, in uint32, queue, key string) error {
	c, err := d.Client(in)
	if err != nil {
		return err
	}
	return d.refused("push on "+queue, in, c.LPush(ctx, queue, key).Err())
}

// Take moves the oldest key of a queue into another list and returns it. The list keeps the
// key until Done. ErrEmpty means that no key came within wait. A cancelled context
// ends Take within half a second; a key that came until then is returned.
//
// A key that Redis moved and whose answer was lost with the connection comes with a
// later Take. Take and Left require that no other process takes into the same list.
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

// TakeBy is one try of Take, with the caller's own move into the list. The move returns
// ErrEmpty if it moved nothing. op describes it in errors.
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

// TakeMore moves up to most keys as Take does, the oldest first, and does not wait. Call it
// after a Take that returned a key. It takes none while Take searches for a key whose
// answer was lost. It returns the keys that it took together with an error.
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
		_, _ = pipe.Exec(context.WithoutCancel(ctx)) // each command has its own error
		return moves
	}, func(key string) { keys = append(keys, key) })
	return keys, d.refused("take from "+queue, in, err)
}

// move is one BLMOVE, or one LMOVE for a wait below a millisecond.
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

// list returns the keys of a list, the oldest first.
func list(ctx context.Context, c *redis.Client, name string) ([]string, error) {
	keys, err := c.LRange(ctx, name, 0, -1).Result()
	slices.Reverse(keys)
	return keys, err
}

// Done removes a key that was taken.
func (d *DB) Done(ctx context.Context, in uint32, into, key string) error {
	return d.leaves(ctx, "remove "+key+" from "+into, in, into, key, func(c *database) (bool, error) {
		return true, c.LRem(ctx, into, -1, key).Err()
	})
}

// leaves runs remove, which takes a key out of the list that it was taken into, and tells
// whether it did. It retries as try does.
func (d *DB) leaves(ctx context.Context, op string, in uint32, into, key string, remove func(*database) (gone bool, err error)) error {
	at := d.intakes.at(place{in, into})
	return d.try(ctx, op, in, func(c *database) error {
		return at.leaves(key, func() (bool, error) { return remove(c) })
	})
}

// returnScript moves a key from a list to the right of another one, if it is there.
// KEYS list, the other. ARGV: key.
var returnScript = redis.NewScript(`
redis.call('LLEN', KEYS[2])
if redis.call('LREM', KEYS[1], -1, ARGV[1]) == 1 then redis.call('RPUSH', KEYS[2], ARGV[1]) end
return 1`)

// Return puts a key that was taken, whose work has not begun, back to the front of a
// queue. It does nothing if the list does not hold the key.
func (d *DB) Return(ctx context.Context, in uint32, into, queue, key string) error {
	return d.leaves(ctx, "return "+key+" to "+queue, in, into, key, func(c *database) (bool, error) {
		return true, returnScript.Run(ctx, c, []string{into, queue}, key).Err()
	})
}

// Left lists the keys that were taken and are not Done, the oldest first: at the start, the
// ones of an earlier run. They count as taken from then on.
func (d *DB) Left(ctx context.Context, in uint32, into string) ([]string, error) {
	return d.intakes.at(place{in, into}).left(func() (keys []string, err error) {
		err = d.try(ctx, "read "+into, in, func(c *database) error {
			keys, err = list(ctx, c.Client, into)
			return err
		})
		return keys, err
	})
}

// Depth returns the number of keys in a queue.
func (d *DB) Depth(ctx context.Context, in uint32, queue string) (n int64, err error) {
	err = d.try(ctx, "measure "+queue, in, func(c *database) error {
		n, err = c.LLen(ctx, queue).Result()
		return err
	})
	return n, err
}
