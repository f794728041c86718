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

// brokenSuffix ends the name of the list for the keys of a type's queue that are no jobs.
const brokenSuffix = ":broken"

// endWithin bounds the attempts to record a job's end while the runner stops. A job whose
// end is not recorded runs again within its retries.
const endWithin = 3 * time.Second

// one processes a key that was taken, until the key is off the runner's list.
func (l *contextLoop) one(work context.Context, kind, key string) {
	l.r.o.At("taken", key)
	into := taken(kind, l.r.id)
	w, begun, err := l.begin(work, kind, key, false)
	var never error // why the script of a started job is not run
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
		return // the runner stops; the key stays in its list
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
		l.done(work, into, key)
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

// begin records the start of a queued job. It repeats the step until Redis answers.
func (l *contextLoop) begin(work context.Context, kind, key string, ready bool) (w redisdb.RunnerJob, begun bool, err error) {
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

// errHeld: the job waits for others and is in no queue, or the runner stops.
var errHeld = errors.New("the job waits")

// gate decides whether a job that depends on others may run. never is the reason where it
// can never run. After errHeld there is nothing more to do.
func (l *contextLoop) gate(work context.Context, w redisdb.RunnerJob, into string) (never, err error) {
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
		return nil, errHeld // the runner stops; the key stays in its list
	case g == redisdb.GateClosed:
		l.Log.Debug("job waits", zap.String("job", w.Key()), zap.String("why", why))
		l.waiting.Store(true)
		return nil, errHeld
	case g == redisdb.GateFailed:
		return errors.New(why), nil
	}
	return nil, nil
}

// denied returns why a job's caller may not run it here, or nil. Every client of Redis can
// put a key into a queue, so no other component has checked the right. The runner may serve
// a context whose hash is not in this Redis: the coordinator that sends the jobs checks
// their rights.
func (l *contextLoop) denied(work context.Context, w redisdb.RunnerJob) (denied error) {
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

// refuse ends a started job without running its script.
func (l *contextLoop) refuse(work context.Context, w redisdb.RunnerJob, into string, why error) {
	if work.Err() != nil {
		l.drop(work, w, into, true) // its rights are unknown
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

// others reports whether a live runner runs the job already: its key was queued twice.
func (l *contextLoop) others(work context.Context, w redisdb.RunnerJob) bool {
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

// errSuperseded: another program ended the job or dispatched it anew.
var errSuperseded = errors.New("the run is no longer the job's")

// perform runs the script of a started job, and records the end.
func (l *contextLoop) perform(work context.Context, w redisdb.RunnerJob, into string) {
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
	out, err := l.r.scripts.Run(ctx, script.Script{
		ID: key, Type: kind, Source: w.Script, Env: w.EnvVars, Context: strconv.FormatUint(uint64(l.Context), 10),
		Timeout: time.Duration(w.Timeout) * time.Second, Who: fmt.Sprintf("actor %d", w.CallerID), Logs: logs.line,
	})
	logs.close()
	l.r.metrics.ran(kind, time.Since(began))
	l.r.o.At("ran", key)
	switch {
	case err != nil:
		l.Log.Error("script not begun: the job is queued again", zap.String("job", key), zap.Error(err))
		l.drop(work, w, into, true)
		_ = backoff.Wait(work, slowly*l.r.o.Look) // the next job would probably fail for the same reason
	case errors.Is(context.Cause(ctx), errSuperseded):
		l.Log.Warn("job ended or was dispatched anew while it ran", zap.String("job", key))
		l.done(work, into, key)
	case out.Reason == script.Interrupted:
		l.drop(work, w, into, true)
	case !out.OK && out.Reason != script.Stopped && out.Reason != script.Refused && retriable(w):
		l.Log.Info("job failed and is tried again", zap.String("job", key), zap.String("why", out.Why()))
		l.r.metrics.ended(kind, hero.JobDispatched, class(out))
		l.drop(work, w, into, false)
	default:
		l.r.metrics.ended(kind, statusOf(out), class(out))
		l.end(work, w, statusOf(out), out.Result, into)
		l.r.o.At("recorded", key)
	}
}

// retriable reports whether the runner may run the job again. A flow retries its own jobs.
func retriable(w redisdb.RunnerJob) bool { return w.FlowID == 0 && w.Run.Number <= uint32(w.Retries) }

func statusOf(out script.RunResult) hero.JobStatus {
	if out.OK {
		return hero.JobFinished
	}
	return hero.JobError
}

// late returns work, or where work has ended a context of endWithin.
func late(work context.Context) (context.Context, context.CancelFunc) {
	if work.Err() == nil {
		return context.WithCancel(work)
	}
	return context.WithTimeout(context.WithoutCancel(work), endWithin)
}

// end records the end of a run and removes the key, or only removes the key of a run that
// is superseded.
func (l *contextLoop) end(work context.Context, w redisdb.RunnerJob, to hero.JobStatus, result map[string]string, into string) {
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
	if l.waiting.Load() { // others may wait for this job
		select {
		case l.released <- struct{}{}:
		default:
		}
	}
}

// drop queues a job again.
func (l *contextLoop) drop(work context.Context, w redisdb.RunnerJob, into string, interrupted bool) {
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

// lost queues or ends a job whose runner died while it ran.
func (l *contextLoop) lost(work context.Context, w redisdb.RunnerJob, into string) {
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
