package router

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"edda"
	"edda/hero"
	"edda/hero/mycelium"
	"edda/hero/supervisor"
	"edda/internal/backoff"
)

// Causes that end the wait for a supervisor.
var (
	errNoAck    = errors.New("timeout_ack")
	errNoResult = errors.New("timeout_result")
	errStopped  = errors.New("stopped: it was asked to end")
	errTold     = errors.New("its end is told in its hash")
	errAnswered = errors.New("its end is known")
	errLost     = errors.New("the supervisor had it and does not know it any more")
)

// settleWithin bounds the wait for replies that Mycelium held when the router started,
// because Mycelium may be down.
const settleWithin = 10 * time.Second

// call has a supervisor run the job and waits for its end.
//
// id is the id of the first request, which is noted in the message. It is empty where an
// earlier process may have sent the job. Then call waits for the reply to that request,
// and asks the supervisor. It sends the job again only when the transport gave it up or
// the supervisor says that it has no such job.
func (l *contextLoop) call(ctx context.Context, m hero.Message, job hero.Job, t target, client *supervisor.Client, id string) (out end, unsent, err error) {
	k := l.newPendingCall(ctx, m, job, t, client)
	defer func() {
		k.timer.Stop()
		k.cancel(nil)
		k.working.Wait()
	}()
	unsure, waits := id == "", false
	if unsure {
		request, err := l.noted(ctx, m, calledAs, job.ID)
		if err != nil {
			return end{}, nil, err
		}
		waits = t.way == byMycelium && k.resume(request)
	}
	refusals := time.Now().Add(seconds(m.Timeout, defaultTimeout))
	for p := newRetry(); ; _ = backoff.Wait(k.ctx, p.Next()) {
		if unsure {
			out, known, err := k.ask()
			if err == nil && known {
				return out, nil, nil
			}
			if waits && errors.Is(err, supervisor.ErrNoMethod) {
				if k.transportState() == mycelium.StateAborted {
					unsure = false
					continue
				}
				<-k.ctx.Done() // only the reply can tell
			}
			if over, ok := k.over(ctx, err); ok {
				return over, nil, ctx.Err()
			}
			// A message that is still under way may reach a supervisor that does not know the job.
			if state := k.transportState(); err != nil || state == mycelium.StatePending || state == mycelium.StateSending {
				continue
			}
			if said := k.said(); said != "" && (k.missing.Load() || time.Now().After(refusals)) {
				return broke("the supervisor refused: %s", said), nil, nil
			}
		}
		if id == "" {
			id = client.NewID()
			if err := l.note(ctx, m.Key(), numbered(calledAs, job.ID), id); err != nil {
				return end{}, nil, err
			}
		}
		out, err := k.run(id)
		id = ""
		if err == nil {
			return out, nil, nil
		}
		if over, ok := k.over(ctx, err); ok {
			return over, nil, ctx.Err()
		}
		if errors.Is(err, supervisor.ErrUnsent) {
			return end{}, err, nil
		}
		unsure = true
	}
}

// transportState asks Mycelium for the state of the message that carried the job; empty
// where it is unknown.
func (k *pendingCall) transportState() mycelium.State {
	id, _ := k.messageID.Load().(string)
	if k.t.way != byMycelium || id == "" || k.l.r.o.State == nil {
		return ""
	}
	state, err := k.l.r.o.State(k.ctx, id)
	if err != nil {
		return "" // nothing follows from it
	}
	return state
}

// ask follows a job that the supervisor may have to its end. known is false when the
// supervisor has no such job.
func (k *pendingCall) ask() (out end, known bool, err error) {
	k.following.Store(true)
	defer k.following.Store(false)
	for asks := (backoff.Exponential{First: firstAsk, Most: lastAsk}); ; {
		out, status, err := endOfJob(k.ctx, k.client, k.job)
		switch {
		case errors.Is(err, supervisor.ErrUnknownJob):
			return end{}, false, nil
		case err != nil:
			return end{}, false, err
		case !out.waits():
			return out, true, nil
		}
		k.seen(supervisor.Progress{Status: hero.TransportRead, Acknowledged: true})
		if status == hero.JobStarted {
			k.running(k.ctx)
		}
		if err := backoff.Wait(k.ctx, asks.Next()); err != nil {
			return end{}, false, err
		}
	}
}

// endOfJob asks for a job's status, and for its end where it has ended.
func endOfJob(ctx context.Context, c *supervisor.Client, job hero.Job) (end, hero.JobStatus, error) {
	status, err := c.Status(ctx, job)
	if err != nil || !status.Ended() {
		return end{}, status, err
	}
	status, result, err := c.Result(ctx, job)
	if err != nil {
		return end{}, "", err
	}
	return end{status: status, result: result}, status, nil
}

