package redisdb

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// The bounds of one flight. A longer one would keep Redis from others, and this
// process from the first of its answers; a larger one has scripts that are large.
const (
	maxFlight   = 64
	flightBytes = 1 << 20
	// airborne flights of a kind are under way at once: what one brought is worked
	// on while Redis does the others. Each beside the first leaves when worthAFlight wait.
	airborne     = 3
	worthAFlight = maxFlight / 4
)

// lane is the way to one database for the short steps of jobs. What many
// goroutines ask at once goes together.
type lane struct {
	*redis.Client
	commands flights[redis.Cmder] // in one pipeline
	steps    flights[*step]       // in one transaction
}

func newLane(c *redis.Client) *lane {
	l := &lane{Client: c}
	l.commands.fly, l.steps.fly, l.steps.keys = l.pipe, l.transact, func(s *step) []string { return s.keys }
	return l
}

// EvalSha is the client's, in a flight. A script that Redis does not know goes
// by itself.
func (l *lane) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", sha, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	l.ask(ctx, cmd, size(args))
	return cmd
}

// HGetAll is the client's, in a flight.
func (l *lane) HGetAll(ctx context.Context, key string) *redis.MapStringStringCmd {
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", key)
	l.ask(ctx, cmd, 0)
	return cmd
}

func (l *lane) ask(ctx context.Context, cmd redis.Cmder, bytes int) {
	if err := ctx.Err(); err != nil {
		cmd.SetErr(err)
		return
	}
	l.commands.join(ctx, cmd, bytes)
}

// pipe asks Redis. The others' commands do not end with the leader's context.
func (l *lane) pipe(ctx context.Context, cmds []redis.Cmder) {
	if len(cmds) == 1 {
		_ = l.Process(ctx, cmds[0]) // the command has its error
		return
	}
	ctx = context.WithoutCancel(ctx)
	pipe := l.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd) // only noted
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}

// flights carry what many goroutines ask at once: the first to wait brings what
// came while the flights before it were on their way. Who comes alone does not
// wait. Each asks for what it would ask for by itself, and has its own answer.
type flights[T any] struct {
	fly  func(context.Context, []T)
	keys func(T) []string // no two of one flight have one in common; nil: they may

	mu      sync.Mutex // guards what follows
	flying  int
	waiting []*ride[T]
}

// ride waits for its flight.
type ride[T any] struct {
	what  T
	bytes int
	turn  chan []*ride[T] // the flight that it leads; none: it is answered
}

// join returns when it has its answer.
func (f *flights[T]) join(ctx context.Context, what T, bytes int) {
	r := &ride[T]{what: what, bytes: bytes, turn: make(chan []*ride[T], 1)}
	if flight := f.board(r); len(flight) > 0 {
		f.lead(ctx, flight)
	}
}

// board waits for a flight: for the answer that one brought, or for one to lead.
func (f *flights[T]) board(r *ride[T]) []*ride[T] {
	f.mu.Lock()
	f.waiting = append(f.waiting, r)
	f.depart()
	f.mu.Unlock()
	return <-r.turn
}

// depart lets the next flight leave, if it may and is worth it; what waits for more
// to come leaves when a flight is back. f.mu is held.
func (f *flights[T]) depart() {
	if f.flying == 0 || f.flying < airborne && len(f.waiting) >= worthAFlight {
		if next := f.next(); len(next) > 0 {
			f.flying++
			next[0].turn <- next
		}
	}
}

// lead makes a flight, of which the leader's own ride is the first, and hands
// over.
func (f *flights[T]) lead(ctx context.Context, flight []*ride[T]) {
	all := make([]T, len(flight))
	for i, r := range flight {
		all[i] = r.what
	}
	f.fly(ctx, all)
	f.mu.Lock()
	f.flying--
	f.depart()
	f.mu.Unlock()
	for _, r := range flight[1:] {
		r.turn <- nil
	}
}

// next takes as many of those that wait as one flight holds, in their order. One
// whose key is another's already waits for the flight after.
func (f *flights[T]) next() (flight []*ride[T]) {
	bytes, left, taken := 0, f.waiting[:0], map[string]bool{}
	full := false
	for _, r := range f.waiting {
		full = full || len(flight) == maxFlight || len(flight) > 0 && bytes+r.bytes > flightBytes
		if full || !f.claim(r, taken) {
			left = append(left, r)
			continue
		}
		bytes += r.bytes
		flight = append(flight, r)
	}
	clear(f.waiting[len(left):])
	f.waiting = left
	return flight
}

// claim takes the ride's keys, if nobody has any of them.
func (f *flights[T]) claim(r *ride[T], taken map[string]bool) bool {
	if f.keys == nil {
		return true
	}
	keys := f.keys(r.what)
	for _, key := range keys {
		if taken[key] {
			return false
		}
	}
	for _, key := range keys {
		taken[key] = true
	}
	return true
}
