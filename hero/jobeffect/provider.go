package jobeffect

import (
	"context"
	"errors"
	"math"
	"time"

	"edda"
	"edda/effects"
	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/backoff"
)

// The bounds of the back-off between two looks at a job that has not ended.
const (
	lookFirst = 20 * time.Millisecond
	lookMost  = time.Second
)

// The statuses that expressions see.
const (
	statusFinished = 0
	statusError    = 1
)

// Provider runs jobs.
type Provider struct{ db *redisdb.DB }

// New makes a provider. Without a Redis it refuses every call for good.
func New(db *redisdb.DB) *Provider { return &Provider{db} }

// Call makes or finds the command's job, and waits for its end.
func (p *Provider) Call(ctx context.Context, c effects.Call) (effects.Response, error) {
	if p.db == nil {
		return effects.Response{}, impossible(errors.New("a job goes out through Redis, and none is configured: set redis.url"))
	}
	r, err := requestOf(c)
	if err != nil {
		return effects.Response{}, impossible(err)
	}
	if err := ctx.Err(); err != nil {
		return effects.Response{}, notSent(err)
	}
	name := c.Tenant + "/" + c.Key
	r.job.ID, _, err = p.db.Create(ctx, r.job.ContextID, "job/"+name, r.job, "")
	if err != nil {
		return effects.Response{}, notSent(err)
	}
	if _, _, err := p.db.Send(ctx, r.job.ContextID, "effect/"+name, r.message(within(ctx, r.job.Timeout))); err != nil {
		return effects.Response{}, err
	}
	return p.await(ctx, r.job)
}

// reachWithin is the least time, in seconds, for which a job is offered to supervisors: one
// that restarts is back by then.
const reachWithin = 120

// within bounds the wait for a result, in seconds, by the call's deadline, which leaves time
// for a queue before the job's own timeout.
func within(ctx context.Context, timeout uint32) uint32 {
	end, ok := ctx.Deadline()
	if !ok {
		return timeout
	}
	return max(timeout, uint32(min(time.Until(end)/time.Second, math.MaxUint32)))
}

// message returns the message that carries the job to its runner.
func (r request) message(within uint32) hero.Message {
	m := hero.Message{
		CallerID: r.job.CallerID, ContextID: r.job.ContextID, MessageType: hero.MessageJob, MessageFormat: hero.FormatText,
		Timeout: min(max(r.job.Timeout, reachWithin), within), TimeoutAck: within, TimeoutResult: within, Job: []hero.Job{r.job},
	}
	if r.supervisor != "" {
		m.Nodes = []hero.FlowNode{{ID: r.job.ID, SupervisorURL: r.supervisor}}
	}
	return m
}

// await looks at the job until it has ended. A deleted job has an unknown outcome.
func (p *Provider) await(ctx context.Context, j hero.Job) (effects.Response, error) {
	for looks := (backoff.Exponential{First: lookFirst, Most: lookMost}); ; {
		now, err := p.db.Job(ctx, j.ContextID, j.CallerID, j.ID)
		switch {
		case errors.Is(err, redisdb.ErrNotFound):
			return effects.Response{Status: statusError, Unknown: true, Body: map[string]any{hero.ResultError: j.Key() + " was deleted before it ended"}}, nil
		case err == nil && now.Status.Ended():
			return response(now), nil
		case err != nil && !errors.Is(err, edda.Temporary):
			return effects.Response{}, err
		}
		if err := backoff.Wait(ctx, looks.Next()); err != nil {
			return effects.Response{}, edda.Classify(edda.Temporary, "%s is %s: %w", j.Key(), now.Status, err)
		}
	}
}

// response returns the end of a job; its result is the body.
func response(j hero.Job) effects.Response {
	body := make(map[string]any, len(j.Result))
	for k, v := range j.Result {
		body[k] = v
	}
	out := effects.Response{Status: statusFinished, Headers: map[string]string{"job": j.Key()}, Body: body}
	if j.Status == hero.JobError {
		out.Status = statusError
	}
	return out
}

// impossible makes the permanent error of a job that cannot be made.
func impossible(err error) error {
	return edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
}

// notSent makes the error of a job that was not sent, permanent only if err is.
func notSent(err error) error {
	if errors.Is(err, edda.Permanent) {
		return impossible(err)
	}
	return edda.Classify(edda.Temporary, "%w: %w", effects.ErrNotSent, err)
}
