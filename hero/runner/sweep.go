package runner

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/list"
	"edda/hero/redisdb"
	"edda/hero/script"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

// announce makes the runner's list known to the others, before anything is in it.
func (l *contextLoop) announce(ctx context.Context, kind string) error {
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return err
	}
	return c.SAdd(ctx, redisdb.RunningLists, taken(kind, l.r.id)).Err()
}

// sweep looks for the jobs of runners that died, and at queues that no runner here
// serves, until ctx ends.
func (l *contextLoop) sweep(ctx context.Context) {
	list.Every(ctx, slowly*l.r.o.Look, newRetry(), logthrottle.New(l.log, "look for dead runners"), func(ctx context.Context) error {
		if err := l.sweepOnce(ctx); err != nil {
			return err
		}
		return l.measure(ctx)
	})
}

func (l *contextLoop) sweepOnce(ctx context.Context) error {
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return err
	}
	all, err := c.SMembers(ctx, redisdb.RunningLists).Result()
	if err != nil {
		return err
	}
	for _, from := range all {
		kind, runner, ok := readTaken(from)
		if !ok || runner == l.r.id {
			continue
		}
		if alive, err := l.lives(ctx, runner); err != nil || alive {
			if err != nil {
				return err
			}
			continue
		}
		keys, err := c.LRange(ctx, from, 0, -1).Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := l.inherit(ctx, kind, from, runner, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// readTaken reads the name of a runner's list.
func readTaken(name string) (kind string, runner uint32, ok bool) {
	kind, id, cut := strings.Cut(strings.TrimPrefix(name, "queue:"), ":running:")
	n, err := strconv.ParseUint(id, 10, 32)
	return kind, uint32(n), strings.HasPrefix(name, "queue:") && cut && err == nil
}

// inherit decides about one key of a dead runner.
func (l *contextLoop) inherit(ctx context.Context, kind, from string, died uint32, key string) error {
	caller, id, err := hero.ParseJobKey(key)
	if err != nil {
		return l.r.db.Return(ctx, l.context, from, hero.ScriptType(kind).Queue()+brokenSuffix, key)
	}
	w, err := l.r.db.Work(ctx, l.context, caller, id)
	switch {
	case errors.Is(err, redisdb.ErrNotFound), err == nil && w.Status.Ended():
		return l.r.db.Done(ctx, l.context, from, key)
	case errors.Is(err, edda.Permanent):
		return l.r.db.Return(ctx, l.context, from, hero.ScriptType(kind).Queue()+brokenSuffix, key)
	case err != nil:
		return err
	case w.Status == hero.JobStarted && w.Run.Runner != died:
		return l.r.db.Done(ctx, l.context, from, key) // it is another's meanwhile
	case w.Status == hero.JobStarted:
		l.lost(ctx, w, from)
		return nil
	}
	l.log.Info("job of a runner that died before it began is queued again", zap.String("job", key), zap.Uint32("died", died))
	return l.r.db.Return(ctx, l.context, from, w.ScriptType.Queue(), key)
}

// releaseEvery is how many looks go by between two at the jobs that wait for others.
const releaseEvery = 2

// release lets the jobs go that wait for others, until ctx ends. A job that ends here is
// a reason to look at once.
func (l *contextLoop) release(ctx context.Context) {
	releasing := logthrottle.New(l.log, "look at the jobs that wait")
	for from := int64(0); ctx.Err() == nil; {
		next, waiting, err := l.r.db.Release(ctx, l.context, from)
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

// measure shows how many jobs wait, and says which of them wait for another runner.
func (l *contextLoop) measure(ctx context.Context) error {
	here := l.r.scripts.Types()
	for _, name := range known(here) {
		kind := hero.ScriptType(name)
		n, err := l.r.db.Depth(ctx, l.context, kind.Queue())
		if err != nil {
			return err
		}
		l.r.metrics.waiting(l.context, name, n)
		if n > 0 && !slices.Contains(here, name) {
			l.log.Error("jobs wait that no interpreter is here for: start a runner that has one",
				zap.String("queue", kind.Queue()), zap.Int64("jobs", n), zap.Strings("here", here))
		}
	}
	return nil
}

// known are the types of the documents, those with an interpreter by default, and
// those that run here.
func known(here []string) []string {
	all := slices.Concat(here, []string{string(hero.ScriptOSIS), string(hero.ScriptSAL), string(hero.ScriptV), string(hero.ScriptPython)})
	for kind := range script.Defaults() {
		all = append(all, kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// watch looks at the jobs that run, for requests to stop and for those that ended
// otherwise, until ctx ends and they have ended.
func (l *contextLoop) watch(ctx, work context.Context) {
	watching := logthrottle.New(l.log, "watch jobs")
	for backoff.Wait(ctx, l.r.o.Look) == nil {
		l.watchOnce(ctx, watching)
	}
	// Draining jobs may be stopped, too.
	for backoff.Wait(work, l.r.o.Look) == nil && l.watchOnce(work, watching) > 0 {
	}
}

func (l *contextLoop) watchOnce(ctx context.Context, watching *logthrottle.Throttle) int {
	l.mu.Lock()
	var all []*underway
	for _, u := range l.running {
		all = append(all, u)
	}
	l.mu.Unlock()
	if len(all) == 0 {
		return 0
	}
	runs := make([]redisdb.Work, len(all))
	for i, u := range all {
		runs[i] = u.work
	}
	seen, err := l.r.db.Watch(ctx, l.context, runs)
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
