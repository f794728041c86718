package redisdb

import (
	"cmp"
	"context"
	"fmt"

	"edda/hero"
)

// Flow reads a flow.
func (d *DB) Flow(ctx context.Context, in, id uint32) (hero.Flow, error) {
	return get(ctx, d, in, hero.FlowKey(id), flowOf(in))
}

// flowOf reads a flow of a context's database, and no other context's.
func flowOf(in uint32) read[hero.Flow] {
	return func(key string, h map[string]string) (hero.Flow, error) {
		f, err := hero.ReadFlow(key, h)
		if f.ContextID = cmp.Or(f.ContextID, in); err == nil && f.ContextID != in {
			err = &hero.FieldError{Key: key, Field: "context_id", Value: h["context_id"], Why: fmt.Sprintf("the flow lies in context %d", in)}
		}
		return f, err
	}
}

// PutFlow creates or replaces a flow.
func (d *DB) PutFlow(ctx context.Context, f hero.Flow) error {
	return put(ctx, d, f.ContextID, f, "status", flowOf(f.ContextID), func(f *hero.Flow, was hero.Flow, _ bool) error {
		d.stamp(&f.CreatedAt, &f.UpdatedAt, was.CreatedAt)
		return nil
	})
}

// Flows lists all of a context, by id. What can be read is returned even with an
// error, which joins a *hero.FieldError for each hash that cannot be.
func (d *DB) Flows(ctx context.Context, in uint32) ([]hero.Flow, error) {
	return scan(ctx, d, in, "flow", hero.IsFlowKey, flowOf(in), byID(func(f hero.Flow) [2]uint32 { return [2]uint32{f.ID} }))
}

// DeleteFlow deletes a flow; its jobs stay.
func (d *DB) DeleteFlow(ctx context.Context, in, id uint32) error {
	return remove(ctx, d, in, hero.FlowKey(id), hero.ReadFlow)
}
