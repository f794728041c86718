package router

import (
	"context"
	"time"

	"edda/hero"
)

// known caches the keys of a context's runners, because Redis scans the whole database to
// find them: the more keys, the rarer the scan. The runners themselves are read each time.
type known struct {
	keys    []string
	changes string    // redisdb's Changes before the scan
	at      time.Time // of the scan
	until   time.Time // when the next scan is due
}

// runners reads the context's runners. With anew it scans for them again, unless the last
// scan is younger than Options.Look. Its error is that of redisdb's Runners.
func (l *contextLoop) runners(ctx context.Context, anew bool) ([]hero.Runner, error) {
	r := l.r
	r.mu.Lock()
	k, ok := r.runners[l.Context]
	r.mu.Unlock()
	if now := time.Now(); ok && now.Before(k.until) && !(anew && now.Sub(k.at) >= r.o.Look) {
		return l.DB.RunnersAt(ctx, l.Context, k.keys)
	}
	changes, err := r.db.Changes(ctx)
	if err != nil {
		return nil, err
	}
	keys, looked, err := r.db.RunnerKeys(ctx, l.Context)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	pause := max(r.o.Look, time.Duration(looked)*time.Second/scanPace)
	r.mu.Lock()
	r.runners[l.Context] = known{keys, changes, now, now.Add(pause)}
	r.mu.Unlock()
	return l.DB.RunnersAt(ctx, l.Context, keys)
}

// forgetRunners drops the cache after runners were created or deleted.
func (r *Router) forgetRunners() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.runners)
}

// outdated reports whether runners were created or deleted since the last scan. If so, it
// drops the cache of the context.
func (l *contextLoop) outdated(ctx context.Context) (bool, error) {
	now, err := l.DB.Changes(ctx)
	if err != nil {
		return false, err
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if k, ok := l.r.runners[l.Context]; ok && k.changes == now {
		return false, nil
	}
	delete(l.r.runners, l.Context)
	return true, nil
}
