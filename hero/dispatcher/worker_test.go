package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"edda"
	"edda/hero"
	"edda/internal/testkit"
)

// held is an executor that blocks until the test continues it, or its context ends.
type held struct {
	began chan string
	goOn  chan struct{}
	most  atomic.Int64 // runs at once
	now   atomic.Int64
}

func newHeld() *held { return &held{began: make(chan string, 100), goOn: make(chan struct{})} }

func (h *held) Execute(ctx context.Context, j Job, _ func(string)) JobResult {
	h.most.Store(max(h.most.Load(), h.now.Add(1)))
	defer h.now.Add(-1)
	h.began <- j.ID
	select {
	case <-h.goOn:
		return JobResult{OK: true}
	case <-ctx.Done():
		return JobResult{Error: "interrupted"}
	}
}

func TestAJobThatIsNotConcurrentRunsAlone(t *testing.T) {
	b := newBench(t, Options{})
	var alone, beside atomic.Int64
	var bad atomic.Bool
	run := func(_ context.Context, j Job, _ func(string)) JobResult {
		n := &beside
		if !j.Concurrent {
			n = &alone
		}
		n.Add(1)
		defer n.Add(-1)
		for range 20 {
			if a := alone.Load(); a > 1 || a == 1 && beside.Load() > 0 {
				bad.Store(true)
			}
			time.Sleep(100 * time.Microsecond)
		}
		return JobResult{OK: true}
	}
	var last string
	stop := b.work("w", run, WorkerOptions{Concurrency: 4})
	for i := range 120 {
		last = b.dispatch(Job{Concurrent: i%5 != 0 && i != 119}).ID
	}
	if got := b.ended(last); got != "finished " {
		t.Error(got)
	}
	if bad.Load() {
		t.Error("a job that is not concurrent ran beside another")
	}
	stop()
	b.idle("w")
}

func TestConcurrentJobsRunAtOnce(t *testing.T) {
	b := newBench(t, Options{})
	h := newHeld()
	stop := b.work("w", h.Execute, WorkerOptions{Concurrency: 3})
	var ids []string
	for range 7 {
		ids = append(ids, b.dispatch(Job{Concurrent: true}).ID)
	}
	for range 3 {
		<-h.began
	}
	close(h.goOn)
	for _, id := range ids {
		b.ended(id)
	}
	if h.most.Load() != 3 {
		t.Errorf("%d at once, want 3", h.most.Load())
	}
	stop()
	b.idle("w")
}

func TestStopBeforeAndWhileRunning(t *testing.T) {
	b := newBench(t, Options{})
	h := newHeld()
	stop := b.work("w", h.Execute, WorkerOptions{})
	running, queued := b.dispatch(Job{Retries: 5}), b.dispatch(Job{Retries: 5})
	<-h.began
	b.db.LPush(b.ctx, StopQueue("w"), "of somebody else's job", queued.ID)
	b.db.HSet(b.ctx, "hero:job:of somebody else's job", "status", "dispatched")
	for range 2 {
		if fate, err := b.client.Stop(b.ctx, running.ID); fate != StopAsked || err != nil {
			t.Fatal(fate, err)
		}
	}
	if got := b.ended(running.ID); got != "error stopped_by_request" {
		t.Error(got)
	}
	if got := b.ended(queued.ID); got != "error stopped" {
		t.Error(got)
	}
	if _, err := b.client.Stop(b.ctx, queued.ID); !errors.Is(err, ErrEnded) {
		t.Errorf("after its end: %v", err)
	}
	if got := b.db.LRange(b.ctx, StopQueue("w"), 0, -1).Val(); len(got) != 1 {
		t.Errorf("the stop queue holds %q: want the other's request only", got)
	}
	if len(h.began) != 0 {
		t.Error("the queued job began")
	}
	// The next look removes a request that came too late.
	b.db.HSet(b.ctx, "hero:job:of somebody else's job", "status", "finished")
	b.dispatch(Job{})
	testkit.Until(t, 20*time.Second, "the stop queue is empty", func() bool { return b.db.LLen(b.ctx, StopQueue("w")).Val() == 0 })
	close(h.goOn)
	stop()
}

