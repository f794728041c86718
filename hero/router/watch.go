package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
)

// watchPage bounds the waiting messages of one look, so that a wide flow costs no more
// of them than a small one; the next look goes on behind it. What is late comes first.
const watchPage = 50

// watch looks at the jobs that wait for local runners, for those that write only
// the job's hash, and gives up what was waited for too long.
func (l *contextLoop) watch(ctx context.Context) {
	l.every(ctx, l.r.o.Watch, "watch local jobs", l.watchOnce)
}

// watchOnce lets go what waits for nothing any more, and looks at what is late and at the
// next page of what waits.
func (l *contextLoop) watchOnce(ctx context.Context) error {
	next, _, err := l.r.db.Release(ctx, l.context, l.released)
	if err != nil {
		return err
	}
	l.released = next
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	late, err := c.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: awaiting, Start: "-inf", Stop: now, ByScore: true, Count: watchPage}).Result()
	if err != nil {
		return fmt.Errorf("read %s: %w", awaiting, err)
	}
	page, err := c.ZRangeWithScores(ctx, awaiting, l.watched, l.watched+watchPage-1).Result()
	if err != nil {
		return fmt.Errorf("read %s: %w", awaiting, err)
	}
	stay := int64(0)
	for _, z := range slices.Concat(late, page) {
		gone, err := l.lookAt(ctx, z)
		if err != nil {
			return err
		}
		if !gone {
			stay++
		}
	}
	if l.watched += stay; len(page) < watchPage {
		l.watched = 0
	}
	return nil
}

// lookAt settles what ended of one waiting message; gone tells that it waits no more.
func (l *contextLoop) lookAt(ctx context.Context, z redis.Z) (gone bool, err error) {
	key, _ := z.Member.(string)
	if l.underway(key) {
		return false, nil
	}
	caller, id, err := hero.ParseMessageKey(key)
	if err != nil {
		return true, l.forget(ctx, key)
	}
	m, err := l.r.db.Message(ctx, l.context, caller, id)
	if errors.Is(err, redisdb.ErrNotFound) || errors.Is(err, edda.Permanent) || err == nil && m.Status.Ended() {
		return true, l.forget(ctx, key)
	}
	if err != nil {
		return false, err
	}
	late := time.Now().Unix() >= int64(z.Score)
	if run, err := l.runOf(ctx, m); err != nil || run != "" {
		if err != nil || l.r.o.Runs == nil {
			return false, err
		}
		return l.lookAtFlow(ctx, m, late)
	}
	list, err := l.errands(ctx, m)
	if err != nil {
		if errors.Is(err, edda.Permanent) {
			return true, l.fail(ctx, m, fateError, err.Error())
		}
		return false, err
	}
	for _, e := range list {
		if err := l.lookAtJob(ctx, m, e, late); err != nil {
			return false, err
		}
	}
	return late, nil
}

func (l *contextLoop) underway(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, is := l.flying[key]
	return is
}

// superseded is the end of a flow's job of which a later attempt is under way. One
// that is asked to stop says its end itself.
func (l *contextLoop) superseded(ctx context.Context, m hero.Message, job hero.Job) (end, error) {
	out, over, err := l.over(ctx, m, job)
	if err != nil || !over || out.broken == errStopped.Error() {
		return end{}, err
	}
	return out, nil
}

// neverBegun is the end of a job whose queue timeout has passed. A flow says so
// itself, and a message's own timeout_result goes before the default.
func (l *contextLoop) neverBegun(ctx context.Context, m hero.Message, job hero.Job) (end, error) {
	if m.FlowID != 0 || m.TimeoutResult > 0 && job.QueueTimeout == 0 || job.ContextID != l.context {
		return end{}, nil
	}
	now, err := l.r.db.Job(ctx, l.context, job.CallerID, job.ID)
	if err != nil || now.Status != hero.JobDispatched || now.UpdatedAt == 0 {
		return end{}, absent(err)
	}
	if time.Since(time.Unix(int64(now.UpdatedAt), 0)) < job.WaitsAtMost()+time.Second { // the time is in whole seconds
		return end{}, nil
	}
	return broke("queue_timeout: not begun within %s", job.WaitsAtMost()), nil
}

// lookAtJob settles one job that ended, or that was waited for too long.
func (l *contextLoop) lookAtJob(ctx context.Context, m hero.Message, e errand, late bool) error {
	job := e.complete(m, l.context)
	out, err := l.recorded(ctx, job)
	if err = absent(err); err != nil {
		return err
	}
	if out.waits() {
		if out, err = l.superseded(ctx, m, job); err != nil {
			return err
		}
	}
	if out.waits() {
		if out, err = l.neverBegun(ctx, m, job); err != nil {
			return err
		}
	}
	if out.waits() && late {
		out = broke("%v: no result in time", errNoResult)
	}
	if out.waits() {
		return nil
	}
	return l.settle(ctx, m, job, out, answered)
}
