package router

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda/hero"
	"edda/hero/list"
	"edda/internal/backoff"
)

// msgInCoordinator is the processing list of the job messages in msg_in, as
// msg_out_coordinator is that of msg_out.
const msgInCoordinator = "msg_in_coordinator"

// msgOutBroken holds the keys of messages that cannot be read. An operator looks at them.
const msgOutBroken = "msg_out_broken"

// contextLoop routes the messages of one context: outgoing, incoming and waiting ones.
type contextLoop struct {
	*list.Loop
	r       *Router
	workers *list.Workers // deliver messages
	// Used only by watch: the offsets of its next look at waiting messages and jobs.
	watched, released int64

	mu       sync.Mutex               // guards inFlight
	inFlight map[string]chan struct{} // keys that are being delivered; closed at the end
}

// whatRetries names the steps that are repeated until they succeed, in the log.
const whatRetries = "router: deliver a message"

// at makes the loop of a context without running it.
func (r *Router) at(context uint32) (*contextLoop, error) {
	l, err := list.NewLoop(r.db, context, newRetry(), r.o.Log, whatRetries)
	return &contextLoop{Loop: l, r: r}, err
}

// run routes the context's messages until ctx ends, and then until all deliveries have
// stopped.
func (r *Router) run(ctx context.Context, loop *list.Loop) {
	l := &contextLoop{Loop: loop, r: r, workers: list.NewWorkers(r.o.Concurrency), inFlight: map[string]chan struct{}{}}
	var loops sync.WaitGroup
	loops.Go(func() { l.consumer(ctx, hero.MsgOut, hero.MsgOutCoordinator, false).Run(ctx, ctx) })
	loops.Go(func() { l.inbound(ctx) })
	loops.Go(func() { l.Every(ctx, r.o.Watch, "router: watch local jobs", l.watch) })
	loops.Go(func() { l.strays(ctx) })
	loops.Go(func() { l.measure(ctx) })
	loops.Wait()
	l.workers.Close()
}

// delivery is one key of a message, outgoing or inbound.
type delivery struct {
	key     string
	from    string // the processing list, which holds the key until the message has its fate
	inbound bool
}

// consumer delivers the messages of a list.
func (l *contextLoop) consumer(ctx context.Context, from, into string, inbound bool) *list.Consumer {
	return l.Consumer(from, into, takeWait, l.workers, func(key string) {
		l.r.metrics.inFlight.Inc()
		defer l.r.metrics.inFlight.Dec()
		defer l.alone(key)()
		_ = l.Retry.Do(ctx, "deliver "+key, func(ctx context.Context) error {
			if err := l.deliver(ctx, delivery{key, into, inbound}); err != nil {
				return err
			}
			l.r.o.at("before done", key)
			return l.DB.Done(ctx, l.Context, into, key)
		})
	})
}

// alone locks a key: a key that was pushed twice is delivered twice, one after the other.
// The caller must call release.
func (l *contextLoop) alone(key string) (release func()) {
	mine := make(chan struct{})
	for {
		l.mu.Lock()
		other, taken := l.inFlight[key]
		if !taken {
			l.inFlight[key] = mine
		}
		l.mu.Unlock()
		if !taken {
			break
		}
		<-other
	}
	return func() {
		l.mu.Lock()
		delete(l.inFlight, key)
		l.mu.Unlock()
		close(mine)
	}
}

func newRetry() backoff.Exponential {
	return backoff.Exponential{First: firstPause, Most: lastPause}
}

// deliver gives one message its fate, or has it wait for a runner. After an error the
// caller delivers again.
func (l *contextLoop) deliver(ctx context.Context, d delivery) error {
	began := time.Now()
	caller, id, err := hero.ParseMessageKey(d.key)
	if err != nil {
		return l.setAside(ctx, d.key, err)
	}
	m, err := l.DB.Message(ctx, l.Context, caller, id)
	switch {
	case err != nil && absent(err) == nil:
		return l.setAside(ctx, d.key, err)
	case err != nil:
		return err
	case m.Status.Ended():
		l.r.metrics.done(m.MessageType, fateDuplicate)
		return nil
	}
	if !d.inbound && m.MessageType != hero.MessageResult && (m.Origin != "" || m.Via != "") {
		// Only a message that arrived may say where it comes from, and so where its result goes.
		m.Origin, m.Via = "", ""
		if err := l.note(ctx, d.key, "origin", "", "via", ""); err != nil {
			return err
		}
	}
	if allowed, err := l.allowed(ctx, d, m); err != nil || !allowed {
		return err
	}
	l.r.o.at("permitted", d.key)
	switch m.MessageType {
	case hero.MessageJob:
		err = l.jobs(ctx, d, m)
	case hero.MessageResult:
		err = l.result(ctx, m)
	case hero.MessageChat, hero.MessageMail:
		err = l.post(ctx, m)
	default:
		err = l.fail(ctx, m, fateError, fmt.Sprintf("message_type %.40q is none of job, chat, mail and result", m.MessageType))
	}
	if err == nil {
		l.r.metrics.timed(m.MessageType, began)
	}
	return err
}

