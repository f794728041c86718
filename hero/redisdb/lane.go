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
	// flights are under way at once: what one brought is worked on while Redis does
	// the other.
	flights = 2
)

// lane is the way to one database for the short steps of jobs. What many
// goroutines ask at once goes in one pipeline: the first to wait brings what came
// while the flights before it were on their way. Who comes alone does not wait. Each
// command does what it would do by itself, and has its own answer.
type lane struct {
	*redis.Client

	mu      sync.Mutex // guards what follows
	flying  int
	waiting []*ride
}

// ride is a command that waits for its flight.
type ride struct {
	cmd   redis.Cmder
	bytes int
	turn  chan []*ride // the flight that it leads; none: it is answered
}

// EvalSha is the client's, in a flight. A script that Redis does not know goes
// by itself.
func (l *lane) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	words, bytes := make([]any, 0, 3+len(keys)+len(args)), 0
	words = append(words, "evalsha", sha, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	for _, arg := range args {
		if s, ok := arg.(string); ok {
			bytes += len(s)
		}
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	l.fly(ctx, cmd, bytes)
	return cmd
}

// HGetAll is the client's, in a flight.
func (l *lane) HGetAll(ctx context.Context, key string) *redis.MapStringStringCmd {
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", key)
	l.fly(ctx, cmd, 0)
	return cmd
}

func (l *lane) fly(ctx context.Context, cmd redis.Cmder, bytes int) {
	if err := ctx.Err(); err != nil {
		cmd.SetErr(err)
		return
	}
	r := &ride{cmd: cmd, bytes: bytes, turn: make(chan []*ride, 1)}
	if flight := l.board(r); len(flight) > 0 {
		l.lead(ctx, flight)
	}
}

// board waits for a flight: for the answer that one brought, or for one to lead.
func (l *lane) board(r *ride) []*ride {
	l.mu.Lock()
	if l.flying < flights {
		l.flying++
		l.mu.Unlock()
		return []*ride{r}
	}
	l.waiting = append(l.waiting, r)
	l.mu.Unlock()
	return <-r.turn
}

// lead makes a flight, of which the leader's own command is the first, and hands
// over.
func (l *lane) lead(ctx context.Context, flight []*ride) {
	l.answer(ctx, flight)
	l.mu.Lock()
	if next := l.next(); len(next) > 0 {
		next[0].turn <- next
	} else {
		l.flying--
	}
	l.mu.Unlock()
	for _, r := range flight[1:] {
		r.turn <- nil
	}
}

// next takes as many of those that wait as one flight holds.
func (l *lane) next() []*ride {
	n, bytes := 0, 0
	for n < min(len(l.waiting), maxFlight) && (n == 0 || bytes+l.waiting[n].bytes <= flightBytes) {
		bytes += l.waiting[n].bytes
		n++
	}
	flight := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	return flight
}

// answer asks Redis. The others' commands do not end with the leader's context.
func (l *lane) answer(ctx context.Context, flight []*ride) {
	if len(flight) == 1 {
		_ = l.Process(ctx, flight[0].cmd) // the command has its error
		return
	}
	ctx = context.WithoutCancel(ctx)
	pipe := l.Pipeline()
	for _, r := range flight {
		_ = pipe.Process(ctx, r.cmd) // only noted
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}
