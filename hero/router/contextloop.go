package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/list"
	"edda/hero/redisdb"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

// msgInCoordinator keeps the job messages that were taken out of msg_in, as
// msg_out_coordinator does for msg_out.
const msgInCoordinator = "msg_in_coordinator"

// msgOutBroken keeps the keys of messages that cannot be read, for an operator to
// look at.
const msgOutBroken = "msg_out_broken"

// contextLoop is one context's: what goes out, what comes in, and what waits.
type contextLoop struct {
	r       *Router
	context uint32
	log     *zap.Logger
	workers *list.Workers // of the messages that are on their way
	retry   list.Retry
	// Of watch alone: where its next look begins among the messages and the jobs that wait.
	watched, released int64

	mu     sync.Mutex               // guards flying
	flying map[string]chan struct{} // keys under way; closed when done
}

func newContextLoop(r *Router, context uint32) *contextLoop {
	log := r.o.Log.With(zap.Uint32("context", context))
	return &contextLoop{
		r: r, context: context, log: log,
		workers: list.NewWorkers(r.o.Concurrency), retry: list.Retry{Pause: newRetry(), Log: logthrottle.New(log, "router: do what a message needs")},
		flying: map[string]chan struct{}{},
	}
}

// Run carries the context's messages until ctx ends, and waits for those that are
// on their way.
func (l *contextLoop) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { l.consumer(ctx, hero.MsgOut, hero.MsgOutCoordinator, false).Run(ctx, ctx) })
	loops.Go(func() { l.inbound(ctx) })
	loops.Go(func() { l.watch(ctx) })
	loops.Go(func() { l.strays(ctx) })
	loops.Go(func() { l.measure(ctx) })
	loops.Wait()
	l.workers.Close()
}

// journey is one key on its way, out or in.
type journey struct {
	key     string
	from    string // the list that keeps it until it is done
	inbound bool
}

// consumer is one of a list that messages come out of.
func (l *contextLoop) consumer(ctx context.Context, from, into string, inbound bool) *list.Consumer {
	return &list.Consumer{
		DB: l.r.db, Context: l.context, From: from, Into: into, Wait: takeWait, Workers: l.workers, Retry: &l.retry, Log: l.log,
		Work: func(key string) {
			l.r.metrics.flying.Inc()
			defer l.r.metrics.flying.Dec()
			defer l.alone(key)()
			l.carry(ctx, journey{key, into, inbound})
		},
	}
}

// alone waits until no other goroutine has the key: a key that was pushed twice
// is looked at again when the first is done. It returns how to let go.
func (l *contextLoop) alone(key string) func() {
	mine := make(chan struct{})
	for {
		l.mu.Lock()
		other, taken := l.flying[key]
		if !taken {
			l.flying[key] = mine
		}
		l.mu.Unlock()
		if !taken {
			break
		}
		<-other
	}
	return func() {
		l.mu.Lock()
		delete(l.flying, key)
		l.mu.Unlock()
		close(mine)
	}
}

// carry delivers until the message has its fate, and then takes the key off the
// list that kept it.
func (l *contextLoop) carry(ctx context.Context, j journey) {
	_ = l.retry.Do(ctx, "deliver "+j.key, func(ctx context.Context) error {
		if err := l.deliver(ctx, j); err != nil {
			return err
		}
		if err := l.r.o.at("before done", j.key); err != nil {
			return err
		}
		return l.r.db.Done(ctx, l.context, j.from, j.key)
	})
}

func newRetry() backoff.Exponential {
	return backoff.Exponential{First: firstPause, Most: lastPause}
}

// every does something once per interval; see list.Every.
func (l *contextLoop) every(ctx context.Context, interval time.Duration, what string, do func(context.Context) error) {
	list.Every(ctx, interval, newRetry(), logthrottle.New(l.log, "router: "+what), do)
}

