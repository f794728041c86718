package store

import (
	"context"
	"time"

	"edda"
)

// MaxChange bounds a change set, by [Change.Size]. One with a single transition,
// or that says it is whole, may be larger: an event is never split.
const MaxChange = 512 << 10

// Pipeline is a line of changes of which each was decided in the belief that
// those before it will be committed. Once one fails, every later one of the same
// pipeline fails too, also one whose submitter had not heard of the failure yet;
// then drop the pipeline, decide again from what is committed, and open a new one.
type Pipeline struct {
	db  *DB
	err error // the committer's alone
}

// Pipeline opens one. It needs no closing.
func (d *DB) Pipeline() *Pipeline { return &Pipeline{db: d} }

// Submit is [DB.Submit] within the pipeline.
func (p *Pipeline) Submit(ctx context.Context, c Change, done func(error)) error {
	return p.SubmitWithin(ctx, c, 0, done)
}

// SubmitWithin is [Pipeline.Submit] of a change that nobody waits for, see [DB.CommitWithin].
func (p *Pipeline) SubmitWithin(ctx context.Context, c Change, within time.Duration, done func(error)) error {
	return p.db.submit(ctx, c, &job{line: p, done: done, within: within})
}

// Submit queues the change behind those submitted before and returns; done is
// called once, from the committer's goroutine, when it is durable or failed; it
// must not block. The change and what it refers to never change. Submit blocks while the queue is full, until ctx ends. When it
// returns an error, done is not called: the change can never be written
// (Permanent or Poison), ctx ended, or the store is stopped.
//
// Changes are committed in the order of submission. A commit that fails
// (Temporary: a full disk, an I/O error) fails every change in it and every one
// that is queued at that moment; later ones are tried again. Who submits a change
// that builds on one not yet committed uses a [Pipeline], which closes the gap
// between the failure and its hearing of it.
func (d *DB) Submit(ctx context.Context, c Change, done func(error)) error {
	return d.submit(ctx, c, &job{done: done})
}

func (d *DB) submit(ctx context.Context, c Change, j *job) error {
	n := c.Size()
	if n > MaxChange && len(c.Transitions)+len(c.Encoded) > 1 && !c.Whole {
		return edda.Classify(edda.Permanent, "a change of %d bytes with %d transitions: at most %d bytes go together", n, len(c.Transitions)+len(c.Encoded), MaxChange)
	}
	var err error
	if j.change, err = encodeChange(c, n); err != nil {
		return err
	}
	return d.queue.push(ctx, j)
}

// Commit writes the change and returns when it is durable. When ctx ends while
// it waits, the change may yet be committed.
func (d *DB) Commit(ctx context.Context, c Change) error {
	return d.CommitWithin(ctx, c, 0)
}

// CommitWithin is [DB.Commit] of a change that nobody waits for: it is made durable
// together with the next one that is submitted, or by itself where there is none
// within that time.
func (d *DB) CommitWithin(ctx context.Context, c Change, within time.Duration) error {
	result := make(chan error, 1)
	if err := d.submit(ctx, c, &job{done: func(err error) { result <- err }, within: within}); err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