func TestFailuresUseTheRetries(t *testing.T) {
	b := newBench(t, Options{})
	var runs atomic.Int64
	reg := prometheus.NewRegistry()
	stop := b.work("w", func(_ context.Context, j Job, _ func(string)) JobResult {
		n := runs.Add(1)
		switch j.Script {
		case "panic":
			panic("oh no")
		case "final":
			return JobResult{Error: "refused: nobody would run it", Final: true}
		case "silent":
			return JobResult{}
		}
		return JobResult{OK: n == 3, Output: "some", Error: ErrorTimeout}
	}, WorkerOptions{Metrics: reg})
	j, err := b.client.Run(b.ctx, Job{WorkerID: "w", Script: "x", Retries: 2})
	if err != nil || told(j) != "finished some" || j.Attempts != 3 {
		t.Errorf("%s after %d attempts, %v", told(j), j.Attempts, err)
	}
	j, err = b.client.Run(b.ctx, Job{WorkerID: "w", Script: "x", Retries: 1})
	if err != nil || told(j) != "error timeout" || j.Attempts != 2 || j.Output != "some" {
		t.Errorf("%+v, %v", j, err)
	}
	for script, want := range map[string]string{"panic": "error the executor panicked: oh no", "final": "error refused: nobody would run it", "silent": "error failed, and did not say why"} {
		j, err = b.client.Run(b.ctx, Job{WorkerID: "w", Script: script, Retries: map[string]uint32{"panic": 3, "final": 3}[script]})
		if err != nil || told(j) != want || j.Attempts != 1 {
			t.Errorf("%+v, %v", j, err)
		}
	}
	stop()
	b.idle("w")
	want := `
# HELP edda_hero_dispatcher_jobs_completed_total Jobs that ended, by status and by class of error: timeout, stopped, stopped_by_request, worker_lost, dependency, invalid or failed.
# TYPE edda_hero_dispatcher_jobs_completed_total counter
edda_hero_dispatcher_jobs_completed_total{error="failed",status="error",worker="w"} 3
edda_hero_dispatcher_jobs_completed_total{error="none",status="finished",worker="w"} 1
edda_hero_dispatcher_jobs_completed_total{error="timeout",status="error",worker="w"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "edda_hero_dispatcher_jobs_completed_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestHashesThatCannotBeRun(t *testing.T) {
	b := newBench(t, Options{})
	b.db.HSet(b.ctx, "hero:job:broken", "worker_id", "w", "script", "x", "timeout", "soon", "status", "dispatched", "theirs", "kept")
	b.db.HSet(b.ctx, "hero:job:empty", "worker_id", "w", "status", "dispatched")
	b.db.LPush(b.ctx, "hero:job:list", "x")
	b.db.LPush(b.ctx, "hero:work_queue:w", "broken", "missing", "list", "empty", "not a job at all\x00\xff", "")
	good := b.dispatch(Job{Script: "good"})
	stop := b.work("w", echo, WorkerOptions{Concurrency: 3})
	if got := b.ended(good.ID); got != "finished good" {
		t.Error(got)
	}
	stop()
	for id, want := range map[string]string{
		"broken": `invalid: hash hero:job:broken: field timeout is "soon": want a whole number from 0 to 4294967295`, "empty": "invalid: the job has no script",
	} {
		if h := b.db.HGetAll(b.ctx, JobKey(id)).Val(); h["status"] != "error" || h["error"] != want {
			t.Errorf("%s: %q", id, h)
		}
	}
	if got := b.db.HGet(b.ctx, "hero:job:broken", "timeout").Val() + b.db.HGet(b.ctx, "hero:job:broken", "theirs").Val(); got != "soonkept" {
		t.Errorf("foreign fields are %q now", got)
	}
	if got := b.db.LLen(b.ctx, "hero:job:list").Val(); got != 1 {
		t.Error("a foreign list was changed")
	}
	b.idle("w")
}

// A job with a result never runs again, however often its id is in the queue.
func TestAnIDThatIsQueuedAgainDoesNotRunAgain(t *testing.T) {
	b := newBench(t, Options{})
	h := newHeld()
	stop := b.work("w", h.Execute, WorkerOptions{Concurrency: 4})
	j := b.dispatch(Job{Concurrent: true})
	<-h.began
	b.db.LPush(b.ctx, "hero:work_queue:w", j.ID, j.ID)
	testkit.Until(t, 20*time.Second, "the queue is empty", func() bool { n, _ := b.client.Depth(b.ctx, "w"); return n == 0 })
	close(h.goOn)
	b.ended(j.ID)
	b.db.LPush(b.ctx, "hero:work_queue:w", j.ID, j.ID)
	testkit.Until(t, 20*time.Second, "the queue is empty", func() bool { n, _ := b.client.Depth(b.ctx, "w"); return n == 0 })
	stop()
	b.idle("w")
	if j, _ := b.client.Job(b.ctx, j.ID); len(h.began) != 0 || j.Attempts != 1 || j.Status != hero.JobFinished {
		t.Errorf("it ran again: %+v", j)
	}
}

func TestAStoppedWorkerPutsBackJobsThatDoNotEnd(t *testing.T) {
	b := newBench(t, Options{})
	h := newHeld()
	first := b.dispatch(Job{})
	second := b.dispatch(Job{})
	stop := b.work("w", h.Execute, WorkerOptions{Grace: 10 * time.Millisecond})
	<-h.began
	stop()
	if got := b.db.LRange(b.ctx, "hero:work_queue:w", 0, -1).Val(); fmt.Sprint(got) != fmt.Sprint([]string{second.ID, first.ID}) {
		t.Errorf("the queue holds %q", got)
	}
	if j, _ := b.client.Job(b.ctx, first.ID); j.Status != hero.JobDispatched || j.Attempts != 0 {
		t.Errorf("%+v", j)
	}
	if n := b.db.Exists(b.ctx, workersKey, "hero:worker:w").Val(); n != 0 {
		t.Error("a worker that has gone counts as alive")
	}
	b.work("w", echo, WorkerOptions{})
	b.ended(first.ID)
	b.ended(second.ID)
}

func TestAStoppedWorkerLetsJobsEndInTheirGrace(t *testing.T) {
	b := newBench(t, Options{})
	h := newHeld()
	j := b.dispatch(Job{})
	stop := b.work("w", h.Execute, WorkerOptions{})
	<-h.began
	time.AfterFunc(50*time.Millisecond, func() { close(h.goOn) })
	stop()
	if got := b.ended(j.ID); got != "finished " {
		t.Error(got)
	}
}

// The answer to a take was lost, so the taken list has a job that the worker does not know.
func TestAJobWhoseTakingWasNotHeardOfRuns(t *testing.T) {
	b := newBench(t, Options{})
	w, err := NewWorker(b.db, "w", executor(echo), WorkerOptions{Beat: 20 * time.Millisecond, Sweep: -1})
	testkit.Must(t, err)
	j := b.dispatch(Job{Script: "found"})
	if _, err := w.exchange(b.ctx, 0, 1, nil); err != nil { // the answer is dropped
		t.Fatal(err)
	}
	moved := b.dispatch(Job{Script: "found too"})
	testkit.Must(t, b.db.LMove(b.ctx, "hero:work_queue:w", w.taken, "RIGHT", "LEFT").Err())
	if j, _ := b.client.Job(b.ctx, j.ID); j.Status != hero.JobStarted {
		t.Fatalf("%+v", j)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for id, want := range map[string]string{j.ID: "finished found", moved.ID: "finished found too"} {
		if got := b.ended(id); got != want {
			t.Error(got)
		}
	}
	if j, _ := b.client.Job(b.ctx, j.ID); j.Attempts != 1 {
		t.Errorf("%d attempts", j.Attempts)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.idle("w")
}

func TestEndedJobsAreKeptAsLongAsTold(t *testing.T) {
	b := newBench(t, Options{})
	b.work("w", echo, WorkerOptions{Keep: time.Hour})
	j := b.dispatch(Job{})
	b.ended(j.ID)
	if ttl := b.db.TTL(b.ctx, JobKey(j.ID)).Val(); ttl < 59*time.Minute {
		t.Errorf("kept for %s", ttl)
	}
}

func TestWorkerOptions(t *testing.T) {
	for name, o := range map[string]WorkerOptions{
		"concurrency": {Concurrency: -1}, "much": {Concurrency: maxConcurrency + 1}, "grace": {Grace: -1}, "keep": {Keep: time.Millisecond},
		"order": {Order: "random"}, "scheme": {Scheme: "other"}, "beat": {Beat: 1},
	} {
		if _, err := NewWorker(nil, "w", executor(echo), o); !errors.Is(err, edda.Permanent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewWorker(nil, "", executor(echo), WorkerOptions{}); !errors.Is(err, edda.Permanent) {
		t.Error(err)
	}
}

// room reserves a place for the job that a blocking take may return.
func TestRoom(t *testing.T) {
	w, err := NewWorker(nil, "w", executor(echo), WorkerOptions{Concurrency: 3})
	testkit.Must(t, err)
	steps := []struct {
		does func()
		want int
	}{
		{func() {}, 3},
		{func() { w.fetching = true }, 2},
		{func() { w.pending = []string{"gate", "a"} }, 1},
		{func() { w.running["b"] = &runningJob{} }, 0},
		{func() { w.fetching = false }, 1},
		{func() { w.blocked = true }, 0},
		{func() { w.blocked, w.running["b"].alone = false, true }, 0},
		{func() { delete(w.running, "b") }, 2},
	}
	for i, s := range steps {
		if s.does(); w.room() != s.want {
			t.Errorf("step %d: room for %d, want %d", i, w.room(), s.want)
		}
	}
}
