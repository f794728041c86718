package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"edda/hero"
	"edda/hero/flow"
	"edda/hero/redisdb"
	"edda/internal/backoff"
)

// A flow's step is durable at once. The outbox writes the hash of the job that it dispatches
// a moment later. The functions of this file wait for that.

const (
	// shownWithin bounds the wait until a job's hash shows its flow's decision. The outbox
	// takes some milliseconds, more if Redis is slow.
	shownWithin = 2 * time.Second
	shownEvery  = 5 * time.Millisecond
)

// dispatchedAs returns the attempt at the job that is in flight in the flow, or 0.
func dispatchedAs(s flow.State, id uint32) uint32 {
	if n, ok := s.Node(id); ok && (n.Status == hero.NodeDispatched || n.Status == hero.NodeRunning) {
		return n.Attempt
	}
	return 0
}

// shown waits until the hash of a flow's job shows the attempt in flight, and returns the job.
// It returns false if that does not come in time.
func (c *Coordinator) shown(ctx context.Context, f hero.Flow, id uint32) (hero.Job, bool, error) {
	until := time.Now().Add(shownWithin)
	for {
		s, ran, err := c.flows.State(ctx, f.ContextID, f.ID)
		if err != nil {
			return hero.Job{}, false, err
		}
		j, err := c.db.Job(ctx, f.ContextID, f.CallerID, id)
		if err != nil {
			return j, errors.Is(err, redisdb.ErrNotFound), err
		}
		attempt := dispatchedAs(s, id)
		if !ran || s.Ended() || attempt == 0 || j.FlowID == f.ID && j.Attempt >= attempt {
			return j, true, nil
		}
		if time.Now().After(until) {
			return j, false, nil
		}
		if err := backoff.Wait(ctx, shownEvery); err != nil {
			return j, false, err
		}
	}
}

// startShown waits until the hashes of the jobs that a flow dispatches first show it, so that
// an executor may report on them. It ignores errors: the flow has started.
func (c *Coordinator) startShown(ctx context.Context, f hero.Flow) {
	s, ran, err := c.flows.State(ctx, f.ContextID, f.ID)
	if err != nil || !ran {
		return
	}
	for _, n := range slices.Backward(s.Definition.Nodes) { // the outbox writes them in order: the last one shows that all are written
		if dispatchedAs(s, n.ID) > 0 {
			_, _, _ = c.shown(ctx, f, n.ID)
			return
		}
	}
}

// flowOf finds the running flow of a job: by the job's hash or, before the outbox has
// written that, by the flows of the context.
func (c *Coordinator) flowOf(ctx context.Context, j hero.Job) (f hero.Flow, ok bool, err error) {
	if j.FlowID != 0 {
		f = hero.Flow{ID: j.FlowID, CallerID: j.CallerID, ContextID: j.ContextID}
		s, ran, err := c.flows.State(ctx, f.ContextID, f.ID)
		if err != nil || ran && !s.Ended() {
			return f, true, err
		}
	}
	if j.Status != hero.JobWaiting && j.Status != hero.JobError {
		return f, false, nil
	}
	flows, err := c.db.Flows(ctx, j.ContextID)
	if _, err = redisdb.Unreadable(err); err != nil {
		return f, false, err
	}
	for _, f := range flows {
		if f.CallerID != j.CallerID || !slices.Contains(f.Jobs, j.ID) {
			continue
		}
		s, ran, err := c.flows.State(ctx, f.ContextID, f.ID)
		if err != nil || ran && !s.Ended() {
			return f, true, err
		}
	}
	return f, false, nil
}

// current reads the job that an executor reports on, once Redis shows the attempt that its
// flow has dispatched: a report on an earlier one would be lost.
func (c *Coordinator) current(ctx context.Context, j hero.Job) (hero.Job, error) {
	f, ok, err := c.flowOf(ctx, j)
	if err != nil || !ok {
		return j, err
	}
	now, ok, err := c.shown(ctx, f, j.ID)
	if err == nil && !ok {
		return j, stored(Detail{Key: j.Key(), Why: fmt.Sprintf("%s has dispatched the job, and that is not written to Redis yet", f.Key()), Do: "call again in a moment; where that does not help, look at the coordinator's log and /health"})
	}
	return now, err
}
