package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda/hero"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

// aliveKey says which process the runner is, as long as it lives.
func aliveKey(runner uint32) string { return hero.RunnerAliveKey(runner) }

// heartbeat says that the runner lives, in one context.
type heartbeat struct {
	l    *contextLoop
	self string // this process
}

// beatScript: 1 the heartbeat is heard, 0 another process has the id.
var beatScript = redis.NewScript(`
local now = redis.call('GET', KEYS[1])
if now and now ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)

// lastScript removes the heartbeat, if it is this process's.
var lastScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`)

var errOther = errors.New("another process is this runner: give this one another id, or wait until that one is gone")

func (p *heartbeat) beat(ctx context.Context) error {
	c, err := p.l.r.db.Client(p.l.context)
	if err != nil {
		return err
	}
	heard, err := beatScript.Run(ctx, c, []string{aliveKey(p.l.r.id)}, p.self, p.l.r.o.Alive.Milliseconds()).Int()
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	if heard == 0 {
		return errOther
	}
	return nil
}

// claim begins the heartbeat and registers the runner. It waits while another
// process has the id: it may be this runner's former one, which just died.
func (l *contextLoop) claim(ctx context.Context) (*heartbeat, bool) {
	host, _ := os.Hostname() // for people only
	p := &heartbeat{l: l, self: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text())}
	claiming := logthrottle.New(l.log, "runner waits to serve the context")
	for retry := newRetry(); ; {
		err := p.beat(ctx)
		if err == nil {
			err = l.r.register(ctx, l.context)
		}
		switch {
		case err == nil:
			claiming.Worked()
			return p, true
		case ctx.Err() != nil:
			return nil, false
		}
		claiming.Failed(err)
		if backoff.Wait(ctx, retry.Next()) != nil {
			return nil, false
		}
	}
}

// run beats until ctx ends, or another process has the id.
func (p *heartbeat) run(ctx context.Context) {
	tick := time.NewTicker(p.l.r.o.Alive / beats)
	defer tick.Stop()
	beating := logthrottle.New(p.l.log, "heartbeat")
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := p.beat(ctx)
		if errors.Is(err, errOther) {
			p.l.log.Error("runner leaves the context", zap.Error(err))
			return
		}
		if ctx.Err() == nil {
			beating.Note(err)
		}
	}
}

// end removes the heartbeat, so that no other process waits until it expires.
func (p *heartbeat) end() {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	c, err := p.l.r.db.Client(p.l.context)
	if err == nil {
		err = lastScript.Run(ctx, c, []string{aliveKey(p.l.r.id)}, p.self).Err()
	}
	if err != nil {
		p.l.log.Warn("heartbeat not removed: other processes of this id wait until it expires", zap.Error(err))
	}
}

// lives tells whether a runner of the context is alive.
func (l *contextLoop) lives(ctx context.Context, runner uint32) (bool, error) {
	c, err := l.r.db.Client(l.context)
	if err != nil {
		return false, err
	}
	n, err := c.Exists(ctx, aliveKey(runner)).Result()
	if err != nil {
		return false, fmt.Errorf("look for runner %d: %w", runner, err)
	}
	return n == 1, nil
}
