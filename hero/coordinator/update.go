package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"edda/hero"
	"edda/hero/redisdb"
)

type jobUpdate struct {
	ContextID uint32            `json:"context_id"`
	CallerID  uint32            `json:"caller_id"`
	ID        uint32            `json:"id"`
	Status    hero.JobStatus    `json:"status"`
	Result    map[string]string `json:"result,omitempty"`
	ActorID   uint32            `json:"actor_id,omitempty"`
}

// updateJob records what an executor says of a job. The hash comes first, in one
// atomic step, and the flow hears of it after; a call that fails between the two
// is to be made again, which does neither twice. It takes no lock: executors of
// one context do not wait for each other.
func (c *Coordinator) updateJob(ctx context.Context, p jobUpdate) (hero.Job, error) {
	of := owned{ContextID: p.ContextID, CallerID: p.CallerID, ID: p.ID, ActorID: p.ActorID}
	if err := checkUpdate(of, p); err != nil {
		return hero.Job{}, err
	}
	if err := c.see(ctx, in{ContextID: p.ContextID, ID: p.ID, callerParams: of.caller()}, mayExecute()); err != nil {
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
	return showJob(after), c.tellFlow(ctx, after)
}

func checkUpdate(of owned, p jobUpdate) error {
	if err := of.check(); err != nil {
		return err
	}
	if p.Status == "" {
		return invalid("status", "is missing: want started, finished or error")
	}
	return checkResult("result", p.Result)
}

type jobMet struct {
	ContextID uint32 `json:"context_id"`
	CallerID  uint32 `json:"caller_id"`
	ID        uint32 `json:"id"`
	Name      string `json:"name"`
	ActorID   uint32 `json:"actor_id,omitempty"`
}

// metJob notes that a prerequisite holds. A job of a flow waits in its flow.
func (c *Coordinator) metJob(ctx context.Context, p jobMet) (hero.Job, error) {
	of := owned{ContextID: p.ContextID, CallerID: p.CallerID, ID: p.ID, ActorID: p.ActorID}
	if err := of.check(); err != nil {
		return hero.Job{}, err
	}
	if err := checkWords("name", []string{p.Name}, maxName); err != nil {
		return hero.Job{}, err
	}
	if err := c.see(ctx, in{ContextID: p.ContextID, ID: p.ID, callerParams: of.caller()}, mayExecute()); err != nil {
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
	j, err = c.db.MeetJob(ctx, p.ContextID, p.CallerID, p.ID, p.Name)
	return showJob(j), err
}

// tellFlow reports the job to the flow that dispatched it. It says the same of
// the same step, however often it is called.
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
