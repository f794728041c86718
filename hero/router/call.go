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

// Why waiting for a supervisor ended.
var (
	errNoAck    = errors.New("timeout_ack")
	errNoResult = errors.New("timeout_result")
	errStopped  = errors.New("stopped: it was asked to end")
	errTold     = errors.New("its end is told in its hash")
	errAnswered = errors.New("its end is known")
	errLost     = errors.New("the supervisor had it and does not know it any more")
)

// settleWithin bounds the wait for the replies that lay in Mycelium when the router
// began: Mycelium may be away.
const settleWithin = 10 * time.Second

// call has a supervisor run the job and waits for its end. Without an id it may have
// the job already, so that first the reply is looked for that may have waited
// meanwhile, and then the supervisor is asked. The job is sent once more only when the transport
// gave it up or the supervisor says that it has no such job.
//
// id is that of the first request where this is not again; it is noted already.
func (l *contextLoop) call(ctx context.Context, m hero.Message, job hero.Job, t target, client *supervisor.Client, id string) (out end, unsent, err error) {
	k := l.patience(ctx, m, job, t, client)
	defer k.stop()
	unsure, waits := id == "", false
	if unsure {
		request, err := l.requested(ctx, m, job.ID)
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
				<-k.ctx.Done() // the reply is all that can tell
			}
			if over, ok := k.over(ctx, err); ok {
				return over, nil, ctx.Err()
			}
			if err != nil || k.travels() {
				continue
			}
			if said := k.said(); said != "" && (k.missing.Load() || time.Now().After(refusals)) {
				return broke("the supervisor refused: %s", said), nil, nil
			}
		}
		if id == "" {
			id = client.NewID()
			if err := l.request(ctx, m, job.ID, id); err != nil {
				return end{}, nil, err
			}
		}
		status, result, err := k.run(id)
		id = ""
		if err == nil {
			return end{status: status, result: result}, nil, nil
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

// transportState is where Mycelium has the message that carried the job, if that is known.
func (k *patience) transportState() mycelium.State {
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

// travels tells whether Mycelium still has the message under way: a supervisor that does
// not know the job may yet receive it.
func (k *patience) travels() bool {
	state := k.transportState()
	return state == mycelium.StatePending || state == mycelium.StateSending
}

// ask follows a job that the supervisor may have, to its end. known is false
// when it has no such job.
func (k *patience) ask() (out end, known bool, err error) {
	k.following.Store(true)
	defer k.following.Store(false)
	for every := firstAsk; ; every = min(every*3/2, lastAsk) {
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
		if backoff.Wait(k.ctx, every) != nil {
			return end{}, false, k.ctx.Err()
		}
	}
}

// endOfJob asks where a job stands, and for its end where it has one.
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

// patience is how long one call is waited for, and what is seen of it meanwhile.
type patience struct {
	l         *contextLoop
	m         hero.Message
	job       hero.Job
	t         target
	client    *supervisor.Client
	ctx       context.Context
	cancel    context.CancelCauseFunc
	timer     *time.Timer
	acked     atomic.Bool
	following atomic.Bool         // the caller asks by itself
	told      atomic.Pointer[end] // the end that the job's hash or the supervisor told of
	begun     atomic.Bool         // the flow was told that it runs, or needs not be
	// messageID is the transport's, a string: of this run, or of one before.
	messageID atomic.Value
	answer    atomic.Value // a string: what the supervisor itself said to job.run, where that was an error
	missing   atomic.Bool  // which was that something is not there: it did not run the job
	lost      atomic.Pointer[context.CancelCauseFunc]
	seenAt    chan supervisor.Progress
	working   sync.WaitGroup // what notes, and what waits for an earlier reply
}

// seenBound is more than the states that one message goes through.
const seenBound = 16

func (l *contextLoop) patience(ctx context.Context, m hero.Message, job hero.Job, t target, client *supervisor.Client) *patience {
	k := &patience{l: l, m: m, job: job, t: t, client: client, seenAt: make(chan supervisor.Progress, seenBound)}
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	k.begun.Store(m.FlowID == 0 || l.r.o.Flows == nil)
	result := resultWithin(m, job)
	k.timer = time.AfterFunc(result, func() { k.cancel(fmt.Errorf("%w: no result within %s", errNoResult, result)) })
	if list, err := wanted(m); m.TransportID != "" && err == nil && len(list) == 1 { // else it may be another job's
		k.messageID.Store(m.TransportID)
	}
	k.working.Go(k.note)
	return k
}

// resultWithin is how long a result may take: as the message says, else as long as
// the job may wait and then run.
func resultWithin(m hero.Message, job hero.Job) time.Duration {
	if m.TimeoutResult > 0 {
		return time.Duration(m.TimeoutResult) * time.Second
	}
	waits := job.WaitsAtMost()
	if job.Waits() { // for others and for prerequisites first, and then in a queue
		waits *= 2
	}
	return waits + seconds(job.Timeout, defaultResult) + grace
}

// resume looks for the reply to the call of an earlier process, among those that came
// while nobody was there, and goes on waiting for it. waits is false where that may be
// in vain: the // message may never have been pushed.
func (k *patience) resume(request string) (waits bool) {
	id, _ := k.messageID.Load().(string)
	if request == "" && id == "" {
		return false
	}
	ctx, done := context.WithTimeout(k.ctx, settleWithin)
	defer done()
	status, result, err := k.client.Resume(ctx, request, id, true)
	if err == nil {
		k.answered(end{status: status, result: result})
		return false
	}
	k.heard(err)
	k.working.Go(func() {
		status, result, err := k.client.Resume(k.ctx, request, id, false)
		if err == nil {
			k.answered(end{status: status, result: result})
		}
	})
	return id != ""
}

// answered ends the waiting with an end that is known.
func (k *patience) answered(out end) {
	k.told.Store(&out)
	k.cancel(errAnswered)
}

// run calls job.run; it is broken off where the supervisor turns out to have lost the job.
func (k *patience) run(id string) (hero.JobStatus, map[string]string, error) {
	ctx, cancel := context.WithCancelCause(k.ctx)
	defer cancel(nil)
	k.lost.Store(&cancel)
	defer k.lost.Store(nil)
	status, result, err := k.client.Run(ctx, id, k.job, k.seen)
	k.heard(err)
	k.missing.Store(supervisor.Missing(err))
	return status, result, err
}

// heard keeps what the supervisor itself said.
func (k *patience) heard(err error) {
	if said, ok := supervisor.Said(err); ok {
		k.answer.Store(said)
	}
}

// said is what the supervisor itself said last, if it did.
func (k *patience) said() string {
	said, _ := k.answer.Load().(string)
	return said
}

// seen takes what the transport tells; it never blocks it.
func (k *patience) seen(p supervisor.Progress) {
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

// note writes down what was seen, in order, and looks meanwhile whether the job is
// still wanted and whether its reply was lost.
func (k *patience) note() {
	look := time.NewTicker(k.l.r.o.Watch)
	defer look.Stop()
	ack := seconds(k.m.TimeoutAck, defaultAck)
	late := time.NewTimer(ack)
	defer late.Stop()
	q := &question{k: k, every: k.l.r.o.Watch, next: time.Now().Add(k.l.r.o.Watch)}
	told := false
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-late.C:
			// The news that it was read may be lost, and the job not.
			if !k.acked.Load() && !q.known() {
				k.cancel(fmt.Errorf("%w: nobody acknowledged it within %s", errNoAck, ack))
				return
			}
		case <-look.C:
			if k.unwanted() {
				return
			}
			if told && !k.following.Load() {
				q.ask()
			}
		case p := <-k.seenAt:
			if p.Acknowledged && told && p.MessageID == "" {
				continue
			}
			k.l.acknowledged(k.ctx, k.m, k.job, p)
			told = told || p.Acknowledged
		}
	}
}

// question asks the supervisor where the job stands while its reply is waited for,
// less and less often: the reply may be lost.
type question struct {
	k       *patience
	every   time.Duration
	next    time.Time
	knew    bool // it once had the job
	unknown int  // answers since then that it has no such job
	vain    bool // it cannot say
}

// lostAfter is how many answers in a row that it has no such job mean that a
// supervisor which had it lost it. One that never knew the job is believed nothing: it
// may know only those that it was asked to store.
const lostAfter = 3

// ask asks if it is time to.
func (q *question) ask() {
	if q.vain || time.Now().Before(q.next) {
		return
	}
	_ = q.known()
	q.every = min(2*q.every, lastAsk)
	q.next = time.Now().Add(q.every)
}

// known asks now, and tells whether the supervisor has the job.
func (q *question) known() bool {
	k := q.k
	ctx, done := context.WithTimeout(k.ctx, askWithin)
	defer done()
	out, status, err := endOfJob(ctx, k.client, k.job)
	switch {
	case errors.Is(err, supervisor.ErrUnknownJob):
		if q.unknown++; q.knew && q.unknown >= lostAfter {
			if lost := k.lost.Load(); lost != nil {
				(*lost)(errLost)
			}
			q.knew, q.unknown = false, 0
		}
		return false
	case errors.Is(err, edda.Permanent):
		q.vain = true
		return false
	case err != nil:
		return false
	}
	q.knew, q.unknown = true, 0
	k.acked.Store(true)
	if !out.waits() {
		k.answered(out)
	}
	if status == hero.JobStarted {
		k.running(ctx)
	}
	return true
}

// running tells the flow, once, that the job's runner began: its timeout counts from then.
func (k *patience) running(ctx context.Context) {
	if !k.begun.Load() && k.l.r.o.Flows.Report(ctx, k.l.reportOf(k.m, k.job, hero.NodeRunning, nil)) == nil {
		k.begun.Store(true)
	}
}

// unwanted ends the waiting for a job that nobody waits for any more while a
// supervisor has it: its flow was cancelled or gave the attempt up, a later one is
// under way, or its end is told in its hash.
func (k *patience) unwanted() bool {
	if k.job.ContextID != k.l.context {
		return false
	}
	out, over, err := k.l.over(k.ctx, k.m, k.job)
	if err != nil || !over {
		return false
	}
	if out.kept {
		k.told.Store(&out)
		k.cancel(errTold)
		return true
	}
	k.cancel(errors.New(out.broken))
	return true
}

// stop ends the waiting, and waits for what works for it.
func (k *patience) stop() {
	k.timer.Stop()
	k.cancel(nil)
	k.working.Wait()
}

// lastWords bounds asking a supervisor for a job's end, and to stop it, when it is
// waited for no longer.
const lastWords = 2 * time.Second

// over tells whether an error ends the call, and as what.
func (k *patience) over(ctx context.Context, err error) (end, bool) {
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

// lastly is the end of a job that is waited for no longer. Where it only took too long
// the supervisor is asked once more: its reply may be lost.
func (k *patience) lastly(ctx context.Context, cause error) end {
	ctx, done := context.WithTimeout(ctx, lastWords)
	defer done()
	if errors.Is(cause, errNoAck) || errors.Is(cause, errNoResult) {
		if out, _, err := endOfJob(ctx, k.client, k.job); err == nil && !out.waits() {
			return out
		}
	}
	_ = k.client.Stop(ctx, k.job) // it may not hear; whoever tries again must bear that
	if told := k.told.Load(); told != nil {
		return *told
	}
	return k.broke("%v", cause)
}

// broke is the end of a job whose message did not get through, with what the
// supervisor itself said of it.
func (k *patience) broke(format string, args ...any) end {
	why := fmt.Sprintf(format, args...)
	if said := k.said(); said != "" && !strings.Contains(why, said) {
		why += "; the supervisor said: " + said
	}
	return broke("%s", why)
}
