package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/script"
	"edda/internal/backoff"
)

// brokenSuffix names the list of what was in a type's queue and is no job.
const brokenSuffix = ":broken"

// endWithin is how long the end of a job is tried to be recorded once the runner
// was to be gone. A job whose end is not recorded is run again by its retries.
const endWithin = 3 * time.Second

// one works on a key that was taken, to its end.
func (l *contextLoop) one(work context.Context, kind, key string) {
	l.r.o.At("taken", key)
	into := taken(kind, l.r.id)
	w, begun, err := l.begin(work, kind, key, false)
	var never error // why a job that is begun is not run
	if err == nil && !begun && w.Waits() && w.MayBegin(hero.ScriptType(kind)) {
		if never, err = l.gate(work, w, into); err == nil {
			w, begun, err = l.begin(work, kind, key, true)
		} else if errors.Is(err, errHeld) {
			return
		}
	}
	switch {
	case errors.Is(err, redisdb.ErrNotFound):
		l.Log.Warn("job of a queued key does not exist: key removed", zap.String("job", key))
		l.done(work, into, key)
		return
	case errors.Is(err, edda.Permanent):
		l.aside(work, kind, key, err)
		return
	case err != nil:
		return // the runner ends; the key stays where it is
	case begun:
		l.r.o.At("begun", key)
		if denied := l.denied(work, w); denied != nil {
			never = denied
		}
		if never != nil {
			l.refuse(work, w, into, never)
			return
		}
		l.perform(work, w, into)
		return
	}
	log := l.Log.With(zap.String("job", key), zap.Uint32("attempt", w.Attempt))
	switch {
	case w.Status.Ended():
		l.done(work, into, key) // it has its end, and is never run again
	case w.Status == hero.JobStarted && w.Run.Runner == 0:
		l.aside(work, kind, key, errors.New("it was started by nobody that notes it: set its status to dispatched to have it run"))
	case w.Status == hero.JobStarted && l.others(work, w):
		log.Debug("job runs elsewhere")
		l.done(work, into, key)
	case w.Status == hero.JobStarted:
		l.lost(work, w, into)
	default:
		log.Warn("job moved to the queue of its type", zap.String("queue", kind), zap.String("type", string(w.ScriptType)))
		l.persist(work, "return "+key, func(ctx context.Context) error {
			return l.DB.Return(ctx, l.Context, into, w.ScriptType.Queue(), key)
		})
	}
}

// begin starts a job that waits to be run, until Redis says what it is.
func (l *contextLoop) begin(work context.Context, kind, key string, ready bool) (w redisdb.Work, begun bool, err error) {
	if _, _, err := hero.ParseJobKey(key); err != nil {
		return w, false, edda.Classify(edda.Permanent, "%w", err)
	}
	mark := rand.Text()
	err = l.Retry.Do(work, "start "+key, func(ctx context.Context) (err error) {
		w, begun, err = l.DB.Begin(ctx, l.Context, key, hero.ScriptType(kind), ready, l.r.id, mark)
		return err
	})
	return w, begun, err
}

// errHeld: the job waits for others, and is in no queue meanwhile.
var errHeld = errors.New("the job waits")

// gate looks whether a job that waits for others may run. never says why it cannot;
// errHeld says that it still waits and that its key has left the runner's list.
func (l *contextLoop) gate(work context.Context, w redisdb.Work, into string) (never, err error) {
	var g redisdb.Gate
	var why string
	looked := l.persist(work, "look at what "+w.Key()+" waits for", func(ctx context.Context) (err error) {
		if g, why, err = l.DB.Gate(ctx, l.Context, w.Job); err == nil && g == redisdb.GateClosed {
			err = l.DB.Hold(ctx, l.Context, w.Job, w.Key(), w.ScriptType.Queue(), into)
		}
		return err
	})
	switch {
	case !looked:
		return nil, errHeld // the runner ends; the key stays where it is
	case g == redisdb.GateClosed:
		l.Log.Debug("job waits", zap.String("job", w.Key()), zap.String("why", why))
		l.waiting.Store(true)
		return nil, errHeld
	case g == redisdb.GateFailed:
		return errors.New(why), nil
	}
	return nil, nil
}

