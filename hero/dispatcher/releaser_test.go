package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda/hero"
	"edda/internal/testkit"
)

// keep runs a releaser, which uses the documented names even if the test's client does not.
func (b *bench) keep() (stop func()) {
	b.t.Helper()
	k, err := NewReleaser(b.db, nil, zap.NewNop())
	testkit.Must(b.t, err)
	k.every = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

// A client of Edda waits for a job that depends, through another job, on jobs of foreign
// workers.
func TestAJobWaitsForEverWhereOnlyWorkersOfOthersRunAndItsClientWaits(t *testing.T) {
	pairings(t, func(t *testing.T, f foreign) {
		f.work()
		f.b.create("third", "print(3)", Job{Prerequisites: []string{"second"}})
		f.b.create("second", "print(2)", Job{Dependencies: []string{"first"}})
		f.b.create("first", "print(1)", Job{})
		f.b.submit("third", Waiting)
		f.b.submit("second", Waiting)
		f.b.submit("first", Queued)
		if got := f.b.ended("third"); got != "finished 3" {
			t.Error(got)
		}
		f.b.idle("w")
	})
}

// Without that client a releaser releases the jobs, by the client's names, and after a
// restart too.
func TestAJobWaitsForEverWhereOnlyWorkersOfOthersRun(t *testing.T) {
	pairings(t, func(t *testing.T, f foreign) {
		status := func(id string) string { return f.b.db.HGet(f.b.ctx, JobKey(id), "status").Val() }
		stop := f.b.keep()
		f.b.create("third", "print(3)", Job{Dependencies: []string{"second"}})
		f.b.create("second", "print(2)", Job{Dependencies: []string{"first"}})
		f.b.create("first", "print(1)", Job{})
		f.b.submit("third", Waiting)
		f.b.submit("second", Waiting)
		stop()
		f.work()
		f.b.submit("first", Queued)
		testkit.Until(t, 20*time.Second, "the first ends", func() bool { return status("first") == "finished" })
		if got := status("second"); got != "dispatched" {
			t.Errorf("released by nobody, the second is %s", got)
		}
		f.b.keep()
		testkit.Until(t, 20*time.Second, "the third ends", func() bool { return status("third") == "finished" })
		if n := f.b.db.HExists(f.b.ctx, JobKey("third"), "edda_work_queue").Val(); n {
			t.Error("the mark of waiting stays")
		}
		f.b.idle("w")
	})
}

// A foreign client queues a job with dependencies itself, when they have ended or at once.
// A releaser does not change that, and queues no job twice.
func TestAJobThatItsForeignClientQueuesIsQueuedTwice(t *testing.T) {
	b := newBench(t, Options{})
	b.keep()
	b.create("first", "x", Job{})
	b.create("held", "x", Job{Dependencies: []string{"first"}})
	b.submit("held", Waiting)
	theirs := func(id string) {
		b.db.HSet(b.ctx, JobKey(id), "id", id, "worker_id", "w", "script", "x", "status", "dispatched", "dependencies", `["first"]`)
	}
	theirs("theirs")
	theirs("created")
	b.db.LPush(b.ctx, "hero:work_queue:w", "held", "theirs")
	b.db.HSet(b.ctx, JobKey("first"), "status", "finished", "output", "1")
	testkit.Until(t, 20*time.Second, "nobody waits", func() bool { return b.db.Exists(b.ctx, waitingKey).Val() == 0 })
	if got := b.db.LRange(b.ctx, "hero:work_queue:w", 0, -1).Val(); fmt.Sprint(got) != "[theirs held]" {
		t.Errorf("queued: %v", got)
	}
	j, err := b.client.Job(b.ctx, "created")
	if err != nil || j.Status != hero.JobDispatched {
		t.Errorf("%+v, %v", j, err)
	}
}

// Ten thousand jobs that wait for a running job cost almost no commands, and no writes.
func TestTenThousandWaitingJobsCostNothingWhileNothingEnds(t *testing.T) {
	b := newBench(t, Options{})
	b.create("slow", "x", Job{})
	_, err := b.db.Pipelined(b.ctx, func(p redis.Pipeliner) error {
		for i := range 10_000 {
			id := fmt.Sprint("w", i)
			p.HSet(b.ctx, JobKey(id), "id", id, "worker_id", "w", "script", "x", "status", "dispatched", "dependencies", `["slow"]`)
			p.SAdd(b.ctx, waitingKey, id)
			p.SAdd(b.ctx, "hero:waits:"+id, "slow")
			p.SAdd(b.ctx, "hero:waiters:slow", id)
		}
		return nil
	})
	testkit.Must(t, err)
	k, err := NewReleaser(b.db, nil, zap.NewNop())
	testkit.Must(t, err)
	before := b.changes()
	for range 25 { // more than a round takes
		if n, err := k.runOnce(b.ctx); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	if after := b.changes(); after != before {
		t.Errorf("Redis's changes went from %s to %s", before, after)
	}
	b.db.HSet(b.ctx, JobKey("slow"), "status", "finished")
	released := 0
	for range 25 {
		n, err := k.runOnce(b.ctx)
		if err != nil || n > 3*scanPage*keepPages {
			t.Fatalf("released %d in one look, %v", n, err)
		}
		released += n
	}
	if released != 10_000 {
		t.Errorf("released %d", released)
	}
}

func (b *bench) changes() string {
	b.t.Helper()
	info, err := b.db.Info(b.ctx, "persistence").Result()
	testkit.Must(b.t, err)
	for line := range strings.Lines(info) {
		if n, ok := strings.CutPrefix(line, "rdb_changes_since_last_save:"); ok {
			return strings.TrimSpace(n)
		}
	}
	b.t.Fatal("no count of changes")
	return ""
}
