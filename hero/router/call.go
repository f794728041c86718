package router

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"edda"
	"edda/hero"
	"edda/hero/mycelium"
	"edda/hero/supervisor"
)

// Why waiting for a supervisor ended.
var (
	errNoAck    = errors.New("timeout_ack")
	errNoResult = errors.New("timeout_result")
	errStopped  = errors.New("stopped: it was asked to end")
	errTold     = errors.New("its end is told in its hash")
)

// call has a supervisor run the job and waits for its end. again: it may have the
// job already, so it is asked before anything is sent. The job is sent once more
// only when the transport gave it up or the supervisor says that it has no such job.
func (l *line) call(ctx context.Context, m hero.Message, job hero.Job, t target, again bool) (out end, unsent, err error) {
	k := l.patience(ctx, m, job)
	defer k.stop()
	client := l.r.client(t)
	k.client.Store(client)
	unsure := again
	for p := pause(0); ; sleep(k.ctx, p.next()) {
		if unsure {
			out, known, err := l.ask(k, client, job)
			if err == nil && known {
				return out, nil, nil
			}
			if over, ok := k.over(ctx, client, job, err); ok {
				return over, nil, ctx.Err()
			}
			if err != nil || l.travels(k, t) {
				continue
			}
		}
		status, result, err := client.Run(k.ctx, job, k.seen)
		if err == nil {
			return end{status: status, result: result}, nil, nil
		}
		if over, ok := k.over(ctx, client, job, err); ok {
			return over, nil, ctx.Err()
		}
		if errors.Is(err, supervisor.ErrUnsent) {
			return end{}, err, nil
		}
		unsure = true
	}
}

// travels tells whether Mycelium still has the message under way: a supervisor
// that does not know the job may get it yet.
func (l *line) travels(k *patience, t target) bool {
	id, _ := k.messageID.Load().(string)
	if t.way != byMycelium || id == "" || l.r.o.State == nil {
		return false
	}
	state, err := l.r.o.State(k.ctx, id)
	return err == nil && (state == mycelium.StatePending || state == mycelium.StateSending)
}

// ask follows a job that the supervisor may have, to its end. known is false
// when it has no such job.
func (l *line) ask(k *patience, c *supervisor.Client, job hero.Job) (out end, known bool, err error) {
	for every := firstAsk; ; every = min(2*every, lastAsk) {
		status, err := c.Status(k.ctx, job)
		switch {
		case errors.Is(err, supervisor.ErrUnknownJob):
			return end{}, false, nil
		case err != nil:
			return end{}, false, err
		case status.Ended():
			status, result, err := c.Result(k.ctx, job)
			return end{status: status, result: result}, err == nil, err
		}
		k.seen(supervisor.Progress{Status: hero.TransportRead, Acknowledged: true})
		if !sleep(k.ctx, every) {
			return end{}, false, k.ctx.Err()
		}
	}
}

// patience is how long one call is waited for, and what is seen of it meanwhile.
type patience struct {
	l      *line
	m      hero.Message
	job    hero.Job
	ctx    context.Context
	cancel context.CancelCauseFunc
	timers []*time.Timer
	acked  atomic.Bool
	client atomic.Pointer[supervisor.Client] // whom to ask whether the job began
	told   atomic.Pointer[end]               // the end that the job's hash told of
	// messageID is the transport's, a string: of this run, or of one before.
	messageID atomic.Value
	seenAt    chan supervisor.Progress
	noted     chan struct{} // closed when the noting goroutine ended
}

// seenBound is more than the states that one message goes through.
const seenBound = 16

func (l *line) patience(ctx context.Context, m hero.Message, job hero.Job) *patience {
	k := &patience{l: l, m: m, job: job, seenAt: make(chan supervisor.Progress, seenBound), noted: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	result, ack := resultWithin(m, job), seconds(m.TimeoutAck, defaultAck)
	k.timers = []*time.Timer{
		time.AfterFunc(result, func() { k.cancel(fmt.Errorf("%w: no result within %s", errNoResult, result)) }),
		time.AfterFunc(ack, func() {
			if !k.acked.Load() {
				k.cancel(fmt.Errorf("%w: nobody acknowledged it within %s", errNoAck, ack))
			}
		}),
	}
	if m.TransportID != "" {
		k.messageID.Store(m.TransportID)
	}
	go k.note()
	return k
}

// resultWithin is how long a result may take: as the message says, else as long as
// the job may wait and then run.
func resultWithin(m hero.Message, job hero.Job) time.Duration {
	if m.TimeoutResult > 0 {
		return time.Duration(m.TimeoutResult) * time.Second
	}
	return job.WaitsAtMost() + seconds(job.Timeout, defaultResult) + grace
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

// note writes down what was seen, in order.
func (k *patience) note() {
	defer close(k.noted)
	look := time.NewTicker(k.l.r.o.Watch)
	defer look.Stop()
	told, begun := false, k.m.FlowID == 0 || k.l.r.o.Flows == nil
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-look.C:
			if k.unwanted() {
				return
			}
			begun = begun || told && k.begun()
		case p := <-k.seenAt:
			if p.Acknowledged && told && p.MessageID == "" {
				continue
			}
			k.l.acknowledged(k.ctx, k.m, k.job, p)
			told = told || p.Acknowledged
		}
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

// begunWithin bounds asking whether a job began, which a flow can do without.
const begunWithin = 2 * time.Second

// begun tells the flow once the supervisor says that its runner began: the job's
// timeout counts from then. One that cannot say is asked no more.
func (k *patience) begun() bool {
	c := k.client.Load()
	if c == nil {
		return false
	}
	ctx, done := context.WithTimeout(k.ctx, begunWithin)
	defer done()
	status, err := c.Status(ctx, k.job)
	if err != nil || status != hero.JobStarted {
		return errors.Is(err, supervisor.ErrNoMethod)
	}
	return k.l.r.o.Flows.Report(ctx, k.l.reportOf(k.m, k.job, hero.NodeRunning, nil)) == nil
}

// stop ends the waiting and waits for the note under way.
func (k *patience) stop() {
	for _, t := range k.timers {
		t.Stop()
	}
	k.cancel(nil)
	<-k.noted
}

// stopWithin bounds asking a supervisor to stop a job that is waited for no longer.
const stopWithin = time.Second

// over tells whether an error ends the call, and as what.
func (k *patience) over(ctx context.Context, c *supervisor.Client, job hero.Job, err error) (end, bool) {
	cause := context.Cause(k.ctx)
	switch {
	case ctx.Err() != nil:
		return end{}, true // the router stops; nothing is known yet
	case cause != nil:
		stopping, done := context.WithTimeout(ctx, stopWithin)
		defer done()
		_ = c.Stop(stopping, job) // it may not hear; whoever tries again must bear that
		if told := k.told.Load(); told != nil {
			return *told, true
		}
		return broke("%v", cause), true
	case err == nil:
		return end{}, false
	case errors.Is(err, supervisor.ErrNoMethod):
		return broke("the supervisor may have run it and cannot say so: %v", err), true
	case errors.Is(err, edda.Permanent):
		return broke("%v", err), true
	}
	return end{}, false
}
