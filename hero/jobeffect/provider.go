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

// The pauses between two looks at a job that is not yet done.
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

// New makes a provider; without a Redis every call is refused for good.
func New(db *redisdb.DB) *Provider { return &Provider{db} }

// Call makes the command's job, or finds it, and waits for its end.
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

// reachWithin is how long a supervisor is looked for at least, in seconds: one that
// restarts is back by then.
const reachWithin = 120

// within is how long a result may take, in seconds: as long as the call, which has
// time for a queue before the job's own.
func within(ctx context.Context, timeout uint32) uint32 {
	end, ok := ctx.Deadline()
	if !ok {
		return timeout
	}
	return max(timeout, uint32(min(time.Until(end)/time.Second, math.MaxUint32)))
}

// message carries the job to its runner.
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

// await looks at the job until it has ended. A job that is gone has no result.
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

// response is how a job ended: its result is the body.
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

// impossible is the error of a job that cannot be made, however often it is tried.
func impossible(err error) error {
	return edda.Classify(edda.Permanent, "%w: %w", effects.ErrNotSent, err)
}

// notSent is the error of a job that was not sent and may be.
func notSent(err error) error {
	if errors.Is(err, edda.Permanent) {
		return impossible(err)
	}
	return edda.Classify(edda.Temporary, "%w: %w", effects.ErrNotSent, err)
}
