package dispatcher

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda/hero"
	"edda/hero/list"
	"edda/internal/logthrottle"
)

const (
	// sweepEvery is how often a worker looks for what others left behind.
	sweepEvery = 10 * time.Second
	// scanEvery is how many sweeps go by between scans of all jobs, which find
	// what the workers of others left: a scan costs Redis time.
	scanEvery = 6
	// staleGrace is how long after its timeout a job that nobody ended is stale.
	staleGrace = 30 * time.Second
	// maxRecovered bounds one step of a recovery.
	maxRecovered = 100
)

// Swept says what one sweep did.
type Swept struct {
	Requeued []string `json:"requeued"` // run again within their retries
	Failed   []string `json:"failed"`   // no retry was left
	Released int      `json:"released"` // waited for jobs that have ended
}

// sweeper finds what workers left behind. Any number may sweep at once: each step
// is atomic and looks first.
type sweeper struct {
	conn
	metrics *metrics
	log     *zap.Logger
	every   time.Duration
}

func newSweeper(l conn, m *metrics, log *zap.Logger, every time.Duration) *sweeper {
	if every == 0 {
		every = sweepEvery
	}
	return &sweeper{l, m, log, every}
}

// Sweep looks once for what workers left behind.
func (c *Client) Sweep(ctx context.Context) (Swept, error) {
	return newSweeper(c.conn, c.metrics, zap.NewNop(), -1).sweep(ctx, true)
}

// Run sweeps until ctx ends.
func (s *sweeper) Run(ctx context.Context) {
	if s.every < 0 {
		return
	}
	n := 0
	list.Every(ctx, s.every, newRetry(), logthrottle.New(s.log, "sweep of stale jobs"), func(ctx context.Context) error {
		swept, err := s.sweep(ctx, n%scanEvery == 0)
		n++
		if len(swept.Requeued)+len(swept.Failed) > 0 {
			s.log.Info("found stale jobs", zap.Strings("requeued", swept.Requeued), zap.Strings("failed", swept.Failed))
		}
		return err
	})
}

func (s *sweeper) sweep(ctx context.Context, scan bool) (Swept, error) {
	var out Swept
	err := s.recoverDead(ctx, &out)
	if scan {
		err = errors.Join(err, s.scan(ctx, &out))
	}
	err = errors.Join(err, s.release(ctx, &out))
	s.metrics.swept.WithLabelValues("requeued").Add(float64(len(out.Requeued)))
	s.metrics.swept.WithLabelValues("failed").Add(float64(len(out.Failed)))
	s.metrics.swept.WithLabelValues("released").Add(float64(out.Released))
	return out, err
}

// recoverDead takes back what processes had taken that live no more.
func (s *sweeper) recoverDead(ctx context.Context, out *Swept) error {
	now, err := s.db.Time(ctx).Result()
	if err != nil {
		return trouble("ask Redis for its time", err)
	}
	members, err := s.db.ZRangeWithScores(ctx, workersKey, 0, -1).Result()
	if err != nil {
		return trouble("look who lives", err)
	}
	alive := 0
	for _, m := range members {
		if m.Score > float64(now.UnixMilli()) {
			alive++
			continue
		}
		name, _ := m.Member.(string)
		if err := s.recoverOne(ctx, name, out); err != nil {
			return err
		}
	}
	s.metrics.alive.Set(float64(alive))
	return nil
}

func (s *sweeper) recoverOne(ctx context.Context, member string, out *Swept) error {
	i := strings.LastIndexByte(member, '/')
	if i < 0 {
		return trouble("forget a worker", s.db.ZRem(ctx, workersKey, member).Err())
	}
	for {
		answer, err := s.conn.run(ctx, s.scripts.recover, member[:i], member[i+1:], maxRecovered).Slice()
		if err != nil {
			return trouble("take back the jobs of "+member, err)
		}
		s.add(out, answer)
		if left, _ := answer[2].(int64); left == 0 {
			return nil
		}
	}
}

func (s *sweeper) add(out *Swept, answer []any) {
	out.Requeued = append(out.Requeued, texts(answer[0])...)
	out.Failed = append(out.Failed, texts(answer[1])...)
}

// scan looks at every started job.
func (s *sweeper) scan(ctx context.Context, out *Swept) error {
	for ids, err := range s.pages(ctx) {
		if err != nil {
			return err
		}
		started, err := s.started(ctx, ids)
		if err != nil {
			return err
		}
		if len(started) == 0 {
			continue
		}
		answer, err := s.conn.run(ctx, s.scripts.stale, append([]any{staleGrace.Milliseconds()}, started...)...).Slice()
		if err != nil {
			return trouble("look at started jobs", err)
		}
		s.add(out, answer)
	}
	return nil
}

func (s *sweeper) started(ctx context.Context, ids []string) ([]any, error) {
	pipe := s.db.Pipeline()
	found := make([]*redis.StringCmd, len(ids))
	for i, id := range ids {
		found[i] = pipe.HGet(ctx, JobKey(id), "status")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	var out []any
	for i, id := range ids {
		status, err := found[i].Result()
		if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return nil, trouble("read the status of jobs", err)
		}
		if s, _ := hero.ParseJobStatus(status); err == nil && s == hero.JobStarted {
			out = append(out, id)
		}
	}
	return out, nil
}

// release looks at all jobs that wait: a worker of others lets nobody go.
func (s *sweeper) release(ctx context.Context, out *Swept) error {
	for cursor := uint64(0); ; {
		next, n, err := s.conn.releasePage(ctx, cursor)
		out.Released += n
		if cursor = next; err != nil || cursor == 0 {
			return err
		}
	}
}

// releasePage looks at a page of the jobs that wait; next is 0 behind the last one.
func (l conn) releasePage(ctx context.Context, cursor uint64) (next uint64, released int, err error) {
	ids, next, err := l.db.SScan(ctx, waitingKey, cursor, "", scanPage).Result()
	if err != nil {
		return cursor, 0, trouble("look who waits", err)
	}
	if len(ids) == 0 {
		return next, 0, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	released, err = l.run(ctx, l.scripts.release, args...).Int()
	if err != nil {
		return cursor, 0, trouble("release jobs that wait", err)
	}
	return next, released, nil
}
