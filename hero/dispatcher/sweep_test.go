package dispatcher

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"edda/hero"
)

// die makes the worker that runs a job look dead: its lease has expired.
func (b *bench) die(h *held, j Job) (stop func()) {
	b.t.Helper()
	stop = b.work("w", h.Execute, WorkerOptions{Sweep: -1, Grace: time.Millisecond})
	<-h.began
	for _, m := range b.db.ZRange(b.ctx, workersKey, 0, -1).Val() {
		b.db.ZAdd(b.ctx, workersKey, z(m, 1))
	}
	return stop
}

func TestTheJobsOfADeadWorkerAreRequeuedInTheirOrder(t *testing.T) {
	b := newBench(t, Options{})
	h := newHeld()
	j := b.dispatch(Job{ID: "one", Retries: 1})
	b.dispatch(Job{ID: "two"})
	stop := b.die(h, j)
	b.dispatch(Job{ID: "three"})
	var wg sync.WaitGroup
	requeued := make(chan string, 10)
	for range 8 { // at once
		wg.Go(func() {
			swept, err := b.client.Sweep(b.ctx)
			if err != nil {
				t.Error(err)
			}
			for _, id := range swept.Requeued {
				requeued <- id
			}
		})
	}
	wg.Wait()
	if len(requeued) != 1 || <-requeued != "one" {
		t.Error("want one requeued once")
	}
	got := b.db.LRange(b.ctx, "hero:work_queue:w", 0, -1).Val()
	if len(got) != 3 || got[2] != "one" || got[1] != "two" || got[0] != "three" {
		t.Errorf("the queue holds %q", got)
	}
	// The worker was only slow. Its result is dropped now.
	close(h.goOn)
	stop()
	if j, _ := b.client.Job(b.ctx, "one"); j.Status != hero.JobDispatched && j.Attempts < 2 {
		t.Errorf("a late result was recorded: %+v", j)
	}
	b.work("w", echo, WorkerOptions{})
	for _, id := range []string{"one", "two", "three"} {
		if got := b.ended(id); got != "finished x" && got != "finished " {
			t.Error(id, got)
		}
	}
}

func TestAJobWithoutRetriesLeftEndsWithItsWorker(t *testing.T) {
	b := newBench(t, Options{})
	h := newHeld()
	j := b.dispatch(Job{})
	b.create("after", "x", Job{Dependencies: []string{j.ID}})
	b.submit("after", Waiting)
	b.die(h, j)
	swept, err := b.client.Sweep(b.ctx)
	if err != nil || len(swept.Failed) != 1 {
		t.Fatalf("%+v, %v", swept, err)
	}
	if got := b.ended(j.ID); got != "error worker lost" {
		t.Error(got)
	}
	if got := b.ended("after"); got != "error dependency "+j.ID+" failed: worker lost" {
		t.Error(got)
	}
	if again, _ := b.client.Sweep(b.ctx); len(again.Failed)+len(again.Requeued) != 0 {
		t.Errorf("%+v", again)
	}
}

// A worker cancels the run of a job that a sweep has given to another worker.
func TestARunThatWasTakenAwayIsCancelled(t *testing.T) {
	b := newBench(t, Options{})
	ended := make(chan error, 1)
	began := make(chan struct{}, 2)
	b.work("w", func(ctx context.Context, j Job, _ func(string)) JobResult {
		began <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return JobResult{}
	}, WorkerOptions{Sweep: -1, Beat: 20 * time.Millisecond})
	j := b.dispatch(Job{})
	<-began
	// A sweep does this after missed heartbeats.
	b.db.HSet(b.ctx, JobKey(j.ID), "status", "error", "error", "worker lost")
	for _, key := range b.db.Keys(b.ctx, takenPrefix+"*").Val() {
		b.db.Del(b.ctx, key)
	}
	if err := <-ended; !errors.Is(err, errLost) {
		t.Error(err)
	}
	if got := b.ended(j.ID); got != "error worker lost" {
		t.Error(got)
	}
}

// A foreign worker has no heartbeat, and does not record when it began a job.
func TestAForeignJobIsStaleOnceItsTimeoutPassed(t *testing.T) {
	b := newBench(t, Options{})
	for id, retries := range map[string]uint32{"again": 1, "last": 0} {
		b.create(id, "x", Job{Timeout: 5, Retries: retries})
		b.db.HSet(b.ctx, JobKey(id), "status", "Started")
	}
	b.create("endless", "x", Job{})
	b.db.HSet(b.ctx, "hero:job:endless", "status", "started")
	nothing := func(when string) {
		if swept, err := b.client.Sweep(b.ctx); err != nil || len(swept.Requeued)+len(swept.Failed) != 0 {
			t.Fatalf("%s: %+v, %v", when, swept, err)
		}
	}
	nothing("at first sight")
	short := float64(time.Now().Add(-5*time.Second - staleGrace/2).UnixMilli())
	b.db.ZAdd(b.ctx, "hero:seen", z("again", short), z("last", short))
	nothing("in its grace")
	long := float64(time.Now().Add(-5*time.Second - staleGrace).UnixMilli())
	b.db.ZAdd(b.ctx, "hero:seen", z("again", long-1000), z("last", long-1000), z("endless", 1))
	swept, err := b.client.Sweep(b.ctx)
	if err != nil || len(swept.Requeued) != 1 || len(swept.Failed) != 1 {
		t.Fatalf("%+v, %v", swept, err)
	}
	if got := b.ended("last"); got != "error timeout" {
		t.Error(got)
	}
	b.db.HSet(b.ctx, JobKey("again"), "status", "started") // it runs again, and dies again
	b.db.LPop(b.ctx, "hero:work_queue:w")
	b.db.ZAdd(b.ctx, "hero:seen", z("again", long-1000))
	if _, err := b.client.Sweep(b.ctx); err != nil {
		t.Fatal(err)
	}
	if got := b.ended("again"); got != "error timeout" {
		t.Error(got)
	}
	if j, _ := b.client.Job(b.ctx, "endless"); j.Status != hero.JobStarted {
		t.Errorf("a job without a timeout is stale: %+v", j)
	}
}