// deliver gives one message its fate, or brings it so far that it waits for a
// runner. An error means: again.
func (l *contextLoop) deliver(ctx context.Context, j journey) error {
	began := time.Now()
	caller, id, err := hero.ParseMessageKey(j.key)
	if err != nil {
		return l.aside(ctx, j, err)
	}
	m, err := l.r.db.Message(ctx, l.context, caller, id)
	switch {
	case errors.Is(err, redisdb.ErrNotFound), errors.Is(err, edda.Permanent):
		return l.aside(ctx, j, err)
	case err != nil:
		return err
	case m.Status.Ended():
		l.r.metrics.done(m.MessageType, fateDuplicate)
		return nil
	}
	if !j.inbound && m.MessageType != hero.MessageResult && (m.Origin != "" || m.Via != "") {
		if err := l.disown(ctx, &m); err != nil {
			return err
		}
	}
	if allowed, err := l.allowed(ctx, j, m); err != nil || !allowed {
		return err
	}
	if err := l.r.o.at("permitted", j.key); err != nil {
		return err
	}
	if err := l.dispatch(ctx, j, m); err != nil {
		return err
	}
	l.r.metrics.timed(m.MessageType, began)
	return nil
}

// disown clears what only a message that arrived may say: where it came from, and
// so where its result goes.
func (l *contextLoop) disown(ctx context.Context, m *hero.Message) error {
	m.Origin, m.Via = "", ""
	return l.note(ctx, m.Key(), "origin", "", "via", "")
}

func (l *contextLoop) dispatch(ctx context.Context, j journey, m hero.Message) error {
	switch m.MessageType {
	case hero.MessageJob:
		return l.jobs(ctx, j, m)
	case hero.MessageResult:
		return l.result(ctx, m)
	case hero.MessageChat, hero.MessageMail:
		return l.post(ctx, m)
	}
	return l.fail(ctx, m, fateError, fmt.Sprintf("message_type %.40q is none of job, chat, mail and result", m.MessageType))
}

// aside puts a key away that leads to no message. The hash, if there is one, is
// left as it is.
func (l *contextLoop) aside(ctx context.Context, j journey, why error) error {
	l.log.Error("router: set aside in "+msgOutBroken, zap.String("key", j.key), zap.Error(why))
	l.r.metrics.done("", fateBroken)
	return l.r.db.Push(ctx, l.context, msgOutBroken, j.key)
}

// allowed checks the caller's right; a message without it ends here.
func (l *contextLoop) allowed(ctx context.Context, j journey, m hero.Message) (bool, error) {
	c, err := l.r.db.Context(ctx, l.context)
	if errors.Is(err, edda.Permanent) || errors.Is(err, redisdb.ErrNotFound) {
		return false, l.fail(ctx, m, fateError, fmt.Sprintf("context %d cannot be read: %v", l.context, err))
	}
	if err != nil {
		return false, err
	}
	why := permit(c, m)
	if why == nil {
		return true, nil
	}
	if answers, err := l.answers(ctx, m); err != nil || answers {
		return err == nil, err
	}
	l.log.Warn("router: refused", zap.String("key", m.Key()), zap.Error(why))
	return false, l.refuse(ctx, j, m, why.Error())
}

// answers tells whether a result is that of a message of the same caller, whose
// right was checked when it was sent.
func (l *contextLoop) answers(ctx context.Context, m hero.Message) (bool, error) {
	if m.MessageType != hero.MessageResult {
		return false, nil
	}
	asked, ok, err := l.asked(ctx, l.context, m.ReplyTo)
	return ok && asked.CallerID == m.CallerID, err
}

// measure shows how many messages wait, and how many runners live.
func (l *contextLoop) measure(ctx context.Context) {
	gauges := l.r.metrics.of(l.context)
	defer gauges.release()
	l.every(ctx, l.r.o.Look, "measure", func(ctx context.Context) error {
		n, err := l.r.db.Depth(ctx, l.context, hero.MsgOut)
		if err != nil {
			return err
		}
		gauges.waiting(float64(n))
		if n, err = l.alive(ctx); err == nil {
			gauges.living(float64(n))
		}
		return err
	})
}

// alive counts the context's runners that are heard.
func (l *contextLoop) alive(ctx context.Context) (int64, error) {
	runners, err := l.runners(ctx, false)
	if err != nil || len(runners) == 0 {
		return 0, err
	}
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return 0, err
	}
	keys := make([]string, len(runners))
	for i, r := range runners {
		keys[i] = hero.RunnerAliveKey(r.ID)
	}
	return c.Exists(ctx, keys...).Result()
}
