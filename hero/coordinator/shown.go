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

// This file bridges the moment between a flow's step, which is durable at once, and the
// hash of the job that it dispatches, which the outbox writes after it.

const (
	// shownWithin bounds waiting for a job's hash to show what its flow decided: the
	// outbox takes some milliseconds, more where Redis is slow.
	shownWithin = 2 * time.Second
	shownEvery  = 5 * time.Millisecond
)

// dispatchedAs is the attempt in which the flow has the job under way; 0 where it has not.
func dispatchedAs(s flow.State, id uint32) uint32 {
	if n, ok := s.Node(id); ok && (n.Status == hero.NodeDispatched || n.Status == hero.NodeRunning) {
		return n.Attempt
	}
	return 0
}

// shown waits until the hash of a flow's job shows the attempt that is under way, and returns
// the job as it is then; false where that did not come in time.
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

// startShown waits until the jobs that a flow dispatches first are shown, so that an executor
// may speak of them. A flow that has begun has begun, whatever comes of this.
func (c *Coordinator) startShown(ctx context.Context, f hero.Flow) {
	s, ran, err := c.flows.State(ctx, f.ContextID, f.ID)
	if err != nil || !ran {
		return
	}
	for _, n := range slices.Backward(s.Definition.Nodes) { // they are shown in order: once the last is, all are
		if dispatchedAs(s, n.ID) > 0 {
			_, _, _ = c.shown(ctx, f, n.ID)
			return
		}
	}
}

// flowOf is the flow that has the job under way, by what its hash says or, while that is
// behind, by the flows of the context.
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

// current reads the job that an executor reports on, as its flow knows it. It waits until
// Redis shows the attempt that the flow has dispatched: an earlier report would be lost.
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
