package redisdb

import (
	"context"
	"maps"

	"edda/hero"
)

// The methods of this file write a flow's decisions to its objects.

// Dispatch is one attempt of a flow at a job.
type Dispatch struct {
	FlowID  uint32
	Attempt uint32
	Env     map[string]string // the flow's variables; the job's own override them
}

// DispatchJob sets a job to dispatched, without a result, as that attempt. An attempt that
// the job has seen changes nothing. A finished job keeps its status and result. It
// returns the job as it is in Redis.
func (d *DB) DispatchJob(ctx context.Context, in, caller, id uint32, to Dispatch) (hero.Job, error) {
	var now hero.Job
	key := hero.JobKey(caller, id)
	err := edit(ctx, d, in, key, hero.ReadJob, func(was hero.Job, _ map[string]string) (change, error) {
		if now = was; was.Status == hero.JobFinished || was.FlowID == to.FlowID && was.Attempt >= to.Attempt {
			return change{}, nil
		}
		now = to.apply(was)
		now.UpdatedAt = d.seconds()
		return change{guard: "status", set: hero.Fields(now), remove: append(hero.Absent(now), to.forgets(was)...)}, nil
	})
	return now, err
}

// FlowEnv reads a flow's variables and no other field: the list of a flow's jobs is long.
func (d *DB) FlowEnv(ctx context.Context, in, id uint32) (map[string]string, error) {
	key := hero.FlowKey(id)
	var f hero.Flow
	err := d.at(ctx, "read the variables of "+key, in, key, func(c *database) error {
		cmd := c.HMGet(ctx, key, "id", "caller_id", "env_vars")
		if cmd.Err() != nil {
			return cmd.Err()
		}
		h := fieldsRead(cmd, "id", "caller_id", "env_vars")
		if len(h) == 0 {
			return missing(key)
		}
		var err error
		f, err = hero.ReadFlow(key, h)
		return err
	})
	return f.EnvVars, err
}

// forgets returns the marks of an earlier attempt, which the dispatch removes from the job's
// hash: its content and its stop. The mark that it was queued goes with another flow,
// because each flow counts its own attempts.
func (to Dispatch) forgets(was hero.Job) []string {
	marks := []string{contentField, stopField}
	if was.FlowID != to.FlowID {
		marks = append(marks, queuedField)
	}
	return marks
}

// The marks that a job gets when it is queued: a digest of its content, and the attempt.
const (
	contentField = "content"
	queuedField  = "queued"
)

// apply returns the job as dispatched. It keeps the job's own variables apart for the next
// dispatch.
func (to Dispatch) apply(j hero.Job) hero.Job {
	if j.OwnEnv == nil {
		j.OwnEnv = map[string]string{}
		maps.Copy(j.OwnEnv, j.EnvVars)
	}
	j.EnvVars = map[string]string{}
	maps.Copy(j.EnvVars, to.Env)
	maps.Copy(j.EnvVars, j.OwnEnv)
	j.Status, j.Result, j.MessageKey = hero.JobDispatched, map[string]string{}, ""
	j.FlowID, j.Attempt = to.FlowID, to.Attempt
	return j
}

// Shown is a node's status in its flow, to be shown in the job.
type Shown struct {
	FlowID  uint32
	Attempt uint32 // the last one when the flow decided
	Status  hero.JobStatus
	Result  map[string]string // of a node that ended
}

// ShowJob writes a node's status to its job. A job that has seen a later attempt, that
// ended by its runner's report, or that belongs to another flow, stays as it is.
func (d *DB) ShowJob(ctx context.Context, in, caller, id uint32, s Shown) error {
	_, _, err := d.stepJob(ctx, in, hero.JobKey(caller, id), func(j *hero.Job) (bool, error) {
		if !s.owns(*j) || j.FlowID == s.FlowID && j.Attempt > s.Attempt || !s.mayFollow(j.Status) {
			return false, nil
		}
		j.Status = s.Status
		if s.Status.Ended() {
			j.Result = maps.Clone(s.Result)
		}
		return true, nil
	})
	return err
}

// owns reports whether the flow may write to the job: the flow dispatched it, or no other flow
// has it in flight.
func (s Shown) owns(j hero.Job) bool {
	if j.FlowID == s.FlowID || j.FlowID == 0 {
		return true
	}
	return s.Attempt == 0 && j.Status.Ended()
}

func (s Shown) mayFollow(was hero.JobStatus) bool {
	switch {
	case was == s.Status:
		return false
	case s.Status == hero.JobWaiting:
		return was == hero.JobDispatched || was == hero.JobError // error: an earlier run of the flow failed
	}
	return was.MayBecome(s.Status)
}

// stopField names the attempt that the job's runner is to stop.
const stopField = "stop"

// StopJob asks the runner of a flow's job to stop that attempt. A job that belongs to
// another flow by now goes on.
func (d *DB) StopJob(ctx context.Context, in, caller, id, flow, attempt uint32) error {
	key := hero.JobKey(caller, id)
	return update(ctx, d, in, key, hero.ReadJob, func(was hero.Job, h map[string]string) (change, error) {
		if len(h) == 0 || was.Status.Ended() || was.FlowID != flow {
			return change{}, nil
		}
		return change{guard: "status", set: map[string]string{stopField: decimal(attempt)}}, nil
	})
}

// MoveFlow sets a flow's status, by a legal step, and its result unless that is nil. A flow
// that has the status already stays as it is. Any other step is ErrIllegal.
func (d *DB) MoveFlow(ctx context.Context, in, id uint32, to hero.FlowStatus, result map[string]string) error {
	key := hero.FlowKey(id)
	return edit(ctx, d, in, key, hero.ReadFlow, func(was hero.Flow, _ map[string]string) (change, error) {
		switch {
		case was.Status == to:
			return change{}, nil
		case !was.Status.MayBecome(to):
			return change{}, illegal(key, string(was.Status), string(to))
		}
		now := was
		now.Status, now.UpdatedAt = to, d.seconds()
		if result != nil {
			now.Result = result
		}
		return change{guard: "status", set: pick(hero.Fields(now), "status", "result", "updated_at")}, nil
	})
}