// pendingCall is a job.run that waits for its answer.
type pendingCall struct {
	l         *contextLoop
	m         hero.Message
	job       hero.Job
	t         target
	client    *supervisor.Client
	ctx       context.Context
	cancel    context.CancelCauseFunc
	timer     *time.Timer         // of timeout_result
	acked     atomic.Bool         // the supervisor has read the message
	following atomic.Bool         // ask is under way
	told      atomic.Pointer[end] // the end that the job's hash or the supervisor told
	begun     atomic.Bool         // the flow knows that the job runs, or there is no flow
	messageID atomic.Value        // a string: the transport's id of this run's message, or of an earlier one
	answer    atomic.Value        // a string: the last error that the supervisor itself answered
	missing   atomic.Bool         // that error says that something does not exist: the job did not run
	lost      atomic.Pointer[context.CancelCauseFunc]
	seenAt    chan supervisor.Progress
	working   sync.WaitGroup // watch, and the wait for an earlier reply

	// Used only by watch.
	knew    bool // the supervisor once had the job
	unknown int  // its answers since then that it has no such job
	mute    bool // it cannot say
}

// seenBound exceeds the number of states that one message goes through.
const seenBound = 16

func (l *contextLoop) newPendingCall(ctx context.Context, m hero.Message, job hero.Job, t target, client *supervisor.Client) *pendingCall {
	k := &pendingCall{l: l, m: m, job: job, t: t, client: client, seenAt: make(chan supervisor.Progress, seenBound)}
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	k.begun.Store(m.FlowID == 0 || l.r.o.Flows == nil)
	result := resultWithin(m, job)
	k.timer = time.AfterFunc(result, func() { k.cancel(fmt.Errorf("%w: no result within %s", errNoResult, result)) })
	if routes, err := routesOf(m); m.TransportID != "" && err == nil && len(routes) == 1 { // else it may be another job's
		k.messageID.Store(m.TransportID)
	}
	k.working.Go(k.watch)
	return k
}

// resultWithin is the time that a result may take: the message's timeout_result, else the
// time that the job may wait and then run.
func resultWithin(m hero.Message, job hero.Job) time.Duration {
	if m.TimeoutResult > 0 {
		return time.Duration(m.TimeoutResult) * time.Second
	}
	waits := job.WaitsAtMost()
	if job.Waits() { // first for other jobs and prerequisites, then in a queue
		waits *= 2
	}
	return waits + seconds(job.Timeout, defaultResult) + grace
}

// resume waits for the reply to the request of an earlier process: first among the replies
// that Mycelium held, then in the background. waits is false where the wait may be in
// vain, because the message may never have been sent.
func (k *pendingCall) resume(request string) (waits bool) {
	id, _ := k.messageID.Load().(string)
	if request == "" && id == "" {
		return false
	}
	wait := func(ctx context.Context, only bool) error {
		status, result, err := k.client.Resume(ctx, request, id, only)
		if err == nil {
			k.answered(end{status: status, result: result})
		}
		return err
	}
	ctx, done := context.WithTimeout(k.ctx, settleWithin)
	defer done()
	err := wait(ctx, true)
	if err == nil {
		return false
	}
	k.heard(err)
	k.working.Go(func() { _ = wait(k.ctx, false) })
	return id != ""
}

// answered ends the call with a known end.
func (k *pendingCall) answered(out end) {
	k.told.Store(&out)
	k.cancel(errAnswered)
}

// run calls job.run. It fails with errLost as soon as the supervisor has lost the job.
func (k *pendingCall) run(id string) (end, error) {
	ctx, cancel := context.WithCancelCause(k.ctx)
	defer cancel(nil)
	k.lost.Store(&cancel)
	defer k.lost.Store(nil)
	status, result, err := k.client.Run(ctx, id, k.job, k.seen)
	k.heard(err)
	k.missing.Store(supervisor.Missing(err))
	return end{status: status, result: result}, err
}

// heard keeps an error that the supervisor itself answered.
func (k *pendingCall) heard(err error) {
	if said, ok := supervisor.Said(err); ok {
		k.answer.Store(said)
	}
}

// said returns the last such error, or nothing.
func (k *pendingCall) said() string {
	said, _ := k.answer.Load().(string)
	return said
}

// seen records the progress that the transport reports. It never blocks.
func (k *pendingCall) seen(p supervisor.Progress) {
	if p.Acknowledged {
		k.acked.Store(true)
	}
	if p.MessageID != "" {
		k.messageID.Store(p.MessageID)
	}
	select {
	case k.seenAt <- p:
	default:
	}
}

