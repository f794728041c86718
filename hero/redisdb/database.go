package redisdb

import (
	"context"

	"github.com/redis/go-redis/v9"

	"edda/internal/coalesce"
)

// database is one database of Redis. It coalesces the short commands and steps that many
// goroutines request at once.
type database struct {
	*redis.Client
	commands coalesce.Coalescer[redis.Cmder] // in one pipeline
	steps    coalesce.Coalescer[*step]       // in one transaction
}

func newDatabase(c *redis.Client) *database {
	l := &database{Client: c}
	l.commands.Send, l.steps.Send, l.steps.Keys = l.pipe, l.transact, func(s *step) []string { return s.keys }
	return l
}

// EvalSha is the client's, coalesced. A script that Redis does not know goes
// by itself.
func (l *database) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", sha, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	l.ask(ctx, cmd, size(args))
	return cmd
}

// HGetAll is the client's, coalesced.
func (l *database) HGetAll(ctx context.Context, key string) *redis.MapStringStringCmd {
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", key)
	l.ask(ctx, cmd, 0)
	return cmd
}

func (l *database) ask(ctx context.Context, cmd redis.Cmder, bytes int) {
	if err := ctx.Err(); err != nil {
		cmd.SetErr(err)
		return
	}
	l.commands.Do(ctx, cmd, bytes)
}

// pipe asks Redis. The others' commands do not end with the leader's context.
func (l *database) pipe(ctx context.Context, cmds []redis.Cmder) {
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
