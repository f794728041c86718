package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/supervisor"
	"edda/internal/backoff"
)

// end is the end of one job of a message.
type end struct {
	status hero.JobStatus // finished or error; empty while a runner has the job
	result map[string]string
	// broken says why the message did not get through: perhaps the job never ran.
	broken string
	// kept: the end was read from the job's hash, or the hash is another job's. It must not
	// be written there.
	kept bool
}

func (e end) waits() bool { return e.status == "" }

// broke is the end of a job whose message did not get through.
func broke(format string, args ...any) end {
	why := fmt.Sprintf(format, args...)
	return end{status: hero.JobError, result: map[string]string{hero.ResultError: why}, broken: why}
}

// takenID is the end of a job whose id another job has.
func takenID(job hero.Job) end {
	out := broke("%v", supervisor.Taken(job))
	out.kept = true
	return out
}

// recordedEnd is the end in a job's hash.
func recordedEnd(job hero.Job) end { return end{status: job.Status, result: job.Result, kept: true} }

// jobs delivers the jobs of a message.
func (l *contextLoop) jobs(ctx context.Context, d delivery, m hero.Message) error {
	run, err := l.beginRun(ctx, m)
	switch {
	case errors.Is(err, edda.Permanent):
		return l.flowEnds(ctx, m, brokenEnd, err.Error())
	case err != nil:
		return err
	case run != "":
		return l.flow(ctx, m, run)
	}
	routes, err := l.jobRoutes(ctx, m)
	switch {
	case errors.Is(err, edda.Permanent):
		return l.refuse(ctx, m, err.Error())
	case err != nil:
		return err
	}
	var g errgroup.Group
	g.SetLimit(perMessage)
	for _, r := range routes {
		g.Go(func() error { return l.deliverJob(ctx, d, m, r) })
	}
	return g.Wait()
}