// setAside moves a key without a readable message to msgOutBroken. The hash, if there is
// one, is left as it is.
func (l *contextLoop) setAside(ctx context.Context, key string, why error) error {
	l.Log.Error("router: key set aside in "+msgOutBroken+": it names no readable message", zap.String("key", key), zap.Error(why))
	l.r.metrics.done("", fateBroken)
	return l.DB.Push(ctx, l.Context, msgOutBroken, key)
}

// allowed checks the caller's right. It refuses a message without the right, which ends
// then.
func (l *contextLoop) allowed(ctx context.Context, d delivery, m hero.Message) (bool, error) {
	c, err := l.DB.Context(ctx, l.Context)
	if err != nil && absent(err) == nil {
		return false, l.fail(ctx, m, fateError, fmt.Sprintf("context %d cannot be read: %v", l.Context, err))
	}
	if err != nil {
		return false, err
	}
	why := permit(c, m)
	if why == nil {
		return true, nil
	}
	if m.MessageType == hero.MessageResult { // the right was checked when the message that it answers was sent
		asked, ok, err := l.asked(ctx, m.ReplyTo)
		if err != nil || ok && asked.CallerID == m.CallerID {
			return err == nil, err
		}
	}
	l.Log.Warn("router: message refused", zap.String("key", m.Key()), zap.Error(why))
	return false, l.refuse(ctx, m, why.Error())
}

// permit decides whether the message's caller may send it from the context. Jobs and
// results need the right to run jobs there, and only an admin sends jobs in another
// actor's name. Chat and mail need the right to read. nil means yes.
func permit(c hero.Context, m hero.Message) error {
	switch m.MessageType {
	case hero.MessageJob, hero.MessageResult:
		if !c.MayExecute(m.CallerID) {
			return denied(c, m, "is neither admin nor executor")
		}
	case hero.MessageChat, hero.MessageMail:
		if !c.MayRead(m.CallerID) {
			return denied(c, m, "is no admin, executor or reader")
		}
	}
	for _, j := range m.Job {
		if m.MessageType == hero.MessageJob && j.CallerID != 0 && j.CallerID != m.CallerID && !c.MayAdmin(m.CallerID) {
			return denied(c, m, fmt.Sprintf("may not send job %d of actor %d", j.ID, j.CallerID))
		}
	}
	return nil
}

// deniedPrefix begins the reason of every message that was not allowed.
const deniedPrefix = "permission denied"

func denied(c hero.Context, m hero.Message, why string) error {
	return fmt.Errorf(deniedPrefix+": actor %d %s in context %d", m.CallerID, why, c.ID)
}

// measure sets the gauges of waiting messages and of runners with a heartbeat.
func (l *contextLoop) measure(ctx context.Context) {
	gauges := l.r.metrics.of(l.Context)
	defer gauges.release()
	l.Every(ctx, l.r.o.Look, "router: measure", func(ctx context.Context) error {
		n, err := l.DB.Depth(ctx, l.Context, hero.MsgOut)
		if err != nil {
			return err
		}
		gauges.waiting(float64(n))
		runners, err := l.runners(ctx, false)
		if err != nil {
			return err
		}
		keys := make([]string, len(runners))
		for i, r := range runners {
			keys[i] = hero.RunnerAliveKey(r.ID)
		}
		n = 0
		if len(keys) > 0 {
			n, err = l.Redis.Exists(ctx, keys...).Result()
		}
		if err == nil {
			gauges.living(float64(n))
		}
		return err
	})
}