// denied is why a job's caller may not have it run here; nil where it may. Every client
// of Redis can put a key into a queue, so no other component has checked the right. The
// runner may serve a context whose hash is not in this Redis. The rights of that context
// are in the Redis of the coordinator that sends the jobs.
func (l *contextLoop) denied(work context.Context, w redisdb.Work) (denied error) {
	l.persist(work, "look for the rights of "+w.Key(), func(ctx context.Context) error {
		denied = l.DB.MayRun(ctx, l.Context, w.CallerID)
		switch {
		case errors.Is(denied, redisdb.ErrNotFound) && slices.Contains(l.r.o.Contexts, l.Context):
			denied = nil
			return nil
		case errors.Is(denied, redisdb.ErrDenied), errors.Is(denied, redisdb.ErrNotFound):
			return nil
		}
		return denied
	})
	return denied
}

// refuse ends a job that was begun and whose script is not run.
func (l *contextLoop) refuse(work context.Context, w redisdb.Work, into string, why error) {
	if work.Err() != nil {
		l.drop(work, w, into, true) // nothing is known of its rights
		return
	}
	l.Log.Warn("job refused", zap.String("job", w.Key()), zap.Error(why))
	l.r.metrics.ended(string(w.ScriptType), hero.JobError, "denied")
	l.end(work, w, hero.JobError, map[string]string{hero.ResultError: why.Error()}, into)
}

func (l *contextLoop) done(work context.Context, into, key string) {
	l.persist(work, "remove "+key, func(ctx context.Context) error { return l.DB.Done(ctx, l.Context, into, key) })
}

// aside moves a key that no runner can run to a list for the operator.
func (l *contextLoop) aside(work context.Context, kind, key string, why error) {
	broken := hero.ScriptType(kind).Queue() + brokenSuffix
	l.Log.Error("key set aside in "+broken+": look at its job and delete it, or push it again", zap.String("job", key), zap.Error(why))
	l.r.metrics.ended(kind, hero.JobError, "broken")
	l.persist(work, "set "+key+" aside", func(ctx context.Context) error {
		return l.DB.Return(ctx, l.Context, taken(kind, l.r.id), broken, key)
	})
}

// others tells whether another runner that lives runs the job: its key was queued
// twice.
func (l *contextLoop) others(work context.Context, w redisdb.Work) bool {
	if w.Run.Runner == l.r.id {
		l.mu.Lock()
		defer l.mu.Unlock()
		a := l.running[w.Key()]
		return a != nil && a.work.Run == w.Run
	}
	lives := false
	l.persist(work, "look for runner", func(ctx context.Context) (err error) {
		lives, err = l.lives(ctx, w.Run.Runner)
		return err
	})
	return lives
}

// errSuperseded: the job ended otherwise, or was dispatched anew.
var errSuperseded = errors.New("the run is no longer the job's")

// perform runs the script of a job that was begun, and records its end.
func (l *contextLoop) perform(work context.Context, w redisdb.Work, into string) {
	ctx, stop := context.WithCancelCause(work)
	defer stop(nil)
	key := w.Key()
	l.mu.Lock()
	l.running[key] = &active{work: w, stop: stop}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.running, key)
	}()
	if w.Stop {
		stop(script.ErrStopped)
	}
	kind := string(w.ScriptType)
	l.r.metrics.started(kind)
	began := time.Now()
	logs := l.logs(work, w)
	out, err := l.r.scripts.Run(ctx, l.script(w, logs))
	logs.close()
	l.r.metrics.ran(kind, time.Since(began))
	l.r.o.At("ran", key)
	switch {
	case err != nil:
		l.Log.Error("script not begun: the job is queued again", zap.String("job", key), zap.Error(err))
		l.drop(work, w, into, true)
		_ = backoff.Wait(work, slowly*l.r.o.Look) // what is in the way is in the next one's, too
	case errors.Is(context.Cause(ctx), errSuperseded):
		l.Log.Warn("job ended or was dispatched anew while it ran", zap.String("job", key))
		l.done(work, into, key)
	case out.Reason == script.Interrupted:
		l.drop(work, w, into, true)
	case l.tries(w, out):
		l.Log.Info("job failed and is tried again", zap.String("job", key), zap.String("why", out.Why()))
		l.r.metrics.ended(kind, hero.JobDispatched, class(out))
		l.drop(work, w, into, false)
	default:
		l.r.metrics.ended(kind, statusOf(out), class(out))
		l.end(work, w, statusOf(out), out.Result, into)
		l.r.o.At("recorded", key)
	}
}

