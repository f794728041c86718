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

// advance does the acts of one step, in order. The first that Redis refuses for
// now ends it; all are done again then.
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
		return d.showNode(ctx, b, a)
	case flow.ActStop:
		return beyondRepair(d.db.StopJob(ctx, b.ContextID, a.Caller, a.Node, b.FlowID, a.Attempt))
	case flow.ActFlow:
		return d.showFlow(ctx, b, a)
	}
	return nil
}

// beyondRepair drops an act whose object was changed by its owner: a job that was
// deleted, or is broken, shows nothing; the flow's state is the engine's.
func beyondRepair(err error) error {
	broken := (*hero.FieldError)(nil)
	if errors.Is(err, redisdb.ErrNotFound) || errors.Is(err, redisdb.ErrIllegal) || errors.As(err, &broken) {
		return nil
	}
	return err
}

// dispatch makes the job ready for that attempt and sends it. Each half is known
// again by the attempt, so that doing it twice sends it once.
func (d *Destination) dispatch(ctx context.Context, b flow.Batch, a flow.Act) error {
	env, err := d.db.FlowEnv(ctx, b.ContextID, b.FlowID)
	if beyondRepair(err) != nil {
		return err
	}
	j, err := d.db.DispatchJob(ctx, b.ContextID, a.Caller, a.Node, redisdb.Dispatch{FlowID: b.FlowID, Attempt: a.Attempt, Env: env})
	switch {
	case err != nil && beyondRepair(err) == nil:
		return d.reportFailed(ctx, b, a, err)
	case err != nil:
		return err
	case j.Status == hero.JobFinished:
		return d.report(ctx, b, a, hero.NodeCompleted, j.Result) // it has its result, and is not run again
	}
	_, _, err = d.db.Send(ctx, b.ContextID, dispatchID(b, a), message(b, a, j))
	return err
}

// dispatchID is the command id of one dispatch.
func dispatchID(b flow.Batch, a flow.Act) string {
	return fmt.Sprintf("flow/%d/%d/%d/%d", b.ContextID, b.FlowID, a.Node, a.Attempt)
}

// message carries the job of one dispatch to its runner.
func message(b flow.Batch, a flow.Act, j hero.Job) hero.Message {
	j.OwnEnv = nil // it runs with all of them
	return hero.Message{
		CallerID: b.CallerID, ContextID: b.ContextID, MessageType: hero.MessageJob, MessageFormat: hero.FormatText,
		Timeout: deliverWithin(a), TimeoutAck: queueTimeout(a), TimeoutResult: resultWithin(a),
		Job:    []hero.Job{j},
		Nodes:  []hero.FlowNode{{ID: j.ID, Depends: j.Dependends, Prerequisites: j.Prerequisites, SupervisorURL: a.SupervisorURL, NodeStatus: hero.NodeDispatched}},
		FlowID: b.FlowID, Attempt: a.Attempt,
	}
}

// reachWithin is how long a supervisor is looked for at least, in seconds: one that
// restarts is back by then.
const reachWithin = 120

// deliverWithin is how long a job of a flow is offered that no supervisor takes, in
// seconds. Waiting in a queue has its own bound: no runner has the job yet.
func deliverWithin(a flow.Act) uint32 { return min(max(a.Timeout, reachWithin), queueTimeout(a)) }

// queueTimeout is how long the job may wait to be begun, in seconds. An act of an
// earlier version does not say.
func queueTimeout(a flow.Act) uint32 {
	return cmp.Or(a.QueueTimeout, uint32(hero.DefaultQueueTimeout/time.Second))
}

// resultWithin is how long the router waits for a result, in seconds: longer than the
// flow does, which gives its job the queue timeout to be begun and then the timeout to
// run. The flow gives up by itself, and then stops the attempt.
func resultWithin(a flow.Act) uint32 {
	const slack = 4 * flow.AnswerGrace
	return uint32(min(uint64(queueTimeout(a))+uint64(a.Timeout)+uint64(slack/time.Second), math.MaxUint32))
}

func (d *Destination) reportFailed(ctx context.Context, b flow.Batch, a flow.Act, why error) error {
	return d.report(ctx, b, a, hero.NodeFailed, map[string]string{hero.ResultError: "not sent: " + why.Error()})
}

// report tells the flow what is known without sending anything. A flow that is
// gone needs no telling.
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

// showNode shows a node's status in its job. A runner that works on the same hash
// was there before, and its result stays.
func (d *Destination) showNode(ctx context.Context, b flow.Batch, a flow.Act) error {
	return beyondRepair(d.db.ShowJob(ctx, b.ContextID, a.Caller, a.Node, redisdb.Shown{
		FlowID: b.FlowID, Attempt: a.Attempt, Status: a.Status.JobStatus(), Result: a.Result,
	}))
}

// showFlow shows the flow's status; at its end with the results of its jobs.
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

// maxGathered bounds the bytes of one flow's result: what is beyond it stays in
// the jobs.
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
		part := prefixed(id, j.Result)
		if size += bytesOf(part); size > maxGathered {
			out[hero.ResultNote] = fmt.Sprintf("more than %d bytes: the jobs from %d on keep theirs", maxGathered, id)
			break
		}
		maps.Copy(out, part)
	}
	return out, nil
}

func prefixed(id uint32, result map[string]string) map[string]string {
	out := make(map[string]string, len(result))
	for k, v := range result {
		out[fmt.Sprintf("%d.%s", id, k)] = v
	}
	return out
}

func bytesOf(m map[string]string) (n int) {
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}