func TestRequeue(t *testing.T) {
	b := newBench(t, Options{})
	h := newHeld()
	stop := b.work("w", h.Execute, WorkerOptions{Sweep: -1})
	running, queued := b.dispatch(Job{}), b.dispatch(Job{})
	<-h.began
	if _, err := b.client.Requeue(b.ctx, running.ID); !errors.Is(err, ErrRunning) {
		t.Errorf("one that runs: %v", err)
	}
	if fate, err := b.client.Requeue(b.ctx, queued.ID); err != nil || fate != Queued {
		t.Error(fate, err)
	}
	if n, _ := b.client.Depth(b.ctx, "w"); n != 1 {
		t.Errorf("%d times in the queue", n)
	}
	close(h.goOn)
	b.ended(running.ID)
	b.ended(queued.ID)
	stop()
	if _, err := b.client.Requeue(b.ctx, running.ID); !errors.Is(err, ErrEnded) {
		t.Errorf("one that finished: %v", err)
	}
	b.create("failed", "x", Job{})
	b.db.HSet(b.ctx, "hero:job:failed", "status", "error", "error", "exit 1", "output", "bad", "attempts", "9")
	b.db.LPush(b.ctx, "hero:reply:failed", "exit 1")
	b.db.LPush(b.ctx, StopQueue("w"), "failed")
	for range 2 {
		if fate, err := b.client.Requeue(b.ctx, "failed"); err != nil || fate != Queued {
			t.Fatal(fate, err)
		}
	}
	if n, _ := b.client.Depth(b.ctx, "w"); n != 1 {
		t.Errorf("%d times in the queue", n)
	}
	if n := b.db.LLen(b.ctx, "hero:reply:failed").Val(); n != 0 {
		t.Error("the reply of the run before is there still")
	}
	b.work("w", echo, WorkerOptions{})
	j, err := b.client.Wait(b.ctx, "failed")
	if err != nil || told(j) != "finished x" || j.Attempts != 1 {
		t.Errorf("%+v, %v", j, err)
	}
	if _, err := b.client.Requeue(b.ctx, "nope"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// Only the taken list has a job that a worker has taken and not begun.
func TestAJobThatADeadWorkerHadNotBegunIsRequeued(t *testing.T) {
	b := newBench(t, Options{})
	j := b.dispatch(Job{})
	b.db.LMove(b.ctx, "hero:work_queue:w", takenPrefix+"w:gone", "RIGHT", "LEFT")
	b.db.ZAdd(b.ctx, workersKey, z("w/gone", 1))
	swept, err := b.client.Sweep(b.ctx)
	if n, _ := b.client.Depth(b.ctx, "w"); err != nil || len(swept.Requeued) != 1 || n != 1 {
		t.Errorf("%+v, %v, %d in the queue", swept, err, n)
	}
	if j, _ := b.client.Job(b.ctx, j.ID); j.Attempts != 0 || j.Status != hero.JobDispatched {
		t.Errorf("%+v", j)
	}
}

// A scan finds a started job that is in no taken list.
func TestAStartedJobOfAnUnknownWorkerIsStale(t *testing.T) {
	b := newBench(t, Options{})
	for id, run := range map[string]string{"lost": "gone", "runs": "there"} {
		b.create(id, "x", Job{Retries: 1})
		b.db.HSet(b.ctx, JobKey(id), "status", "started", "worker_run", run, "started_at", time.Now().UnixMilli(), "attempts", 1)
	}
	b.db.ZAdd(b.ctx, workersKey, z("w/there", 1e15))
	swept, err := b.client.Sweep(b.ctx)
	if err != nil || len(swept.Requeued) != 1 || swept.Requeued[0] != "lost" || len(swept.Failed) != 0 {
		t.Errorf("%+v, %v", swept, err)
	}
}

// A job runs twice at once, because its first worker seemed dead. Only the second run may
// record a result.
func TestTheResultOfARunThatWasReplacedIsDropped(t *testing.T) {
	for field, value := range map[string]string{"worker_run": "another", "attempts": "2"} {
		t.Run(field, func(t *testing.T) {
			b := newBench(t, Options{})
			h := newHeld()
			stop := b.work("w", h.Execute, WorkerOptions{Sweep: -1})
			j := b.dispatch(Job{})
			<-h.began
			b.db.HSet(b.ctx, JobKey(j.ID), field, value)
			close(h.goOn)
			stop()
			if j, _ := b.client.Job(b.ctx, j.ID); j.Status != hero.JobStarted {
				t.Errorf("%+v", j)
			}
			if n := b.db.Exists(b.ctx, SchemeProtocol.ReplyQueue(j.ID)).Val(); n != 0 {
				t.Error("it was answered")
			}
		})
	}
}
