package redisdb

import (
	"cmp"
	"context"
	"fmt"

	"edda/hero"
)

// Actor reads an actor.
func (d *DB) Actor(ctx context.Context, id uint32) (hero.Actor, error) {
	return get(ctx, d, 0, hero.ActorKey(id), hero.ReadActor)
}

// PutActor creates or replaces an actor.
func (d *DB) PutActor(ctx context.Context, a hero.Actor) error {
	return put(ctx, d, 0, a, "id", hero.ReadActor, nil)
}

// Actors lists all actors by id. About an error see Flows.
func (d *DB) Actors(ctx context.Context) ([]hero.Actor, error) {
	return scan(ctx, d, 0, "actor", hero.ReadActor)
}

// DeleteActor deletes an actor.
func (d *DB) DeleteActor(ctx context.Context, id uint32) error {
	return remove(ctx, d, 0, hero.ActorKey(id), hero.ReadActor)
}

// Context reads a context, in its own database.
func (d *DB) Context(ctx context.Context, id uint32) (hero.Context, error) {
	return get(ctx, d, id, hero.ContextKey(id), hero.ReadContext)
}

// PutContext creates or replaces a context.
func (d *DB) PutContext(ctx context.Context, c hero.Context) error {
	if err := put(ctx, d, c.ID, c, "id", hero.ReadContext, nil); err != nil {
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

// Flow reads a flow.
func (d *DB) Flow(ctx context.Context, in, id uint32) (hero.Flow, error) {
	return get(ctx, d, in, hero.FlowKey(id), flowOf(in))
}

// flowOf reads the flows of one context. A flow of another context is an error.
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
	return put(ctx, d, f.ContextID, f, "status", flowOf(f.ContextID), nil)
}

// Flows lists all flows of a context by id. It returns the ones that it can read together
// with an error that joins a *hero.FieldError for each hash that it cannot.
func (d *DB) Flows(ctx context.Context, in uint32) ([]hero.Flow, error) {
	return scan(ctx, d, in, "flow", flowOf(in))
}

// DeleteFlow deletes a flow. Its jobs stay.
func (d *DB) DeleteFlow(ctx context.Context, in, id uint32) error {
	return remove(ctx, d, in, hero.FlowKey(id), hero.ReadFlow)
}

// Runner reads a runner, with its secret.
func (d *DB) Runner(ctx context.Context, in, id uint32) (hero.Runner, error) {
	return get(ctx, d, in, hero.RunnerKey(id), hero.ReadRunner)
}

// PutRunner creates or replaces a runner of a context.
func (d *DB) PutRunner(ctx context.Context, in uint32, r hero.Runner) error {
	if err := put(ctx, d, in, r, "id", hero.ReadRunner, nil); err != nil {
		return err
	}
	return d.changed(ctx)
}

// Runners lists all runners of a context by id. About an error see Flows.
func (d *DB) Runners(ctx context.Context, in uint32) ([]hero.Runner, error) {
	return scan(ctx, d, in, "runner", hero.ReadRunner)
}

// RunnerKeys lists the keys of a context's runners. looked is about the number of keys that
// the search passed, which is its cost.
func (d *DB) RunnerKeys(ctx context.Context, in uint32) (keys []string, looked int, err error) {
	return d.keys(ctx, "list runner", in, "runner")
}

// RunnersAt reads the runners at some keys, in their order, and leaves out deleted ones.
// About an error see Flows.
func (d *DB) RunnersAt(ctx context.Context, in uint32, keys []string) ([]hero.Runner, error) {
	return readAll(ctx, d, "read runners", in, keys, hero.ReadRunner)
}

// DeleteRunner deletes a runner.
func (d *DB) DeleteRunner(ctx context.Context, in, id uint32) error {
	if err := remove(ctx, d, in, hero.RunnerKey(id), hero.ReadRunner); err != nil {
		return err
	}
	return d.changed(ctx)
}
