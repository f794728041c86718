package redisdb

import (
	"context"
	"errors"
	"sync"
	"time"

	"edda"
	"edda/hero"
)

// rightsFor is how long a right that was seen is believed: a runner that takes
// thousands of jobs a second does not read the context for each of them, and one
// that lost its right has jobs run for no longer than that.
const rightsFor = time.Second

// rights are the contexts that were read a moment ago.
type rights struct {
	mu   sync.Mutex // guards seen
	seen map[uint32]seenContext
}

type seenContext struct {
	context hero.Context
	at      time.Time
}

func (r *rights) of(id uint32, now time.Time) (hero.Context, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.seen[id]
	return s.context, ok && now.Sub(s.at) < rightsFor
}

func (r *rights) saw(c hero.Context, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) >= maxContexts {
		clear(r.seen)
	}
	r.seen[c.ID] = seenContext{c, now}
}

// MayRun tells whether the actor may have jobs run in the context: its admins and
// executors may. ErrDenied and ErrNotFound, of the context, say no; any other error
// says nothing about the right. A refusal always comes from a fresh look.
func (d *DB) MayRun(ctx context.Context, in, actor uint32) error {
	now := d.now()
	if c, ok := d.rights.of(in, now); ok && c.MayExecute(actor) {
		return nil
	}
	c, err := d.Context(ctx, in)
	switch {
	case errors.Is(err, ErrNotFound):
		return edda.Classify(edda.Permanent, "context %d is not in this Redis: make it with context.create: %w", in, err)
	case err != nil:
		return err
	case !c.MayExecute(actor):
		return edda.Classify(edda.Permanent, "%w: actor %d is neither admin nor executor of context %d: have one of its admins add it to executors", ErrDenied, actor, in)
	}
	d.rights.saw(c, now)
	return nil
}