// jobRoutes lists the jobs of a message with their routes. It loads the jobs that the
// message only names.
func (l *contextLoop) jobRoutes(ctx context.Context, m hero.Message) ([]jobRoute, error) {
	routes, err := routesOf(m)
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "%w", err)
	}
	for i, r := range routes {
		if r.job.Script != "" {
			continue
		}
		routes[i].job, err = l.DB.Job(ctx, l.Context, m.CallerID, r.job.ID)
		if err != nil && absent(err) == nil {
			err = edda.Classify(edda.Permanent, "job %d is neither in the message nor in the context: %w", r.job.ID, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return routes, nil
}

// deliverJob delivers one job to its context, its queue or its supervisor. It settles the
// job unless a runner has it then.
func (l *contextLoop) deliverJob(ctx context.Context, d delivery, m hero.Message, r jobRoute) error {
	job := r.complete(m, l.Context)
	if v, err := l.noted(ctx, m, endedAs, job.ID); err != nil || v != "" {
		return errors.Join(err, l.conclude(ctx, m))
	}
	var out end
	var done bool
	var err error
	if job.ContextID != l.Context && !d.inbound {
		out, done, err = l.toOtherContext(ctx, m, job, r.url)
	}
	ensured := job
	if err == nil && !done {
		ensured, out, done, err = l.ensure(ctx, m, job)
	}
	if err == nil && !done {
		if d.inbound && r.url == "" {
			out, err = l.queue(ctx, m, ensured)
		} else {
			out, err = l.callTarget(ctx, m, ensured, r.url)
		}
	}
	if err != nil || out.waits() {
		return err
	}
	l.r.o.at("answered", m.Key())
	return l.Retry.Do(ctx, fmt.Sprintf("settle job %d of %s", job.ID, m.Key()), func(ctx context.Context) error { return l.settle(ctx, m, job, out, answered) })
}

// ensure writes the hash of a job that exists only in the message, because the hash holds
// its end, and returns the job of the hash. The jobs of a flow have a hash. One job id is
// one job: done reports that nothing is delivered, because another job has the id, the job
// has ended, or another message delivers it.
func (l *contextLoop) ensure(ctx context.Context, m hero.Message, job hero.Job) (_ hero.Job, out end, done bool, err error) {
	if m.FlowID != 0 || job.ContextID != l.Context {
		return job, end{}, false, nil
	}
	now, err := l.claim(ctx, m, job)
	switch {
	case errors.Is(err, errOther):
		return job, takenID(job), true, nil
	case errors.Is(err, edda.Permanent):
		return job, end{}, false, nil // the hash is broken: the runner reports that
	case err != nil:
		return job, end{}, false, err
	case now.Status.Ended() && (now.Status == hero.JobFinished || max(job.Attempt, 1) <= max(now.Attempt, 1)):
		return job, recordedEnd(now), true, nil
	case now.MessageKey != m.Key():
		return job, end{}, true, l.expect(ctx, m, job)
	}
	job.Retries, job.Dependends, job.Prerequisites, job.Met = now.Retries, now.Dependends, now.Prerequisites, now.Met
	return job, end{}, false, nil
}

// errOther: another job has the id.
var errOther = errors.New("another job has the id")

// claim notes in the job's hash that this message brings it, unless another message that
// has not ended brings it, or a flow does. It returns the job of the hash.
func (l *contextLoop) claim(ctx context.Context, m hero.Message, job hero.Job) (hero.Job, error) {
	free := "" // a message that brought the job before and has ended
	now, err := l.DB.Job(ctx, l.Context, job.CallerID, job.ID)
	if err == nil && now.MessageKey != "" && now.MessageKey != m.Key() {
		other, there, err := l.asked(ctx, now.MessageKey)
		if err != nil {
			return now, err
		}
		if !there || other.Status.Ended() {
			free = now.MessageKey
		}
	}
	other := false
	now, err = l.DB.ClaimJob(ctx, job, func(was hero.Job) bool {
		if other = was.FlowID == 0 && !supervisor.Same(was, job); other {
			return false
		}
		return was.FlowID == 0 && !was.Status.Ended() && (was.MessageKey == "" || was.MessageKey == free)
	})
	if err == nil && other && (now.Status != hero.JobError || max(job.Attempt, 1) <= max(now.Attempt, 1)) {
		err = errOther
	}
	return now, err
}

// callTarget finds a target and calls it. While no target fits or is reached, it tries
// again until the message's timeout.
func (l *contextLoop) callTarget(ctx context.Context, m hero.Message, job hero.Job, url string) (end, error) {
	until := time.Now().Add(seconds(m.Timeout, defaultTimeout))
	p := newRetry()
	for {
		t, again, err := l.target(ctx, m, job, url)
		if err != nil && !errors.Is(err, edda.Permanent) {
			return end{}, err
		}
		if !again {
			if out, over, err := l.over(ctx, m, job); err != nil || over {
				return out, err
			}
		}
		why := err
		if err == nil {
			if t.way != byQueue && !again {
				if out, held, err := l.gate(ctx, m, job); err != nil || held {
					return out, err
				}
			}
			out, unsent, err := l.to(ctx, m, job, t, again)
			if err != nil || unsent == nil {
				return out, err
			}
			l.r.markUnreachable(l.Context, t.runner)
			why = unsent
		}
		if time.Now().After(until) {
			return broke("not delivered within %s: %v", seconds(m.Timeout, defaultTimeout), why), nil
		}
		if backoff.Wait(ctx, p.Next()) != nil {
			return end{}, ctx.Err()
		}
	}
}

// gate holds a job that waits for other jobs before it is sent to a supervisor. The message
// returns through msg_out when the job may run. For a local queue, Enqueue does this.
func (l *contextLoop) gate(ctx context.Context, m hero.Message, job hero.Job) (out end, held bool, err error) {
	if job.ContextID != l.Context {
		return end{}, false, nil
	}
	g, why, err := l.DB.Gate(ctx, l.Context, job)
	switch {
	case err != nil || !job.Waits():
		return end{}, false, err
	case g != redisdb.GateClosed:
		if err := l.DB.Unhold(ctx, l.Context, job.Key()); err != nil {
			return end{}, false, err
		}
	}
	switch g {
	case redisdb.GateOpen:
		return end{}, false, nil
	case redisdb.GateFailed:
		return end{status: hero.JobError, result: map[string]string{hero.ResultError: why}}, true, nil
	}
	if err := l.expect(ctx, m, job); err != nil {
		return end{}, false, err
	}
	return end{}, true, l.DB.Hold(ctx, l.Context, job, m.Key(), hero.MsgOut, "")
}

// over reports whether a flow's job has an end although no runner told it to the router:
// the flow was cancelled, an executor recorded the end, or a later attempt began.
func (l *contextLoop) over(ctx context.Context, m hero.Message, job hero.Job) (out end, over bool, err error) {
	if m.FlowID == 0 {
		return end{}, false, nil
	}
	now, err := l.DB.Work(ctx, l.Context, job.CallerID, job.ID)
	switch {
	case err != nil:
		return end{}, false, absent(err) // the runner reports a broken job
	case now.FlowID != m.FlowID:
		return end{}, false, nil
	case m.Attempt != 0 && now.Attempt > m.Attempt:
		return broke("attempt %d is under way", now.Attempt), true, nil
	case now.Status.Ended():
		return recordedEnd(now.Job), true, nil
	case now.Stop:
		return broke("%v", errStopped), true, nil
	}
	return end{}, false, nil
}

// target decides where the job goes: to the target of an earlier try, else to the node's
// URL, else to a runner of the context. again reports an earlier try. After a Permanent
// error a later call may succeed, because a runner may register.
func (l *contextLoop) target(ctx context.Context, m hero.Message, job hero.Job, url string) (t target, again bool, err error) {
	t, again, err = l.targetAmong(ctx, m, job, url, false)
	switch {
	case errors.Is(err, edda.Permanent): // a runner may be new
		return l.targetAmong(ctx, m, job, url, true)
	case err == nil && t.way != byQueue && t.runner == 0: // the runner that lends its secret may be new
		if is, err := l.outdated(ctx); err != nil || !is {
			return t, again, err
		}
		return l.targetAmong(ctx, m, job, url, false)
	}
	return t, again, err
}

func (l *contextLoop) targetAmong(ctx context.Context, m hero.Message, job hero.Job, url string, anew bool) (t target, again bool, err error) {
	runners, err := l.runners(ctx, anew)
	if err != nil && (!errors.Is(err, edda.Permanent) || len(runners) == 0) {
		return target{}, false, err
	}
	before, err := l.noted(ctx, m, routedTo, job.ID)
	if err != nil {
		return target{}, false, err
	}
	switch {
	case before != "":
		t, err = earlierTarget(before, runners)
		again = true
	case url != "":
		t, err = byURL(url, runners)
	default:
		dead := func(id uint32) bool { return l.r.isUnreachable(l.Context, id) }
		r, ok := pick(job, runners, dead, l.r.next(l.Context, job.Executor))
		if !ok {
			return target{}, false, edda.Classify(edda.Permanent, "no runner of context %d fits %s jobs: register one, or give the node a supervisor_url", l.Context, job.Executor)
		}
		t, err = byRunner(r)
	}
	if err != nil {
		return target{}, false, edda.Classify(edda.Permanent, "%w", err)
	}
	if t.way == byMycelium && l.r.o.Mesh == nil {
		return target{}, false, edda.Classify(edda.Permanent, "%s is reached over Mycelium, which is not configured here", t.name)
	}
	return t, again, nil
}

// to sends the job to one target. unsent is the reason where the target certainly did not
// get it: the caller may try another one.
func (l *contextLoop) to(ctx context.Context, m hero.Message, job hero.Job, t target, again bool) (out end, unsent, err error) {
	if t.way == byQueue {
		out, err = l.queue(ctx, m, job)
		return out, nil, err
	}
	client, id := l.r.client(t), ""
	if !again {
		// After a crash the next router asks this target and no other one, and knows its reply.
		id = client.NewID()
		if err := l.note(ctx, m.Key(), numbered(routedTo, job.ID), t.name, numbered(calledAs, job.ID), id, "topic", t.topic,
			"target_context", l.Context, "transport_status", hero.TransportSent); err != nil {
			return end{}, nil, err
		}
	}
	l.r.o.at("routed", m.Key())
	out, unsent, err = l.call(ctx, m, job, t, client, id)
	if unsent != nil {
		err = l.note(ctx, m.Key(), numbered(routedTo, job.ID), "", "transport_status", hero.TransportQueued)
	}
	return out, unsent, err
}

// queue puts the job into the local queue of its type, once, and has watch look at it.
func (l *contextLoop) queue(ctx context.Context, m hero.Message, job hero.Job) (end, error) {
	job.ContextID = l.Context
	if err := l.expect(ctx, m, job); err != nil {
		return end{}, err
	}
	verdict, err := supervisor.Enqueue(ctx, l.DB, job, job.ScriptType.Queue(), time.Time{})
	if errors.Is(err, edda.Permanent) {
		return broke("%v", err), nil
	}
	if err != nil {
		return end{}, err
	}
	l.r.o.at("queued", m.Key())
	switch verdict {
	case supervisor.Other:
		return takenID(job), nil
	case supervisor.Known, supervisor.Failed:
		if out, err := l.recorded(ctx, job); err != nil || !out.waits() {
			return out, err
		}
	}
	l.acknowledged(ctx, m, job, supervisor.Progress{Status: hero.TransportDelivered, Acknowledged: true})
	return end{}, nil
}

// recorded reads the end in the job's hash, if there is one.
func (l *contextLoop) recorded(ctx context.Context, job hero.Job) (end, error) {
	now, err := l.DB.Job(ctx, l.Context, job.CallerID, job.ID)
	if err != nil || !now.Status.Ended() {
		return end{}, err
	}
	return recordedEnd(now), nil
}
