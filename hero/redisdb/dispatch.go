package redisdb

import (
	"context"
	"maps"
	"strconv"

	"edda/hero"
)

// This file is what a flow does to the objects it shows itself in.

// Dispatch makes a job ready for one attempt of its flow.
type Dispatch struct {
	FlowID  uint32
	Attempt uint32
	Env     map[string]string // the flow's; the job's own go before them
}

// DispatchJob makes a job dispatched, without a result, as that attempt: once,
// for an attempt that the job has seen changes nothing. A job that is finished
// stays so, and keeps its result. It returns the job as it is now.
func (d *DB) DispatchJob(ctx context.Context, in, caller, id uint32, to Dispatch) (hero.Job, error) {
	var now hero.Job
	key := hero.JobKey(caller, id)
	err := update(ctx, d, in, key, hero.ReadJob, func(was hero.Job, h map[string]string) (change, error) {
		if len(h) == 0 {
			return change{}, missing(key)
		}
		if now = was; was.Status == hero.JobFinished || was.FlowID == to.FlowID && was.Attempt >= to.Attempt {
			return change{}, nil
		}
		now = to.apply(was)
		now.UpdatedAt = d.seconds()
		return change{guard: "status", set: hero.Fields(now), remove: append(hero.Absent(now), to.forgets(was)...)}, nil
	})
	return now, err
}

// FlowEnv reads a flow's variables, and nothing else of it: a flow is as large as the
// list of its jobs.
func (d *DB) FlowEnv(ctx context.Context, in, id uint32) (map[string]string, error) {
	key := hero.FlowKey(id)
	op := "read the variables of " + key
	c, err := d.at(op, in, key)
	if err != nil {
		return nil, err
	}
	names := []string{"id", "caller_id", "env_vars"}
	var f hero.Flow
	err = d.try(ctx, op, in, func() error {
		values, err := c.HMGet(ctx, key, names...).Result()
		if err != nil {
			return err
		}
		h := map[string]string{}
		for i, v := range values {
			if text, ok := v.(string); ok {
				h[names[i]] = text
			}
		}
		if len(h) == 0 {
			return missing(key)
		}
		f, err = hero.ReadFlow(key, h)
		return err
	})
	return f.EnvVars, err
}

// forgets are the marks that routing left in the job's hash for an earlier
// attempt: what it was then, and that it was to stop; and for another flow's, that
// it was queued, since attempts are counted by each flow.
func (to Dispatch) forgets(was hero.Job) []string {
	marks := []string{contentField, stopField}
	if was.FlowID != to.FlowID {
		marks = append(marks, queuedField)
	}
	return marks
}

// Marks that a job gets when it is queued: a digest of its content, and the attempt.
const (
	contentField = "content"
	queuedField  = "queued"
)

// apply is the job as dispatched. Its own variables are kept apart, so that the
// next dispatch begins from them again.
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

// Shown is what a flow shows of a node in its job.
type Shown struct {
	FlowID  uint32
	Attempt uint32 // the last one when it was decided
	Status  hero.JobStatus
	Result  map[string]string // of one that ended
}

// ShowJob shows a node's status in its job. A job that has seen a later attempt,
// that ended as its runner says, or that another flow has, stays as it is.
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

// owns tells whether the job is the flow's to show: one that it dispatched, or
// that no other flow has under way.
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
		return was == hero.JobDispatched || was == hero.JobError // an earlier run of the flow failed
	}
	return was.MayBecome(s.Status)
}

// stopField asks the job's runner to end it.
const stopField = "stop"

// StopJob asks the runner of that attempt of a flow's job to end it. A job that
// another flow has by now goes on.
func (d *DB) StopJob(ctx context.Context, in, caller, id, flow, attempt uint32) error {
	key := hero.JobKey(caller, id)
	return update(ctx, d, in, key, hero.ReadJob, func(was hero.Job, h map[string]string) (change, error) {
		if len(h) == 0 || was.Status.Ended() || was.FlowID != flow {
			return change{}, nil
		}
		return change{guard: "status", set: map[string]string{stopField: strconv.FormatUint(uint64(attempt), 10)}}, nil
	})
}

// MoveFlow takes a legal step of a flow's life, and replaces its result unless
// that is nil: dispatched, started, then an end; a flow in error may start again.
// A flow that has the status is as it was; any other step is ErrIllegal.
func (d *DB) MoveFlow(ctx context.Context, in, id uint32, to hero.FlowStatus, result map[string]string) error {
	key := hero.FlowKey(id)
	return update(ctx, d, in, key, hero.ReadFlow, func(was hero.Flow, h map[string]string) (change, error) {
		switch {
		case len(h) == 0:
			return change{}, missing(key)
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
