package redisdb

import (
	"context"

	"edda/hero"
)

// Context reads a context, in its own database.
func (d *DB) Context(ctx context.Context, id uint32) (hero.Context, error) {
	return get(ctx, d, id, hero.ContextKey(id), hero.ReadContext)
}

// PutContext creates or replaces a context.
func (d *DB) PutContext(ctx context.Context, c hero.Context) error {
	return put(ctx, d, c.ID, c, "id", hero.ReadContext, func(c *hero.Context, was hero.Context, _ bool) error {
		d.stamp(&c.CreatedAt, &c.UpdatedAt, was.CreatedAt)
		return nil
	})
}

// DeleteContext deletes a context: nobody has rights in it any more. What else
// is in its database stays.
func (d *DB) DeleteContext(ctx context.Context, id uint32) error {
	return remove(ctx, d, id, hero.ContextKey(id), hero.ReadContext)
}
