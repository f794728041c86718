package redisdb

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// probed is the number of databases that are probed where Redis does not list those in use:
// a Redis for development, or a user that lacks the right.
const probed = 256

// Contexts lists the contexts: database n holds the hash context:n.
func (d *DB) Contexts(ctx context.Context) (contexts []uint32, err error) {
	err = d.try(ctx, "look for contexts", 0, func(c *database) error {
		used, err := databasesInUse(ctx, c)
		if err != nil {
			return err
		}
		contexts, err = d.holding(ctx, used)
		return err
	})
	return contexts, err
}

// databasesInUse lists the databases that hold a key, without the actors'.
func databasesInUse(ctx context.Context, c *database) ([]uint32, error) {
	var out []uint32
	info, err := c.Info(ctx, "keyspace").Result()
	var said redis.Error
	if errors.As(err, &said) && (strings.HasPrefix(said.Error(), "NOPERM") || strings.Contains(said.Error(), "not supported")) {
		for n := range uint32(probed - 1) {
			out = append(out, n+1)
		}
		return out, nil
	}
	for line := range strings.Lines(info) { // db7:keys=12,expires=0,avg_ttl=0
		name, _, ok := strings.Cut(line, ":")
		number, isDB := strings.CutPrefix(name, "db")
		n, err := strconv.ParseUint(number, 10, 31)
		if ok && isDB && err == nil && n > 0 {
			out = append(out, uint32(n))
		}
	}
	slices.Sort(out)
	return out, err
}

// holding returns the databases that hold their context's hash. It selects each on a
// connection of its own, which it closes, because it ends in another database.
func (d *DB) holding(ctx context.Context, databases []uint32) ([]uint32, error) {
	if len(databases) == 0 {
		return nil, nil
	}
	c := d.connect(0, 1)
	defer c.Close()
	type look struct {
		selected *redis.StatusCmd
		kind     *redis.StatusCmd
	}
	looks := make([]look, len(databases))
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, n := range databases {
			looks[i] = look{p.Select(ctx, int(n)), p.Type(ctx, hero.ContextKey(n))}
		}
		return nil
	})
	var said redis.Error
	if err != nil && !errors.As(err, &said) {
		return nil, err
	}
	var out []uint32
	for i, l := range looks {
		if l.selected.Err() == nil && l.kind.Val() == "hash" {
			out = append(out, databases[i])
		}
	}
	return out, nil
}

// changesKey counts, in database 0, the changes of contexts and runners. Routers and
// runners poll it instead of all contexts.
const changesKey = "edda:changes"

// changed counts that a context or runner was created, changed or deleted.
func (d *DB) changed(ctx context.Context) error {
	return d.try(ctx, "tell of a change", 0, func(c *database) error { return c.Incr(ctx, changesKey).Err() })
}

// Changes returns another text after each change of a context or runner by this package.
// It does not show what other programs write.
func (d *DB) Changes(ctx context.Context) (n string, err error) {
	err = d.try(ctx, "look for changes", 0, func(c *database) error {
		n, err = c.Get(ctx, changesKey).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	return n, err
}

// rightsFor is the time for which MayRun trusts a right that it has seen: a runner that takes
// thousands of jobs a second does not read the context for each. One that loses its
// right runs jobs no longer than that.
const rightsFor = time.Second

// rights caches contexts that were read a moment ago.
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

// MayRun reports whether the actor may have jobs run in the context: its admins and
// executors may. ErrDenied and ErrNotFound, of the context, deny it, always by a fresh read.
// Any other error says nothing about the right.
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
