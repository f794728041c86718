package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/backoff"
)

// watchPage bounds the waiting messages of one look, so that a wide flow costs no more
// than a small one. The next look continues after them. Late messages come first.
const watchPage = 50

// watch queues the waiting jobs that may run. Then it looks at the late messages and at
// the next page of those that wait, because some runners write only the job's hash.
func (l *contextLoop) watch(ctx context.Context) error {
	next, _, err := l.DB.Release(ctx, l.Context, l.released)
	if err != nil {
		return err
	}
	l.released = next
	now := strconv.FormatInt(time.Now().Unix(), 10)
	late, err := l.Redis.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: awaiting, Start: "-inf", Stop: now, ByScore: true, Count: watchPage}).Result()
	if err != nil {
		return fmt.Errorf("read %s: %w", awaiting, err)
	}
	page, err := l.Redis.ZRangeWithScores(ctx, awaiting, l.watched, l.watched+watchPage-1).Result()
	if err != nil {
		return fmt.Errorf("read %s: %w", awaiting, err)
	}
	for _, z := range slices.Concat(late, page) {
		removed, err := l.lookAt(ctx, z)
		if err != nil {
			return err
		}
		if !removed {
			l.watched++
		}
	}
	if len(page) < watchPage {
		l.watched = 0
	}
	return nil
}

// lookAt settles the jobs of one waiting message that ended. removed reports that the
// message waits no more.
func (l *contextLoop) lookAt(ctx context.Context, z redis.Z) (removed bool, err error) {
	key, _ := z.Member.(string)
	l.mu.Lock()
	_, delivering := l.inFlight[key]
	l.mu.Unlock()
	if delivering {
		return false, nil
	}
	caller, id, err := hero.ParseMessageKey(key)
	if err != nil {
		return true, l.forget(ctx, key)
	}
	m, err := l.DB.Message(ctx, l.Context, caller, id)
	switch {
	case err == nil && m.Status.Ended(), err != nil && absent(err) == nil:
		return true, l.forget(ctx, key)
	case err != nil:
		return false, err
	}
	late := time.Now().Unix() >= int64(z.Score)
	if run, err := l.runOf(ctx, m); err != nil || run != "" {
		if err != nil || l.r.o.Runs == nil {
			return false, err
		}
		return l.lookAtFlow(ctx, m, late)
	}
	routes, err := l.jobRoutes(ctx, m)
	switch {
	case errors.Is(err, edda.Permanent):
		return true, l.fail(ctx, m, fateError, err.Error())
	case err != nil:
		return false, err
	}
	for _, r := range routes {
		job := r.complete(m, l.Context)
		out, err := l.endNow(ctx, m, job, late)
		if err == nil && !out.waits() {
			err = l.settle(ctx, m, job, out, answered)
		}
		if err != nil {
			return false, err
		}
	}
	return late, nil
}

// endNow decides whether a watched job has an end: it is recorded, the job is superseded,
// its queue timeout has passed, or the message is late.
func (l *contextLoop) endNow(ctx context.Context, m hero.Message, job hero.Job, late bool) (end, error) {
	now, err := l.DB.Job(ctx, l.Context, job.CallerID, job.ID)
	if absent(err) != nil {
		return end{}, err
	}
	if err == nil && now.Status.Ended() {
		return recordedEnd(now), nil
	}
	// A job that was asked to stop reports its end itself.
	out, over, overErr := l.over(ctx, m, job)
	if overErr != nil || over && out.broken != errStopped.Error() {
		return out, overErr
	}
	// A flow gives up its own jobs, and a message's own timeout_result goes before the default.
	own := m.FlowID == 0 && (m.TimeoutResult == 0 || job.QueueTimeout != 0) && job.ContextID == l.Context
	if own && err == nil && now.Status == hero.JobDispatched && now.UpdatedAt != 0 &&
		time.Since(time.Unix(int64(now.UpdatedAt), 0)) >= job.WaitsAtMost()+time.Second { // the time is in whole seconds
		return broke("queue_timeout: not begun within %s", job.WaitsAtMost()), nil
	}
	if late {
		return broke("%v: no result in time", errNoResult), nil
	}
	return end{}, nil
}

// strayWatches is the least number of looks at local jobs in one round through a context's
// keys. Stray jobs are rare and not urgent.
const strayWatches = 15

// strays queues jobs outside of flows that the clients and workers of other programs keep
// waiting: the documents leave that to the coordinator. A job that is ready in two rounds
// is queued. In between, the program that keeps it waiting had the time to queue it.
func (l *contextLoop) strays(ctx context.Context) {
	seen := map[string]bool{} // ready in the last round
	l.Every(ctx, strayWatches*l.r.o.Watch, "router: look for stray jobs", func(ctx context.Context) error {
		ready, err := l.strayRound(ctx, seen)
		if err == nil {
			seen = ready
		}
		return err
	})
}

// strayRound goes once through the context's keys, one page per look. It returns the ready
// jobs that the last round had not seen, and adopts the others.
func (l *contextLoop) strayRound(ctx context.Context, seen map[string]bool) (map[string]bool, error) {
	ready := map[string]bool{}
	for cursor := uint64(0); ; {
		found, next, err := l.DB.Strays(ctx, l.Context, cursor)
		if err != nil {
			return nil, err
		}
		var again []hero.Job
		for _, j := range found {
			if seen[j.Key()] {
				again = append(again, j)
			} else {
				ready[j.Key()] = true
			}
		}
		if len(again) > 0 {
			if err := l.adopt(ctx, again); err != nil {
				return nil, err
			}
		}
		if cursor = next; cursor == 0 || backoff.Wait(ctx, l.r.o.Watch) != nil {
			return ready, ctx.Err()
		}
	}
}

// adopt has the next look of watch queue the jobs.
func (l *contextLoop) adopt(ctx context.Context, jobs []hero.Job) error {
	flows, err := l.DB.InFlows(ctx, l.Context, jobs)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if flows[j.Key()] {
			continue
		}
		denied := l.DB.MayRun(ctx, l.Context, j.CallerID)
		switch {
		case errors.Is(denied, redisdb.ErrDenied):
			_, _, err = l.DB.MoveJob(ctx, l.Context, j.CallerID, j.ID, hero.JobError, map[string]string{hero.ResultError: denied.Error()})
			if errors.Is(err, edda.Permanent) {
				err = nil // the job ended or started meanwhile
			}
			l.Log.Warn("router: a stray job is refused", zap.String("job", j.Key()), zap.Error(denied))
			l.r.metrics.strays.WithLabelValues(fateDenied).Inc()
		case denied != nil:
			return denied
		default:
			var adopted bool
			if adopted, err = l.DB.Adopt(ctx, l.Context, j); adopted {
				l.Log.Info("router: a stray job is queued", zap.String("job", j.Key()), zap.String("queue", j.ScriptType.Queue()))
				l.r.metrics.strays.WithLabelValues("released").Inc()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