func (l *contextLoop) script(w redisdb.Work, logs *logs) script.Script {
	return script.Script{
		ID: w.Key(), Type: string(w.ScriptType), Source: w.Script, Env: w.EnvVars,
		Context: strconv.FormatUint(uint64(l.Context), 10),
		Timeout: time.Duration(w.Timeout) * time.Second,
		Who:     fmt.Sprintf("actor %d", w.CallerID), Logs: logs.line,
	}
}

// tries tells whether a job that failed is run again here: one of a flow is the
// flow's to try, and what is refused or stopped is not tried at all.
func (l *contextLoop) tries(w redisdb.Work, out script.Outcome) bool {
	return !out.OK && out.Reason != script.Stopped && out.Reason != script.Refused && retriable(w)
}

// retriable: retries are calls after the first.
func retriable(w redisdb.Work) bool { return w.FlowID == 0 && w.Run.Number <= uint32(w.Retries) }

func statusOf(out script.Outcome) hero.JobStatus {
	if out.OK {
		return hero.JobFinished
	}
	return hero.JobError
}

// late is a context for what should still be done when the runner was to be gone.
func late(work context.Context) (context.Context, context.CancelFunc) {
	if work.Err() == nil {
		return context.WithCancel(work)
	}
	return context.WithTimeout(context.WithoutCancel(work), endWithin)
}

// end records the end of a run. Where that is no longer wanted the key goes.
func (l *contextLoop) end(work context.Context, w redisdb.Work, to hero.JobStatus, result map[string]string, into string) {
	work, cancel := late(work)
	defer cancel()
	ended := w.Job
	ended.Status, ended.Result = to, result
	l.persist(work, "record "+w.Key(), func(ctx context.Context) error {
		err := l.DB.EndRun(ctx, l.Context, w, to, result, into, hero.EndMessage(ended, l.Context))
		if errors.Is(err, redisdb.ErrIllegal) {
			l.Log.Warn("result dropped: the run is no longer the current one of its job", zap.Error(err))
			return l.DB.Done(ctx, l.Context, into, w.Key())
		}
		return err
	})
	if l.waiting.Load() { // it may be what others wait for
		select {
		case l.released <- struct{}{}:
		default:
		}
	}
}

// drop queues a job again.
func (l *contextLoop) drop(work context.Context, w redisdb.Work, into string, interrupted bool) {
	work, cancel := late(work)
	defer cancel()
	l.persist(work, "requeue "+w.Key(), func(ctx context.Context) error {
		err := l.DB.DropRun(ctx, l.Context, w, interrupted, into)
		if errors.Is(err, redisdb.ErrIllegal) {
			return l.DB.Done(ctx, l.Context, into, w.Key())
		}
		return err
	})
}

// lost decides about a job whose runner died while it ran.
func (l *contextLoop) lost(work context.Context, w redisdb.Work, into string) {
	l.r.metrics.lost.Inc()
	if retriable(w) {
		l.Log.Warn("job of a runner that died is queued again", zap.String("job", w.Key()), zap.Uint32("died", w.Run.Runner), zap.Uint32("runs", w.Run.Number))
		l.drop(work, w, into, false)
		return
	}
	why := fmt.Sprintf("runner %d died while it ran", w.Run.Runner)
	l.Log.Error("job is lost", zap.String("job", w.Key()), zap.String("why", why))
	l.r.metrics.ended(string(w.ScriptType), hero.JobError, "lost")
	l.end(work, w, hero.JobError, map[string]string{hero.ResultError: why}, into)
}
