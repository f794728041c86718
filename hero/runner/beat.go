package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda/hero"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

// beatScript renews the heartbeat. It answers 0 where another process has the id, else 1.
var beatScript = redis.NewScript(`
local now = redis.call('GET', KEYS[1])
if now and now ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)

// lastScript removes the heartbeat of this process.
var lastScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`)

var errOther = errors.New("another process is this runner: give this one another id, or wait until that one is gone")

func (l *contextLoop) beat(ctx context.Context) error {
	renewed, err := beatScript.Run(ctx, l.Redis, []string{hero.RunnerAliveKey(l.r.id)}, l.self, l.r.o.Alive.Milliseconds()).Int()
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	if renewed == 0 {
		return errOther
	}
	return nil
}

// claim starts the heartbeat and registers the runner. It waits while another process has
// the id, which may be this runner's former process that just died. false means that ctx
// ended.
func (l *contextLoop) claim(ctx context.Context) bool {
	claiming := logthrottle.New(l.Log, "runner waits to serve the context")
	for retry := newRetry(); ; {
		err := l.beat(ctx)
		if err == nil {
			err = l.r.register(ctx, l.Context)
		}
		if err == nil {
			claiming.Worked()
			return true
		}
		if ctx.Err() == nil {
			claiming.Failed(err)
		}
		if backoff.Wait(ctx, retry.Next()) != nil {
			return false
		}
	}
}

// beats renews the heartbeat until ctx ends or another process has the id.
func (l *contextLoop) beats(ctx context.Context) {
	beating := logthrottle.New(l.Log, "heartbeat")
	for backoff.Wait(ctx, l.r.o.Alive/beats) == nil {
		err := l.beat(ctx)
		if errors.Is(err, errOther) {
			l.Log.Error("runner leaves the context", zap.Error(err))
			return
		}
		if ctx.Err() == nil {
			beating.Note(err)
		}
	}
}

// lastBeat removes the heartbeat, so that no other process waits until it expires.
func (l *contextLoop) lastBeat() {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	if err := lastScript.Run(ctx, l.Redis, []string{hero.RunnerAliveKey(l.r.id)}, l.self).Err(); err != nil {
		l.Log.Warn("heartbeat not removed: other processes of this id wait until it expires", zap.Error(err))
	}
}

// lives reports whether a runner of the context has a heartbeat.
func (l *contextLoop) lives(ctx context.Context, runner uint32) (bool, error) {
	n, err := l.Redis.Exists(ctx, hero.RunnerAliveKey(runner)).Result()
	if err != nil {
		return false, fmt.Errorf("look for runner %d: %w", runner, err)
	}
	return n == 1, nil
}
