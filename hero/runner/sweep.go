package runner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/script"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

// sweep takes over the jobs of dead runners, and measures the queues.
func (l *contextLoop) sweep(ctx context.Context) error {
	all, err := l.Redis.SMembers(ctx, redisdb.RunningLists).Result()
	if err != nil {
		return err
	}
	for _, from := range all {
		kind, runner, ok := readTaken(from)
		if !ok || runner == l.r.id {
			continue
		}
		if alive, err := l.lives(ctx, runner); err != nil {
			return err
		} else if alive {
			continue
		}
		keys, err := l.Redis.LRange(ctx, from, 0, -1).Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := l.inherit(ctx, kind, from, runner, key); err != nil {
				return err
			}
		}
	}
	return l.measure(ctx)
}

// readTaken reads the name of a runner's processing list.
func readTaken(name string) (kind string, runner uint32, ok bool) {
	kind, id, cut := strings.Cut(strings.TrimPrefix(name, "queue:"), ":running:")
	n, err := strconv.ParseUint(id, 10, 32)
	return kind, uint32(n), strings.HasPrefix(name, "queue:") && cut && err == nil
}

// inherit decides about one key of a dead runner.
func (l *contextLoop) inherit(ctx context.Context, kind, from string, died uint32, key string) error {
	var w redisdb.RunnerJob
	caller, id, err := hero.ParseJobKey(key)
	if err != nil {
		err = edda.Classify(edda.Permanent, "%w", err)
	} else {
		w, err = l.DB.Work(ctx, l.Context, caller, id)
	}
	switch {
	case errors.Is(err, redisdb.ErrNotFound), err == nil && w.Status.Ended():
		return l.DB.Done(ctx, l.Context, from, key)
	case errors.Is(err, edda.Permanent):
		return l.DB.Return(ctx, l.Context, from, hero.ScriptType(kind).Queue()+brokenSuffix, key)
	case err != nil:
		return err
	case w.Status == hero.JobStarted && w.Run.Runner != died:
		return l.DB.Done(ctx, l.Context, from, key) // another runner has it
	case w.Status == hero.JobStarted:
		l.lost(ctx, w, from)
		return nil
	}
	l.Log.Info("a dead runner had not begun the job: it is queued again", zap.String("job", key), zap.Uint32("died", died))
	return l.DB.Return(ctx, l.Context, from, w.ScriptType.Queue(), key)
}

// releaseEvery is the number of looks for each look at the waiting jobs.
const releaseEvery = 2

// release queues the waiting jobs that may run, until ctx ends. When a job ends here it
// looks at once.
func (l *contextLoop) release(ctx context.Context) {
	releasing := logthrottle.New(l.Log, "release waiting jobs")
	for from := int64(0); ctx.Err() == nil; {
		next, waiting, err := l.DB.Release(ctx, l.Context, from)
		if ctx.Err() == nil {
			releasing.Note(err)
		}
		if err == nil {
			from = next
			l.waiting.Store(waiting)
		}
		select {
		case <-ctx.Done():
		case <-l.released:
		case <-time.After(releaseEvery * l.r.o.Look):
		}
	}
}

// measure sets the gauge of queued jobs, and logs queues without an interpreter here.
func (l *contextLoop) measure(ctx context.Context) error {
	here := l.r.scripts.Types()
	for _, name := range known(here) {
		kind := hero.ScriptType(name)
		n, err := l.DB.Depth(ctx, l.Context, kind.Queue())
		if err != nil {
			return err
		}
		l.r.metrics.waiting(l.Context, name, n)
		if n > 0 && !slices.Contains(here, name) {
			l.Log.Error("no interpreter is here for waiting jobs: start a runner that has one",
				zap.String("queue", kind.Queue()), zap.Int64("jobs", n), zap.Strings("here", here))
		}
	}
	return nil
}

// known lists the types of the documents, those with an interpreter by default, and those
// that run here.
func known(here []string) []string {
	all := slices.Concat(here, []string{string(hero.ScriptOSIS), string(hero.ScriptSAL), string(hero.ScriptV), string(hero.ScriptPython)})
	for kind := range script.Defaults() {
		all = append(all, kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// watch looks at the running jobs for requests to stop and for an end that another program
// recorded, until ctx ends and they have ended.
func (l *contextLoop) watch(ctx, work context.Context) {
	watching := logthrottle.New(l.Log, "watch jobs")
	for backoff.Wait(ctx, l.r.o.Look) == nil {
		l.watchOnce(ctx, watching)
	}
	for backoff.Wait(work, l.r.o.Look) == nil && l.watchOnce(work, watching) > 0 { // clients may stop draining jobs
	}
}

// watchOnce returns the number of running jobs.
func (l *contextLoop) watchOnce(ctx context.Context, watching *logthrottle.Throttle) int {
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.running))
	l.mu.Unlock()
	if len(all) == 0 {
		return 0
	}
	runs := make([]redisdb.RunnerJob, len(all))
	for i, a := range all {
		runs[i] = a.work
	}
	seen, err := l.DB.Watch(ctx, l.Context, runs)
	if ctx.Err() == nil {
		watching.Note(err)
	}
	if err != nil {
		return len(all)
	}
	for i, s := range seen {
		switch {
		case s.Stop && s.Current:
			all[i].stop(script.ErrStopped)
		case !s.Current:
			all[i].stop(errSuperseded)
		}
	}
	return len(all)
}
