package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"edda/hero"
	"edda/hero/redisdb"
)

type jobUpdate struct {
	owned
	Status hero.JobStatus    `json:"status"`
	Result map[string]string `json:"result,omitempty"`
}

// updateJob records an executor's report on a job: in the job's hash, by one atomic step, and
// then in its flow. A call that failed in between may be repeated, which does neither
// twice. It takes no lock: executors of one context do not wait for each other.
func (c *Coordinator) updateJob(ctx context.Context, p jobUpdate) (hero.Job, error) {
	if err := p.check(); err != nil {
		return hero.Job{}, err
	}
	if p.Status == "" {
		return hero.Job{}, invalid("status", "is missing: want started, finished or error")
	}
	if err := checkResult("result", p.Result); err != nil {
		return hero.Job{}, err
	}
	if err := c.seeOwned(ctx, p.owned, mayExecute()); err != nil {
		return hero.Job{}, err
	}
	before, err := c.loadedJob(ctx, p.ContextID, p.CallerID, p.ID)
	if err != nil {
		return hero.Job{}, err
	}
	if before, err = c.current(ctx, before); err != nil {
		return hero.Job{}, err
	}
	after, _, err := c.db.MoveJob(ctx, p.ContextID, p.CallerID, p.ID, p.Status, p.Result)
	if errors.Is(err, redisdb.ErrIllegal) {
		return hero.Job{}, invalid("status", "is %s, which a job that is %s may not become", p.Status, before.Status)
	}
	if err != nil {
		return hero.Job{}, err
	}
	return after, c.tellFlow(ctx, after)
}

type jobMet struct {
	owned
	Name string `json:"name"`
}

// metJob records that a prerequisite holds. A job of a flow waits in its flow.
func (c *Coordinator) metJob(ctx context.Context, p jobMet) (hero.Job, error) {
	if err := cmp.Or(p.check(), checkWords("name", []string{p.Name}, maxName)); err != nil {
		return hero.Job{}, err
	}
	if err := c.seeOwned(ctx, p.owned, mayExecute()); err != nil {
		return hero.Job{}, err
	}
	j, err := c.loadedJob(ctx, p.ContextID, p.CallerID, p.ID)
	switch {
	case err != nil:
		return hero.Job{}, err
	case j.FlowID != 0:
		return hero.Job{}, invalid("id", "is a job of flow %d, which waits for it: use flow.prerequisite_met", j.FlowID)
	case !slices.Contains(j.Prerequisites, p.Name):
		return hero.Job{}, invalid("name", "is none of the job's prerequisites: %v", j.Prerequisites)
	}
	return c.db.MeetJob(ctx, p.ContextID, p.CallerID, p.ID, p.Name)
}

// tellFlow reports the job to the flow that dispatched it. A repeated call sends the same
// report.
func (c *Coordinator) tellFlow(ctx context.Context, j hero.Job) error {
	status, ok := map[hero.JobStatus]hero.NodeStatus{
		hero.JobStarted: hero.NodeRunning, hero.JobFinished: hero.NodeCompleted, hero.JobError: hero.NodeFailed,
	}[j.Status]
	if j.FlowID == 0 || !ok {
		return nil
	}
	return c.flows.Report(ctx, hero.Report{
		ID:        fmt.Sprintf("update/%d/%d/%s/%d/%s", j.ContextID, j.FlowID, j.Key(), j.Attempt, status),
		ContextID: j.ContextID, FlowID: j.FlowID, Node: j.ID, Attempt: j.Attempt, Status: status, Result: j.Result,
	})
}