// watch records the progress in the message, in order. Meanwhile it looks whether the job
// is still wanted, and asks the supervisor less and less often, because the reply may be
// lost.
func (k *pendingCall) watch() {
	look := time.NewTicker(k.l.r.o.Watch)
	defer look.Stop()
	ack := seconds(k.m.TimeoutAck, defaultAck)
	late := time.NewTimer(ack)
	defer late.Stop()
	asks := backoff.Exponential{First: k.l.r.o.Watch, Most: lastAsk}
	next := time.Now().Add(asks.Next())
	recorded := false // the acknowledgement
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-late.C:
			// The acknowledgement may be lost although the job is not.
			if !k.acked.Load() && !k.known() {
				k.cancel(fmt.Errorf("%w: nobody acknowledged it within %s", errNoAck, ack))
				return
			}
		case <-look.C:
			if k.unwanted() {
				return
			}
			if recorded && !k.following.Load() && !k.mute && !time.Now().Before(next) {
				k.known()
				next = time.Now().Add(asks.Next())
			}
		case p := <-k.seenAt:
			if p.Acknowledged && recorded && p.MessageID == "" {
				continue
			}
			k.l.acknowledged(k.ctx, k.m, k.job, p)
			recorded = recorded || p.Acknowledged
		}
	}
}

// lostAfter is the number of consecutive answers "no such job" after which a supervisor
// that had the job has lost it. A supervisor that never knew the job may know only the jobs
// that it was asked to store.
const lostAfter = 3

// known asks the supervisor whether it has the job, and uses what it answers.
func (k *pendingCall) known() bool {
	ctx, done := context.WithTimeout(k.ctx, askWithin)
	defer done()
	out, status, err := endOfJob(ctx, k.client, k.job)
	switch {
	case errors.Is(err, supervisor.ErrUnknownJob):
		if k.unknown++; k.knew && k.unknown >= lostAfter {
			if lost := k.lost.Load(); lost != nil {
				(*lost)(errLost)
			}
			k.knew, k.unknown = false, 0
		}
		return false
	case err != nil:
		k.mute = k.mute || errors.Is(err, edda.Permanent)
		return false
	}
	k.knew, k.unknown = true, 0
	k.acked.Store(true)
	if !out.waits() {
		k.answered(out)
	}
	if status == hero.JobStarted {
		k.running(ctx)
	}
	return true
}

// running tells the flow, once, that the job runs: its timeout begins then.
func (k *pendingCall) running(ctx context.Context) {
	if !k.begun.Load() && k.l.r.o.Flows.Report(ctx, k.l.reportOf(k.m, k.job, hero.NodeRunning, nil)) == nil {
		k.begun.Store(true)
	}
}

// unwanted ends the call where the job's end is of no use any more: its flow was cancelled
// or gave the attempt up, a later attempt runs, or its hash has an end.
func (k *pendingCall) unwanted() bool {
	if k.job.ContextID != k.l.Context {
		return false
	}
	out, over, err := k.l.over(k.ctx, k.m, k.job)
	if err != nil || !over {
		return false
	}
	cause := errTold
	if out.kept {
		k.told.Store(&out)
	} else {
		cause = errors.New(out.broken)
	}
	k.cancel(cause)
	return true
}

// lastWords bounds the requests for a job's end, and to stop it, after the wait has ended.
const lastWords = 2 * time.Second

// over decides whether an error ends the call, and with which end.
func (k *pendingCall) over(ctx context.Context, err error) (end, bool) {
	if k.said() == "" {
		k.heard(err)
	}
	cause := context.Cause(k.ctx)
	switch {
	case ctx.Err() != nil:
		return end{}, true // the router stops; nothing is known yet
	case errors.Is(cause, errAnswered):
		return *k.told.Load(), true
	case cause != nil:
		return k.lastly(ctx, cause), true
	case err == nil:
		return end{}, false
	case errors.Is(err, supervisor.ErrNoMethod) && k.missing.Load():
		return broke("the supervisor refused: %s", k.said()), true
	case errors.Is(err, supervisor.ErrNoMethod):
		return k.broke("the supervisor may have run it and cannot say so: %v", err), true
	case errors.Is(err, edda.Permanent):
		return k.broke("%v", err), true
	}
	return end{}, false
}

// lastly decides the end of a job after the wait has ended. After a timeout it asks the
// supervisor once more, because the reply may be lost.
func (k *pendingCall) lastly(ctx context.Context, cause error) end {
	ctx, done := context.WithTimeout(ctx, lastWords)
	defer done()
	if errors.Is(cause, errNoAck) || errors.Is(cause, errNoResult) {
		if out, _, err := endOfJob(ctx, k.client, k.job); err == nil && !out.waits() {
			return out
		}
	}
	_ = k.client.Stop(ctx, k.job) // best effort: a later attempt may meet a job that still runs
	if told := k.told.Load(); told != nil {
		return *told
	}
	return k.broke("%v", cause)
}

// broke adds to the end of a job whose message did not get through what the supervisor
// itself answered.
func (k *pendingCall) broke(format string, args ...any) end {
	why := fmt.Sprintf(format, args...)
	if said := k.said(); said != "" && !strings.Contains(why, said) {
		why += "; the supervisor said: " + said
	}
	return broke("%s", why)
}
