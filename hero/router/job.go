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
	status hero.JobStatus // finished or error; none while a runner has it
	result map[string]string
	// broken says why the message did not get through: the job may never have run.
	broken string
	// kept: the job's hash is the source of this, so it need not be written there.
	kept bool
}

// takenID is the end of a job whose id is another's, whose hash stays as it is.
func takenID(job hero.Job) end {
	out := broke("%s exists and is another job: choose a new id", job.Key())
	out.kept = true
	return out
}

func (e end) waits() bool { return e.status == "" }

// broke is the end of a job whose message did not get through.
func broke(format string, args ...any) end {
	why := fmt.Sprintf(format, args...)
	return end{status: hero.JobError, result: map[string]string{hero.ResultError: why}, broken: why}
}

// jobs delivers the jobs of a message.
func (l *contextLoop) jobs(ctx context.Context, j delivery, m hero.Message) error {
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
	if err != nil {
		if errors.Is(err, edda.Permanent) {
			return l.refuse(ctx, j, m, err.Error())
		}
		return err
	}
	var g errgroup.Group
	g.SetLimit(perMessage)
	for _, r := range routes {
		g.Go(func() error { return l.deliverJob(ctx, j, m, r) })
	}
	return g.Wait()
}

// jobRoutes are the message's jobs. Those that it only names are loaded.
func (l *contextLoop) jobRoutes(ctx context.Context, m hero.Message) ([]jobRoute, error) {
	list, err := wanted(m)
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "%w", err)
	}
	for i, e := range list {
		if e.loaded() {
			continue
		}
		list[i].job, err = l.r.db.Job(ctx, l.context, m.CallerID, e.job.ID)
		if errors.Is(err, redisdb.ErrNotFound) || errors.Is(err, edda.Permanent) {
			return nil, edda.Classify(edda.Permanent, "job %d is neither in the message nor in the context: %w", e.job.ID, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// deliverJob delivers one job and settles it, unless a runner has it now.
func (l *contextLoop) deliverJob(ctx context.Context, j delivery, m hero.Message, e jobRoute) error {
	job := e.complete(m, l.context)
	if done, err := l.ended(ctx, m, job.ID); err != nil || done {
		return errors.Join(err, l.conclude(ctx, m))
	}
	out, err := l.bring(ctx, j, m, job, e.url)
	if err != nil || out.waits() {
		return err
	}
	if err := l.r.o.at("answered", m.Key()); err != nil {
		return err
	}
	return l.retry.Do(ctx, fmt.Sprintf("settle job %d of %s", job.ID, m.Key()), func(ctx context.Context) error { return l.settle(ctx, m, job, out, answered) })
}

// bring delivers the job to its context, its queue or its supervisor.
func (l *contextLoop) bring(ctx context.Context, j delivery, m hero.Message, job hero.Job, url string) (end, error) {
	if job.ContextID != l.context && !j.inbound {
		out, done, err := l.toOtherContext(ctx, m, job, url)
		if err != nil || done {
			return out, err
		}
	}
	job, out, elsewhere, err := l.ensure(ctx, m, job)
	if err != nil || elsewhere {
		return out, err
	}
	if j.inbound && url == "" {
		return l.queue(ctx, m, job)
	}
	return l.callTarget(ctx, m, job, url)
}

// ensure writes the hash of a job that was only in the message, so that its end has a
// place, and returns the job as it is there. The jobs of a flow have theirs. One job id
// is one job: elsewhere tells that out is all that becomes of the job here, because
// another job has the id, it has ended, or another message has it under way.
func (l *contextLoop) ensure(ctx context.Context, m hero.Message, job hero.Job) (_ hero.Job, out end, elsewhere bool, err error) {
	if m.FlowID != 0 || job.ContextID != l.context {
		return job, end{}, false, nil
	}
	now, err := l.claim(ctx, m, job)
	switch {
	case errors.Is(err, errOther):
		return job, takenID(job), true, nil
	case errors.Is(err, edda.Permanent):
		return job, end{}, false, nil // it is broken: its runner will say so
	case err != nil:
		return job, end{}, false, err
	case now.Status.Ended() && (now.Status == hero.JobFinished || max(job.Attempt, 1) <= max(now.Attempt, 1)):
		return job, end{status: now.Status, result: now.Result, kept: true}, true, nil
	case now.MessageKey != m.Key():
		return job, end{}, true, l.expect(ctx, m, job)
	}
	job.Retries, job.Dependends, job.Prerequisites, job.Met = now.Retries, now.Dependends, now.Prerequisites, now.Met
	return job, end{}, false, nil
}

// errOther: another job has the id.
var errOther = errors.New("another job has the id")

// claim has the message carry the job, unless another message does that is still under
// way, or a flow. It returns the job as it is.
func (l *contextLoop) claim(ctx context.Context, m hero.Message, job hero.Job) (hero.Job, error) {
	free := "" // the message that carried it before, and does no more
	now, err := l.r.db.Job(ctx, l.context, job.CallerID, job.ID)
	if err == nil && now.MessageKey != "" && now.MessageKey != m.Key() {
		other, there, err := l.asked(ctx, l.context, now.MessageKey)
		if err != nil {
			return now, err
		}
		if !there || other.Status.Ended() {
			free = now.MessageKey
		}
	}
	other := false
	now, err = l.r.db.ClaimJob(ctx, job, func(was hero.Job) bool {
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

// callTarget finds a target and calls it; while there is none, or none can be reached,
// it looks again until the message's timeout.
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
			l.r.markUnreachable(l.context, t.runner)
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

// gate holds a job back that waits for others, before it goes to a supervisor: the
// message comes again by msg_out when the job may go. Local queues do it themselves.
func (l *contextLoop) gate(ctx context.Context, m hero.Message, job hero.Job) (out end, held bool, err error) {
	if job.ContextID != l.context {
		return end{}, false, nil
	}
	g, why, err := l.r.db.Gate(ctx, l.context, job)
	switch {
	case err != nil || !job.Waits():
		return end{}, false, err
	case g != redisdb.GateClosed:
		if err := l.r.db.Unhold(ctx, l.context, job.Key()); err != nil {
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
	return end{}, true, l.r.db.Hold(ctx, l.context, job, m.Key(), hero.MsgOut, "")
}

// over tells whether a flow's job is obsolete before a runner has it: the
// flow was cancelled while a supervisor was looked for, an executor told its end, or
// a later attempt is under way.
func (l *contextLoop) over(ctx context.Context, m hero.Message, job hero.Job) (out end, over bool, err error) {
	if m.FlowID == 0 {
		return end{}, false, nil
	}
	now, err := l.r.db.Work(ctx, l.context, job.CallerID, job.ID)
	switch {
	case err != nil:
		return end{}, false, absent(err) // the runner of a broken job says so
	case now.FlowID != m.FlowID:
		return end{}, false, nil
	case m.Attempt != 0 && now.Attempt > m.Attempt:
		return broke("attempt %d is under way", now.Attempt), true, nil
	case now.Status.Ended():
		return end{status: now.Status, result: now.Result, kept: true}, true, nil
	case now.Stop:
		return broke("%v", errStopped), true, nil
	}
	return end{}, false, nil
}

// target decides where the job goes: where an earlier try took it, else the
// node's URL, else one of the context's runners. again tells that it was there
// before. An error that is Permanent may still pass, when a runner registers.
func (l *contextLoop) target(ctx context.Context, m hero.Message, job hero.Job, url string) (t target, again bool, err error) {
	t, again, err = l.targetAmong(ctx, m, job, url, false)
	if err == nil && t.way != byQueue && t.runner == 0 { // the runner that lends its secret may be new
		if is, err := l.outdated(ctx); err != nil || !is {
			return t, again, err
		}
		return l.targetAmong(ctx, m, job, url, false)
	}
	if err == nil || !errors.Is(err, edda.Permanent) {
		return t, again, err
	}
	return l.targetAmong(ctx, m, job, url, true) // a runner may be new
}

func (l *contextLoop) targetAmong(ctx context.Context, m hero.Message, job hero.Job, url string, anew bool) (t target, again bool, err error) {
	runners, err := l.runners(ctx, anew)
	if err != nil && (!errors.Is(err, edda.Permanent) || len(runners) == 0) {
		return target{}, false, err
	}
	before, err := l.routed(ctx, m, job.ID)
	if err != nil {
		return target{}, false, err
	}
	switch {
	case before != "":
		t, err = remembered(before, runners)
		again = true
	case url != "":
		t, err = byURL(url, runners)
	default:
		dead := func(id uint32) bool { return l.r.isUnreachable(l.context, id) }
		r, ok := pick(job, runners, dead, l.r.next(l.context, job.Executor))
		if !ok {
			return target{}, false, edda.Classify(edda.Permanent, "no runner of context %d fits %s jobs: register one, or give the node a supervisor_url", l.context, job.Executor)
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

// to takes the job to one target. unsent says that the target was certainly not
// reached: another may be tried.
func (l *contextLoop) to(ctx context.Context, m hero.Message, job hero.Job, t target, again bool) (out end, unsent, err error) {
	if t.way == byQueue {
		out, err = l.queue(ctx, m, job)
		return out, nil, err
	}
	client, id := l.r.client(t), ""
	if !again {
		id = client.NewID()
		if err := l.route(ctx, m, job.ID, t, id); err != nil {
			return end{}, nil, err
		}
	}
	if err := l.r.o.at("routed", m.Key()); err != nil {
		return end{}, nil, err
	}
	out, unsent, err = l.call(ctx, m, job, t, client, id)
	if unsent == nil {
		return out, nil, err
	}
	return end{}, unsent, l.unroute(ctx, m, job.ID)
}

// queue puts the job into the local queue of its type, once, and has it watched.
func (l *contextLoop) queue(ctx context.Context, m hero.Message, job hero.Job) (end, error) {
	job.ContextID = l.context
	if err := l.expect(ctx, m, job); err != nil {
		return end{}, err
	}
	verdict, err := supervisor.Enqueue(ctx, l.r.db, job, job.ScriptType.Queue(), time.Time{})
	if errors.Is(err, edda.Permanent) {
		return broke("%v", err), nil
	}
	if err != nil {
		return end{}, err
	}
	if err := l.r.o.at("queued", m.Key()); err != nil {
		return end{}, err
	}
	if verdict == supervisor.Other {
		return takenID(job), nil
	}
	if verdict == supervisor.Known || verdict == supervisor.Failed {
		if out, err := l.recorded(ctx, job); err != nil || !out.waits() {
			return out, err
		}
	}
	l.acknowledged(ctx, m, job, supervisor.Progress{Status: hero.TransportDelivered, Acknowledged: true})
	return end{}, nil
}

// recorded is the end that the job's hash tells of, if it does.
func (l *contextLoop) recorded(ctx context.Context, job hero.Job) (end, error) {
	now, err := l.r.db.Job(ctx, l.context, job.CallerID, job.ID)
	if err != nil || !now.Status.Ended() {
		return end{}, err
	}
	return end{status: now.Status, result: now.Result, kept: true}, nil
}
