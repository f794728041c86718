package msgout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"edda"
	"edda/hero"
	"edda/hero/flow"
	"edda/hero/redisdb"
)

// advance does the acts of one step, in order. It returns the first error; the relay then
// repeats all acts.
func (d *Destination) advance(ctx context.Context, b flow.Batch) error {
	for _, a := range b.Acts {
		if err := d.act(ctx, b, a); err != nil {
			return fmt.Errorf("flow %d of context %d: %s: %w", b.FlowID, b.ContextID, a.Kind, err)
		}
	}
	return nil
}

func (d *Destination) act(ctx context.Context, b flow.Batch, a flow.Act) error {
	switch a.Kind {
	case flow.ActDispatch:
		return d.dispatch(ctx, b, a)
	case flow.ActNode:
		// A runner that works on the same hash may have written its result, which stays.
		return beyondRepair(d.db.ShowJob(ctx, b.ContextID, a.Caller, a.Node, redisdb.Shown{
			FlowID: b.FlowID, Attempt: a.Attempt, Status: a.Status.JobStatus(), Result: a.Result,
		}))
	case flow.ActStop:
		return beyondRepair(d.db.StopJob(ctx, b.ContextID, a.Caller, a.Node, b.FlowID, a.Attempt))
	case flow.ActFlow:
		return d.showFlow(ctx, b, a)
	}
	return nil
}

// beyondRepair drops the error of an act whose object is deleted, broken or changed by its
// owner: the engine has the flow's state.
func beyondRepair(err error) error {
	broken := (*hero.FieldError)(nil)
	if errors.Is(err, redisdb.ErrNotFound) || errors.Is(err, redisdb.ErrIllegal) || errors.As(err, &broken) {
		return nil
	}
	return err
}

// dispatch sets the job to dispatched and sends it. Redis recognises both steps by the
// attempt, so that a repeated dispatch sends the job once.
func (d *Destination) dispatch(ctx context.Context, b flow.Batch, a flow.Act) error {
	env, err := d.db.FlowEnv(ctx, b.ContextID, b.FlowID)
	if beyondRepair(err) != nil {
		return err
	}
	j, err := d.db.DispatchJob(ctx, b.ContextID, a.Caller, a.Node, redisdb.Dispatch{FlowID: b.FlowID, Attempt: a.Attempt, Env: env})
	switch {
	case err != nil && beyondRepair(err) == nil:
		return d.report(ctx, b, a, hero.NodeFailed, map[string]string{hero.ResultError: "not sent: " + err.Error()})
	case err != nil:
		return err
	case j.Status == hero.JobFinished:
		return d.report(ctx, b, a, hero.NodeCompleted, j.Result) // it keeps its result and does not run again
	}
	_, _, err = d.db.Send(ctx, b.ContextID, dispatchID(b, a), message(b, a, j))
	return err
}

// dispatchID returns the command id of one dispatch.
func dispatchID(b flow.Batch, a flow.Act) string {
	return fmt.Sprintf("flow/%d/%d/%d/%d", b.ContextID, b.FlowID, a.Node, a.Attempt)
}

// message returns the message that carries the job of one dispatch to its runner.
func message(b flow.Batch, a flow.Act, j hero.Job) hero.Message {
	j.OwnEnv = nil // EnvVars has all variables
	return hero.Message{
		CallerID: b.CallerID, ContextID: b.ContextID, MessageType: hero.MessageJob, MessageFormat: hero.FormatText,
		Timeout: deliverWithin(a), TimeoutAck: queueTimeout(a), TimeoutResult: resultWithin(a),
		Job:    []hero.Job{j},
		Nodes:  []hero.FlowNode{{ID: j.ID, Depends: j.Dependends, Prerequisites: j.Prerequisites, SupervisorURL: a.SupervisorURL, NodeStatus: hero.NodeDispatched}},
		FlowID: b.FlowID, Attempt: a.Attempt,
	}
}

// reachWithin is the least time, in seconds, for which a job is offered to supervisors: one
// that restarts is back by then.
const reachWithin = 120

// deliverWithin bounds the time, in seconds, for which a job is offered to supervisors. The
// wait in a queue, before a runner takes the job, has its own bound.
func deliverWithin(a flow.Act) uint32 { return min(max(a.Timeout, reachWithin), queueTimeout(a)) }

// queueTimeout bounds the wait before the job begins, in seconds. An act of an earlier version
// has none.
func queueTimeout(a flow.Act) uint32 {
	return cmp.Or(a.QueueTimeout, uint32(hero.DefaultQueueTimeout/time.Second))
}

// resultWithin bounds the router's wait for a result, in seconds. It is longer than the queue
// timeout and the timeout, after which the flow gives up and stops the attempt.
func resultWithin(a flow.Act) uint32 {
	const slack = 4 * flow.AnswerGrace
	return uint32(min(uint64(queueTimeout(a))+uint64(a.Timeout)+uint64(slack/time.Second), math.MaxUint32))
}

// report tells the flow the end of a node whose job was not sent. It ignores that the flow is
// deleted.
func (d *Destination) report(ctx context.Context, b flow.Batch, a flow.Act, status hero.NodeStatus, result map[string]string) error {
	err := d.reports.Report(ctx, hero.Report{
		ID: fmt.Sprintf("unsent/%d/%d/%s", a.Node, a.Attempt, status), ContextID: b.ContextID, FlowID: b.FlowID,
		Node: a.Node, Attempt: a.Attempt, Status: status, Result: result,
	})
	if errors.Is(err, edda.Permanent) {
		return nil
	}
	return err
}

// showFlow writes the flow's status, at its end with the results of its jobs.
func (d *Destination) showFlow(ctx context.Context, b flow.Batch, a flow.Act) error {
	var result map[string]string
	if a.Flow.Ended() {
		var err error
		if result, err = d.gather(ctx, b); err != nil {
			return err
		}
		if a.Reason != "" {
			result[hero.ResultError] = a.Reason
		}
	}
	return beyondRepair(d.db.MoveFlow(ctx, b.ContextID, b.FlowID, a.Flow, result))
}

// maxGathered bounds the result of one flow, in bytes. Further results stay in the jobs.
const maxGathered = 4 << 20

// gather collects the jobs' results, by <job id>.<key>.
func (d *Destination) gather(ctx context.Context, b flow.Batch) (map[string]string, error) {
	out, size := map[string]string{}, 0
	for _, key := range b.Jobs {
		caller, id, err := hero.ParseJobKey(key)
		if err != nil {
			continue
		}
		j, err := d.db.Job(ctx, b.ContextID, caller, id)
		if beyondRepair(err) != nil {
			return nil, err
		}
		part := make(map[string]string, len(j.Result))
		for k, v := range j.Result {
			name := fmt.Sprintf("%d.%s", id, k)
			part[name] = v
			size += len(name) + len(v)
		}
		if size > maxGathered {
			out[hero.ResultNote] = fmt.Sprintf("more than %d bytes: the jobs from %d on keep theirs", maxGathered, id)
			break
		}
		maps.Copy(out, part)
	}
	return out, nil
}
