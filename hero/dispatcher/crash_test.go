package dispatcher

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/hero"
	"edda/internal/testkit"
)

const (
	// workAt makes the test binary a worker process. Its value is the address of Redis.
	workAt = "EDDA_TEST_DISPATCHER_WORKER"
	// seedFrom passes the seed of the random choices to the worker processes.
	seedFrom = "EDDA_CRASH_SEED"
)

// crashSeed returns the seed in EDDA_CRASH_SEED, by default the same in every run.
func crashSeed() (uint64, error) {
	text := os.Getenv(seedFrom)
	if text == "" {
		return 1, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

func TestMain(m *testing.M) {
	if addr := os.Getenv(workAt); addr != "" {
		if err := workHere(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// workHere works until the process is killed.
func workHere(addr string) error {
	seed, err := crashSeed()
	if err != nil {
		return err
	}
	db := redis.NewClient(options(addr))
	w, err := NewWorker(db, "w", witness{db, seed}, WorkerOptions{Concurrency: 4, Beat: 100 * time.Millisecond, Sweep: 50 * time.Millisecond})
	if err != nil {
		return err
	}
	return w.Run(context.Background())
}

// witness executes scripts, and records in Redis each run of a job that has a result.
type witness struct {
	db   *redis.Client
	seed uint64
}

// takes derives the duration of a script from the seed and the job.
func (w witness) takes(j Job) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(j.ID))
	return time.Duration(rand.New(rand.NewPCG(w.seed, h.Sum64())).IntN(20)) * time.Millisecond
}

func (w witness) Execute(ctx context.Context, j Job, _ func(string)) JobResult {
	if w.db.Exists(ctx, SchemeProtocol.ReplyQueue(j.ID)).Val() != 0 {
		w.db.SAdd(ctx, "violations", j.ID+" ran although it had ended")
	}
	time.Sleep(w.takes(j))
	w.db.Incr(ctx, "runs")
	if strings.HasPrefix(j.Script, "fail") {
		return JobResult{Error: "exit 3", Final: true}
	}
	return JobResult{OK: true, Output: j.Script}
}

// process is a worker process.
type process struct{ cmd *exec.Cmd }

func (p *process) start(t *testing.T, addr string, seed uint64) {
	t.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), workAt+"="+addr, fmt.Sprintf("%s=%d", seedFrom, seed))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	testkit.Must(t, p.cmd.Start())
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Two workers of one id are killed at random, again and again. Every job ends once, as it
// does without kills.
func TestWorkersAreKilledAtRandom(t *testing.T) {
	seed, err := crashSeed()
	testkit.Must(t, err)
	t.Logf("%s=%d", seedFrom, seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	b := newBench(t, Options{})
	want := crashJobs(b)
	var workers [2]process
	for i := range workers {
		workers[i].start(t, b.server.Address(), seed)
		t.Cleanup(workers[i].kill)
	}
	const kills = 14
	for range kills {
		runs, _ := b.db.Get(b.ctx, "runs").Int()
		testkit.Until(t, 20*time.Second, "some run", func() bool { n, _ := b.db.Get(b.ctx, "runs").Int(); return n > runs || ended(b, want) })
		time.Sleep(time.Duration(rnd.IntN(80)) * time.Millisecond) // to kill at random moments
		p := &workers[rnd.IntN(len(workers))]
		p.kill()
		p.start(t, b.server.Address(), seed)
	}
	testkit.Until(t, 20*time.Second, "all ended", func() bool { return ended(b, want) })
	attempts := 0
	for id, how := range want {
		j, err := b.client.Job(b.ctx, id)
		if err != nil || told(j) != how {
			t.Errorf("%s: %s, want %s (%v)", id, told(j), how, err)
		}
		if n := b.db.LLen(b.ctx, SchemeProtocol.ReplyQueue(id)).Val(); n != 1 {
			t.Errorf("%s has %d results", id, n)
		}
		attempts += int(j.Attempts)
	}
	if v := b.db.SMembers(b.ctx, "violations").Val(); len(v) > 0 {
		t.Errorf("%q", v)
	}
	testkit.Until(t, 20*time.Second, "the dead are forgotten", func() bool { return b.db.ZCard(b.ctx, workersKey).Val() == int64(len(workers)) })
	b.idle("w")
	t.Logf("%d jobs, %d kills, %d runs began", len(want), kills, attempts)
}

// crashJobs dispatches jobs of every kind, and returns the end that each has without kills.
func crashJobs(b *bench) map[string]string {
	want := map[string]string{}
	for i := range 900 {
		j := Job{ID: fmt.Sprintf("j%03d", i), WorkerID: "w", Script: fmt.Sprintf("s%d", i), Retries: 1000, Concurrent: i%9 != 0}
		how := "finished " + j.Script
		if i%20 == 19 {
			j.Script, how = "fail", "error exit 3"
		}
		if i%10 == 0 && i > 0 {
			before := fmt.Sprintf("j%03d", i-1)
			j.Dependencies = []string{before}
			if strings.HasPrefix(want[before], "error") {
				how = "error dependency " + before + " failed: exit 3"
			}
		}
		want[j.ID] = how
		b.dispatch(j)
	}
	return want
}

func ended(b *bench, want map[string]string) bool {
	n := 0
	for j, err := range b.client.List(b.ctx, Filter{}) {
		if err == nil && (j.Status == hero.JobFinished || j.Status == hero.JobError) {
			n++
		}
	}
	return n == len(want)
}
