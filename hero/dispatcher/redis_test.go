package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"edda/internal/realservers"
)

// startRedis starts a redis-server; it ends with the test.
func startRedis(t testing.TB, o realservers.RedisOptions) *realservers.Server {
	t.Helper()
	s, err := realservers.Redis(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

func connect(t testing.TB, s *realservers.Server) *redis.Client {
	db := redis.NewClient(options(s.Address()))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func options(addr string) *redis.Options {
	return &redis.Options{Addr: addr, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, MaxRetries: -1}
}

// eventually polls a condition until it holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// executor runs "scripts" that a test makes up.
type executor func(ctx context.Context, j Job, line func(string)) JobResult

func (e executor) Execute(ctx context.Context, j Job, line func(string)) JobResult {
	return e(ctx, j, line)
}

// echo gives back the script.
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
	t.Parallel() // they mostly wait
	s := startRedis(t, realservers.RedisOptions{})
	return benchOn(t, s, o)
}

func benchOn(t *testing.T, s *realservers.Server, o Options) *bench {
	t.Helper()
	db := connect(t, s)
	c, err := New(db, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return &bench{t, s, db, c, ctx}
}

// work starts a worker; the function it returns stops it and waits for it.
func (b *bench) work(id string, e executor, o WorkerOptions) (stop func()) {
	b.t.Helper()
	w, err := NewWorker(b.db, id, e, o)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("worker %s: %v", id, err)
		}
	})
	b.t.Cleanup(stop)
	return stop
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
	if err != nil {
		b.t.Fatal(err)
	}
	return j
}

// ended waits for a job and says how it ended: finished <output>, or error <error>.
func (b *bench) ended(id string) string {
	b.t.Helper()
	j, err := b.client.Wait(b.ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return told(j)
}

func told(j Job) string {
	if j.Error != "" {
		return fmt.Sprintf("%s %s", j.Status, j.Error)
	}
	return fmt.Sprintf("%s %s", j.Status, j.Output)
}

// idle checks that nothing is left of any job but its hash and its reply.
func (b *bench) idle(worker string) {
	b.t.Helper()
	for _, pattern := range []string{"hero:work_queue:*", "hero:q:work:*", "hero:taken:*", "hero:wait*", "hero:stop_queue:*", "hero:seen"} {
		keys, err := b.db.Keys(b.ctx, pattern).Result()
		if err != nil {
			b.t.Fatal(err)
		}
		if len(keys) > 0 {
			b.t.Errorf("left over: %q", keys)
		}
	}
}

func z(member string, score float64) redis.Z { return redis.Z{Member: member, Score: score} }
