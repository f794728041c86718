package dispatcher

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/hero"
	"edda/internal/testkit"
)

// failing fails the script "fail", and records the order of all scripts.
type failing struct {
	mu  sync.Mutex
	ran []string
}

func (f *failing) Execute(_ context.Context, j Job, _ func(string)) JobResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ran = append(f.ran, j.ID)
	return JobResult{OK: j.Script != "fail", Error: "exit 3"}
}

func (f *failing) order() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.ran, " ")
}

func (b *bench) create(id, script string, j Job) {
	b.t.Helper()
	j.ID, j.Script, j.WorkerID = id, script, "w"
	if _, err := b.client.Create(b.ctx, j); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) submit(id string, want Submitted) {
	b.t.Helper()
	if got, err := b.client.Submit(b.ctx, id); got != want || err != nil && want != Failed {
		b.t.Fatalf("submit %s: %s, %v; want %s", id, got, err, want)
	}
}

func TestADiamondRunsInOrder(t *testing.T) {
	b := newBench(t, Options{})
	b.create("a", "x", Job{})
	b.create("b", "x", Job{Dependencies: []string{"a"}, Concurrent: true})
	b.create("c", "x", Job{Prerequisites: []string{"a"}, Concurrent: true})
	b.create("d", "x", Job{Dependencies: []string{"b"}, Prerequisites: []string{"c", "b"}})
	for _, id := range []string{"d", "c", "b"} {
		b.submit(id, Waiting)
		b.submit(id, Waiting)
	}
	b.submit("a", Queued)
	f := &failing{}
	stop := b.work("w", f.Execute, WorkerOptions{Concurrency: 4, Sweep: -1})
	if got := b.ended("d"); got != "finished " {
		t.Error(got)
	}
	if got := f.order(); got != "a b c d" && got != "a c b d" {
		t.Errorf("ran %s", got)
	}
	stop()
	b.idle("w")
}

func TestAFailedDependencyFailsTheJobsThatWait(t *testing.T) {
	b := newBench(t, Options{})
	b.create("a", "fail", Job{})
	b.create("b", "x", Job{Dependencies: []string{"a"}})
	b.create("c", "x", Job{Dependencies: []string{"b"}})
	b.create("late", "x", Job{Dependencies: []string{"a"}})
	b.submit("c", Waiting)
	b.submit("b", Waiting)
	b.submit("a", Queued)
	f := &failing{}
	stop := b.work("w", f.Execute, WorkerOptions{Sweep: -1})
	if got := b.ended("c"); got != "error dependency b failed: dependency a failed: exit 3" {
		t.Error(got)
	}
	b.submit("late", Failed)
	if got := b.ended("late"); got != "error dependency a failed: exit 3" {
		t.Error(got)
	}
	if f.order() != "a" {
		t.Errorf("ran %s", f.order())
	}
	stop()
	b.idle("w")
}

func TestACycleIsRefused(t *testing.T) {
	b := newBench(t, Options{})
	b.create("a", "x", Job{Dependencies: []string{"b"}})
	b.create("b", "x", Job{Dependencies: []string{"c", "other"}})
	_, err := b.client.Create(b.ctx, Job{ID: "c", WorkerID: "w", Script: "x", Prerequisites: []string{"a"}})
	var cycle *CycleError
	if !errors.As(err, &cycle) || strings.Join(cycle.Path, " ") != "c a b c" || !errors.Is(err, edda.Permanent) {
		t.Errorf("%v", err)
	}
	// A foreign client writes a cycle without a check.
	b.db.HSet(b.ctx, "hero:job:c", "id", "c", "worker_id", "w", "script", "x", "status", "dispatched", "dependencies", `["a"]`)
	b.db.LPush(b.ctx, "hero:work_queue:w", "c")
	stop := b.work("w", echo, WorkerOptions{})
	if got := b.ended("c"); got != "error invalid: its dependencies lead back to itself: c → a → b → c" {
		t.Error(got)
	}
	if _, err := b.client.Submit(b.ctx, "a"); !errors.As(err, &cycle) {
		t.Errorf("%v", err)
	}
	stop()
	b.idle("w")
}

// A foreign client queues a job before its dependencies have finished, and a foreign worker
// releases no waiting job when it finishes one.
func TestForeignersKnowNothingOfDependencies(t *testing.T) {
	b := newBench(t, Options{})
	b.create("a", "x", Job{})
	b.db.HSet(b.ctx, "hero:job:b", "id", "b", "worker_id", "w", "script", "x", "status", "dispatched", "dependencies", `["a"]`, "extra", "theirs")
	b.db.LPush(b.ctx, "hero:work_queue:w", "b")
	f := &failing{}
	stop := b.work("w", f.Execute, WorkerOptions{Sweep: -1})
	testkit.Until(t, 20*time.Second, "b waits", func() bool { return b.db.SIsMember(b.ctx, waitingKey, "b").Val() })
	if f.order() != "" {
		t.Fatalf("ran %s", f.order())
	}
	b.db.HSet(b.ctx, "hero:job:a", "status", "finished", "output", "theirs")
	swept, err := b.client.Sweep(b.ctx)
	if err != nil || swept.Released != 1 {
		t.Fatalf("%+v, %v", swept, err)
	}
	if got := b.ended("b"); got != "finished " {
		t.Error(got)
	}
	if got := b.db.HGet(b.ctx, "hero:job:b", "extra").Val(); got != "theirs" {
		t.Errorf("a foreign field is %q", got)
	}
	b.db.HSet(b.ctx, "hero:job:m", "id", "m", "worker_id", "w", "script", "x", "status", "dispatched", "prerequisites", "nowhere")
	b.db.LPush(b.ctx, "hero:work_queue:w", "m")
	if got := b.ended("m"); got != "error dependency nowhere not found" {
		t.Error(got)
	}
	stop()
	b.idle("w")
}

func TestAWaitingJobIsStopped(t *testing.T) {
	b := newBench(t, Options{})
	b.create("a", "x", Job{})
	b.create("b", "x", Job{Dependencies: []string{"a"}})
	b.submit("b", Waiting)
	if fate, err := b.client.Stop(b.ctx, "b"); fate != StopDone || err != nil {
		t.Fatal(fate, err)
	}
	if got := b.ended("b"); got != "error stopped" {
		t.Error(got)
	}
	b.submit("a", Queued)
	stop := b.work("w", echo, WorkerOptions{})
	b.ended("a")
	stop()
	b.idle("w")
	if j, _ := b.client.Job(b.ctx, "b"); j.Status != hero.JobError || j.Attempts != 0 {
		t.Errorf("%+v", j)
	}
}
