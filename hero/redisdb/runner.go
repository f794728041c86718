package redisdb

import (
	"context"

	"edda/hero"
)

// Runner reads a runner, with its secret.
func (d *DB) Runner(ctx context.Context, in, id uint32) (hero.Runner, error) {
	return get(ctx, d, in, hero.RunnerKey(id), hero.ReadRunner)
}

// PutRunner creates or replaces a runner of a context.
func (d *DB) PutRunner(ctx context.Context, in uint32, r hero.Runner) error {
	return put(ctx, d, in, r, "id", hero.ReadRunner, func(r *hero.Runner, was hero.Runner, _ bool) error {
		d.stamp(&r.CreatedAt, &r.UpdatedAt, was.CreatedAt)
		return nil
	})
}

// Runners lists all of a context, by id; see Flows about an error.
func (d *DB) Runners(ctx context.Context, in uint32) ([]hero.Runner, error) {
	return scan(ctx, d, in, "runner", hero.IsRunnerKey, hero.ReadRunner, byID(func(r hero.Runner) [2]uint32 { return [2]uint32{r.ID} }))
}

// DeleteRunner deletes a runner.
func (d *DB) DeleteRunner(ctx context.Context, in, id uint32) error {
	return remove(ctx, d, in, hero.RunnerKey(id), hero.ReadRunner)
}
