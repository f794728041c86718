package store

import (
	"context"
	"time"

	"edda"
)

// MaxChange bounds a change set, by [Change.Size]. One with a single transition, or that is whole,
// may be larger, because an event is never split.
const MaxChange = 512 << 10

// Pipeline is a sequence of changes that build on each other. After one fails, all later ones of
// the pipeline fail, also those that were submitted before the failure was known. Then decide again
// from the committed state, in a new pipeline. Submit does not wait for room in the queue: the
// owner bounds the changes in flight.
type Pipeline struct {
	db  *DB
	err error // owned by the committer
}

// Pipeline returns a new pipeline. It needs no close.
func (d *DB) Pipeline() *Pipeline { return &Pipeline{db: d} }

// Submit is [DB.Submit] within the pipeline.
func (p *Pipeline) Submit(ctx context.Context, c Change, done func(error)) error {
	return p.SubmitWithin(ctx, c, 0, done)
}

// SubmitWithin is [Pipeline.Submit] of a change that may linger, see [DB.CommitWithin].
func (p *Pipeline) SubmitWithin(ctx context.Context, c Change, within time.Duration, done func(error)) error {
	return p.db.submit(ctx, c, &job{line: p, done: done, within: within})
}

// Submit queues the change and returns. The committer calls done once, when the change is durable
// or has failed; done must not block. The caller must not modify the change any more. Submit blocks
// while the queue is full, until ctx ends. If it returns an error, done is not called: the change
// can never be written (Permanent or Poison), ctx ended, or the store is stopped.
//
// Changes are committed in the order of submission. A commit that fails (Temporary: a full disk, an
// I/O error) fails all of its changes, and all that are queued then. A change that builds on one
// that is not committed yet belongs in a [Pipeline], because its submitter may not have heard of
// the failure.
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

// Commit writes the change and returns when it is durable. If ctx ends first, the change may still
// be committed.
func (d *DB) Commit(ctx context.Context, c Change) error {
	return d.CommitWithin(ctx, c, 0)
}

// CommitWithin is [DB.Commit] of a change that lingers: it is committed with the next change, or
// alone after the time.
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

// EndLinger ends the linger of all changes, for good. A process calls it when its stop begins, because the stop waits for
// them.
func (d *DB) EndLinger() { d.queue.endLinger() }
