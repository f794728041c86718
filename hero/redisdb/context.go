package redisdb

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"edda/hero"
)

// Context reads a context, in its own database.
func (d *DB) Context(ctx context.Context, id uint32) (hero.Context, error) {
	return get(ctx, d, id, hero.ContextKey(id), hero.ReadContext)
}

// PutContext creates or replaces a context.
func (d *DB) PutContext(ctx context.Context, c hero.Context) error {
	err := put(ctx, d, c.ID, c, "id", hero.ReadContext, func(c *hero.Context, was hero.Context, _ bool) error {
		d.stamp(&c.CreatedAt, &c.UpdatedAt, was.CreatedAt)
		return nil
	})
	if err != nil {
		return err
	}
	return d.changed(ctx)
}

// DeleteContext deletes a context: no actor has rights in it any more. Other keys in
// its database stay.
func (d *DB) DeleteContext(ctx context.Context, id uint32) error {
	if err := remove(ctx, d, id, hero.ContextKey(id), hero.ReadContext); err != nil {
		return err
	}
	return d.changed(ctx)
}

// changesKey counts, in database 0, the changes of contexts and runners. Routers and
// runners poll it instead of all of them.
const changesKey = "edda:changes"

// changed counts that a context or runner was created, deleted or changed.
func (d *DB) changed(ctx context.Context) error {
	const op = "tell of a change"
	c, err := d.Client(0)
	if err != nil {
		return err
	}
	return d.try(ctx, op, 0, func() error { return c.Incr(ctx, changesKey).Err() })
}

// Changes is another text after each change of a context or runner that was made here.
// What other programs write into Redis does not show in it.
func (d *DB) Changes(ctx context.Context) (string, error) {
	const op = "look for changes"
	c, err := d.Client(0)
	if err != nil {
		return "", err
	}
	var n string
	err = d.try(ctx, op, 0, func() error {
		n, err = c.Get(ctx, changesKey).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	return n, err
}
