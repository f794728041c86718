package dispatcher

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"edda/hero/redisdb/redisdbtest"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

func connect(t testing.TB, s *realservers.Server) *redis.Client {
	db := redis.NewClient(options(s.Address()))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func options(addr string) *redis.Options {
	return &redis.Options{Addr: addr, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, MaxRetries: -1}
}

// executor is an Executor made of a function.
type executor func(ctx context.Context, j Job, line func(string)) JobResult

func (e executor) Execute(ctx context.Context, j Job, line func(string)) JobResult {
	return e(ctx, j, line)
}

// echo returns the script as the output.
func echo(_ context.Context, j Job, _ func(string)) JobResult {
	return JobResult{OK: true, Output: j.Script}
}

// bench is a Redis with a client.
type bench struct {
	t      *testing.T
	server *realservers.Server
	db     *redis.Client
	client *Client
	ctx    context.Context
}

func newBench(t *testing.T, o Options) *bench {
	t.Helper()
	t.Parallel() // the tests mostly wait
	s := redisdbtest.Start(t, realservers.RedisOptions{})
	return benchOn(t, s, o)
}

func benchOn(t *testing.T, s *realservers.Server, o Options) *bench {
	t.Helper()
	db := connect(t, s)
	c, err := New(db, o)
	testkit.Must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return &bench{t, s, db, c, ctx}
}

// work runs a worker until stop, at the latest until the end of the test.
func (b *bench) work(id string, e executor, o WorkerOptions) (stop func()) {
	b.t.Helper()
	w, err := NewWorker(b.db, id, e, o)
	testkit.Must(b.t, err)
	return testkit.Run(b.t, w.Run)
}

// dispatch creates and submits a job.
func (b *bench) dispatch(j Job) Job {
	b.t.Helper()
	if j.Script == "" {
		j.Script = "x"
	}
	if j.WorkerID == "" {
		j.WorkerID = "w"
	}
	j, err := b.client.Dispatch(b.ctx, j)
	testkit.Must(b.t, err)
	return j
}

// ended waits for the end of a job, and returns "finished <output>" or "error <error>".
func (b *bench) ended(id string) string {
	b.t.Helper()
	j, err := b.client.Wait(b.ctx, id)
	testkit.Must(b.t, err)
	return told(j)
}

func told(j Job) string {
	if j.Error != "" {
		return fmt.Sprintf("%s %s", j.Status, j.Error)
	}
	return fmt.Sprintf("%s %s", j.Status, j.Output)
}

// idle checks that Redis holds only hashes and replies of jobs.
func (b *bench) idle(worker string) {
	b.t.Helper()
	for _, pattern := range []string{"hero:work_queue:*", "hero:q:work:*", "hero:taken:*", "hero:wait*", "hero:stop_queue:*", "hero:seen"} {
		keys, err := b.db.Keys(b.ctx, pattern).Result()
		testkit.Must(b.t, err)
		if len(keys) > 0 {
			b.t.Errorf("left over: %q", keys)
		}
	}
}

func z(member string, score float64) redis.Z { return redis.Z{Member: member, Score: score} }
