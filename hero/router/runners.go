package router

import (
	"context"
	"time"

	"edda/hero"
)

// known are the runners that a context is known to have. To find them Redis goes
// through all keys of the context's database, so that this is done the less often the
// more keys there are. What they say is read anew each time.
type known struct {
	keys    []string
	changes string    // what redisdb's Changes said before they were looked for
	at      time.Time // when they were found
	until   time.Time // when they are looked for again
}

// runners are the context's. With anew they are looked for again, unless that was
// done a moment ago: no known runner fits. The error is as of redisdb's Runners.
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

// forgetRunners has runners looked for again: some were created or deleted.
func (r *Router) forgetRunners() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.runners)
}

// outdated tells whether runners were created or deleted since those of the context were
// looked for; then they are looked for again.
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
