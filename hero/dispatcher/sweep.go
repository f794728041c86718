package dispatcher

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda/hero"
	"edda/hero/list"
	"edda/internal/logthrottle"
)

const (
	// sweepEvery is the interval between two sweeps of a worker.
	sweepEvery = 10 * time.Second
	// scanEvery is the number of sweeps per scan of all jobs. A scan finds the stale jobs of
	// other programs' workers, but takes Redis time.
	scanEvery = 6
	// staleGrace is the time after its timeout at which a job without an end is stale.
	staleGrace = 30 * time.Second
	// maxRecovered bounds one step of a recovery.
	maxRecovered = 100
)

// Swept is the outcome of one sweep.
type Swept struct {
	Requeued []string `json:"requeued"` // run again within their retries
	Failed   []string `json:"failed"`   // no retry was left
	Released int      `json:"released"` // they waited for jobs that have ended
}

// sweeper requeues the jobs of dead workers. Any number may sweep at once, because each
// step is atomic and checks first.
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

// Sweep sweeps once.
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

// recoverDead takes back the jobs of dead processes.
func (s *sweeper) recoverDead(ctx context.Context, out *Swept) error {
	now, err := s.db.Time(ctx).Result()
	if err != nil {
		return trouble("ask Redis for its time", err)
	}
	members, err := s.db.ZRangeWithScores(ctx, workersKey, 0, -1).Result()
	if err != nil {
		return trouble("read the leases of the workers", err)
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
		return trouble("remove the lease of a worker", s.db.ZRem(ctx, workersKey, member).Err())
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
		answer, err := s.conn.run(ctx, s.scripts.stale, with(started, staleGrace.Milliseconds())...).Slice()
		if err != nil {
			return trouble("check started jobs", err)
		}
		s.add(out, answer)
	}
	return nil
}

func (s *sweeper) started(ctx context.Context, ids []string) ([]string, error) {
	var out []string
	for i, found := range s.statuses(ctx, ids) {
		status, err := found.Result()
		if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return nil, trouble("read the status of jobs", err)
		}
		if s, _ := hero.ParseJobStatus(status); err == nil && s == hero.JobStarted {
			out = append(out, ids[i])
		}
	}
	return out, nil
}

// release looks at all waiting jobs: workers of other programs release none.
func (s *sweeper) release(ctx context.Context, out *Swept) error {
	for cursor := uint64(0); ; {
		next, n, err := s.conn.releasePage(ctx, cursor)
		out.Released += n
		if cursor = next; err != nil || cursor == 0 {
			return err
		}
	}
}

// releasePage looks at a page of the waiting jobs. next is 0 after the last page.
func (l conn) releasePage(ctx context.Context, cursor uint64) (next uint64, released int, err error) {
	ids, next, err := l.db.SScan(ctx, waitingKey, cursor, "", scanPage).Result()
	if err != nil {
		return cursor, 0, trouble("read the waiting jobs", err)
	}
	if len(ids) == 0 {
		return next, 0, nil
	}
	released, err = l.run(ctx, l.scripts.release, with(ids)...).Int()
	if err != nil {
		return cursor, 0, trouble("release waiting jobs", err)
	}
	return next, released, nil
}

const (
	// keepEvery is the interval between two looks of a releaser.
	keepEvery = time.Second
	// keepPages bounds one look, so that ten thousand waiting jobs cost no more than a
	// thousand. The next look continues after it.
	keepPages = 2
)

// Releaser releases waiting jobs where no worker of Edda does: the document's worker records
// a result and releases no other job. Any number of releasers may run.
type Releaser struct {
	conn
	log      *zap.Logger
	released prometheus.Counter
	every    time.Duration
	cursor   uint64 // where the next look begins
}

// NewReleaser makes a releaser. The caller closes db.
func NewReleaser(db *redis.Client, reg prometheus.Registerer, log *zap.Logger) (*Releaser, error) {
	l, err := newConn(db, "", "")
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	return &Releaser{conn: l, log: log, released: m.swept.WithLabelValues("released"), every: keepEvery}, nil
}

// Run releases waiting jobs until ctx ends. It stops looking where the Redis user has no
// rights to the dispatcher's keys.
func (k *Releaser) Run(ctx context.Context) error {
	keeping, cancel := context.WithCancel(ctx)
	defer cancel()
	list.Every(keeping, k.every, newRetry(), logthrottle.New(k.log, "release the dispatcher's waiting jobs"), func(ctx context.Context) error {
		_, err := k.runOnce(ctx)
		if redis.HasErrorPrefix(err, "NOPERM") && ctx.Err() == nil {
			k.log.Info("the Redis user has no rights to hero:*: jobs of the dispatcher that wait are released by its workers and clients alone", zap.Error(err))
			cancel()
		}
		return err
	})
	<-ctx.Done()
	return nil
}

// runOnce looks at some of the waiting jobs.
func (k *Releaser) runOnce(ctx context.Context) (released int, err error) {
	for range keepPages {
		next, n, err := k.releasePage(ctx, k.cursor)
		k.cursor = next
		k.released.Add(float64(n))
		if released += n; err != nil || next == 0 {
			return released, err
		}
	}
	return released, nil
}
