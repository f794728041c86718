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
	err := put(ctx, d, in, r, "id", hero.ReadRunner, func(r *hero.Runner, was hero.Runner, _ bool) error {
		d.stamp(&r.CreatedAt, &r.UpdatedAt, was.CreatedAt)
		return nil
	})
	if err != nil {
		return err
	}
	return d.changed(ctx)
}

// Runners lists all of a context, by id; see Flows about an error.
func (d *DB) Runners(ctx context.Context, in uint32) ([]hero.Runner, error) {
	return scan(ctx, d, in, "runner", hero.IsRunnerKey, hero.ReadRunner, runnersByID())
}

func runnersByID() func(a, b hero.Runner) int {
	return byID(func(r hero.Runner) [2]uint32 { return [2]uint32{r.ID} })
}

// RunnerKeys lists the keys of a context's runners. looked is how many keys of its
// database were passed for it, about: to list them costs as much.
func (d *DB) RunnerKeys(ctx context.Context, in uint32) (keys []string, looked int, err error) {
	const op = "list runner"
	c, err := d.at(op, in, "runner:")
	if err != nil {
		return nil, 0, err
	}
	return d.keys(ctx, c, op, in, "runner", hero.IsRunnerKey)
}

// RunnersAt reads the runners of some keys, by id; one that is gone is left out. See
// Flows about an error.
func (d *DB) RunnersAt(ctx context.Context, in uint32, keys []string) ([]hero.Runner, error) {
	const op = "read runners"
	c, err := d.at(op, in, "runner:")
	if err != nil {
		return nil, err
	}
	return readAll(ctx, d, c, op, in, keys, hero.ReadRunner, runnersByID())
}

// DeleteRunner deletes a runner.
func (d *DB) DeleteRunner(ctx context.Context, in, id uint32) error {
	if err := remove(ctx, d, in, hero.RunnerKey(id), hero.ReadRunner); err != nil {
		return err
	}
	return d.changed(ctx)
}
