package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edda"
	"edda/hero"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

func TestRunInBothSchemesAndOrders(t *testing.T) {
	b := newBench(t, Options{})
	for _, scheme := range []Scheme{SchemeProtocol, SchemeUnified} {
		for _, order := range []Order{FIFO, LIFO} {
			b := benchOn(t, b.server, Options{Scheme: scheme, Order: order})
			stop := b.work("w", echo, WorkerOptions{Scheme: scheme, Order: order})
			j, err := b.client.Run(b.ctx, Job{WorkerID: "w", Script: "hello"})
			if err != nil || told(j) != "finished hello" || j.Attempts != 1 {
				t.Fatalf("%s %s: %+v, %v", scheme, order, j, err)
			}
			stop()
			b.idle("w")
			if ttl := b.db.TTL(b.ctx, scheme.ReplyQueue(j.ID)).Val(); ttl != -2 {
				t.Errorf("the reply was taken and is there for %s", ttl)
			}
		}
	}
}

func TestAReplyIsKeptForAnHour(t *testing.T) {
	b := newBench(t, Options{})
	b.work("w", echo, WorkerOptions{})
	j := b.dispatch(Job{Script: "r"})
	reply := SchemeProtocol.ReplyQueue(j.ID)
	testkit.Until(t, 20*time.Second, "a reply", func() bool { return b.db.LLen(b.ctx, reply).Val() == 1 })
	if ttl := b.db.TTL(b.ctx, reply).Val(); ttl < 59*time.Minute || ttl > time.Hour {
		t.Errorf("the reply lasts %s", ttl)
	}
}

func TestOrder(t *testing.T) {
	for order, want := range map[Order]string{FIFO: "[1 2 3 4]", LIFO: "[4 3 2 1]"} {
		t.Run(string(order), func(t *testing.T) {
			b := newBench(t, Options{})
			for _, s := range []string{"1", "2", "3", "4"} {
				b.dispatch(Job{Script: s})
			}
			var mu sync.Mutex
			var ran []string
			b.work("w", func(_ context.Context, j Job, _ func(string)) JobResult {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, j.Script)
				return JobResult{OK: true}
			}, WorkerOptions{Order: order})
			testkit.Until(t, 20*time.Second, "all ran", func() bool { mu.Lock(); defer mu.Unlock(); return len(ran) == 4 })
			if got := fmt.Sprint(ran); got != want {
				t.Errorf("ran %s, want %s", got, want)
			}
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	b := newBench(t, Options{LogDir: t.TempDir()})
	for name, j := range map[string]Job{
		"no worker": {Script: "x"}, "no script": {WorkerID: "w"}, "bad id": {ID: "a b", WorkerID: "w", Script: "x"},
		"log outside": {WorkerID: "w", Script: "x", LogPath: "../x"}, "itself": {ID: "i", WorkerID: "w", Script: "x", Dependencies: []string{"i"}},
		"empty dependency": {WorkerID: "w", Script: "x", Dependencies: []string{""}},
	} {
		if _, err := b.client.Create(b.ctx, j); !errors.Is(err, edda.Permanent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := b.db.DBSize(b.ctx).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
	j := Job{ID: "one", WorkerID: "w", Script: "x"}
	if _, err := b.client.Create(b.ctx, j); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Create(b.ctx, j); !errors.Is(err, ErrExists) {
		t.Errorf("a second creation: %v", err)
	}
	b.db.Set(b.ctx, "hero:job:s", "a string", 0)
	if _, err := b.client.Create(b.ctx, Job{ID: "s", WorkerID: "w", Script: "x"}); !errors.Is(err, ErrExists) {
		t.Errorf("over a string: %v", err)
	}
	if got := b.db.Get(b.ctx, "hero:job:s").Val(); got != "a string" {
		t.Errorf("the string is %q now", got)
	}
}

// A client may repeat a creation after the answer was lost.
func TestTheSameCreationTwiceIsOne(t *testing.T) {
	b := newBench(t, Options{})
	j, err := b.client.prepared(Job{WorkerID: "w", Script: "x"})
	testkit.Must(t, err)
	for range 2 {
		testkit.Must(t, b.client.create(b.ctx, j, true))
	}
	if n, _ := b.client.Depth(b.ctx, "w"); n != 1 {
		t.Errorf("%d times in the queue", n)
	}
}

func TestSubmitTwiceQueuesOnce(t *testing.T) {
	b := newBench(t, Options{})
	j, err := b.client.Create(b.ctx, Job{WorkerID: "w", Script: "x"})
	testkit.Must(t, err)
	for range 3 {
		if fate, err := b.client.Submit(b.ctx, j.ID); err != nil || fate != Queued {
			t.Fatal(fate, err)
		}
	}
	if n, _ := b.client.Depth(b.ctx, "w"); n != 1 {
		t.Errorf("%d times in the queue", n)
	}
	b.work("w", echo, WorkerOptions{})
	b.ended(j.ID)
	if _, err := b.client.Submit(b.ctx, j.ID); !errors.Is(err, ErrEnded) {
		t.Errorf("after its end: %v", err)
	}
	if _, err := b.client.Submit(b.ctx, "nope"); !errors.Is(err, ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

func TestListMeetsOnlyJobs(t *testing.T) {
	b := newBench(t, Options{})
	b.dispatch(Job{ID: "a", WorkerID: "w1", CallerID: "c"})
	b.dispatch(Job{ID: "b", WorkerID: "w2"})
	b.db.LPush(b.ctx, "hero:job:list", "no job")
	b.db.Set(b.ctx, "hero:job:text", "no job", 0)
	b.db.HSet(b.ctx, "hero:job:broken", "timeout", "soon")
	ids := func(f Filter) string {
		var out []string
		for j, err := range b.client.List(b.ctx, f) {
			if err != nil && j.ID != "broken" || err == nil && j.ID == "broken" {
				t.Errorf("%s: %v", j.ID, err)
			}
			out = append(out, j.ID)
		}
		slices.Sort(out)
		return fmt.Sprint(out)
	}
	for want, f := range map[string]Filter{"[a b broken]": {}, "[a broken]": {Worker: "w1", Caller: "c"}, "[broken]": {Status: hero.JobFinished}} {
		if got := ids(f); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	b := newBench(t, Options{})
	j := b.dispatch(Job{})
	ctx, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := b.client.Wait(ctx, j.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := b.client.Wait(b.ctx, "nope"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// A restart of Redis while a job runs delays the job, and does not lose it.
func TestRedisIsRestartedWhileAJobRuns(t *testing.T) {
	t.Parallel()
	s := redisdbtest.Start(t, realservers.RedisOptions{AppendOnly: true})
	b := benchOn(t, s, Options{})
	began, goOn := make(chan struct{}, 10), make(chan struct{})
	b.work("w", func(_ context.Context, j Job, _ func(string)) JobResult {
		began <- struct{}{}
		<-goOn
		return JobResult{OK: true, Output: "survived"}
	}, WorkerOptions{Beat: time.Second})
	j := b.dispatch(Job{})
	<-began
	testkit.Must(t, s.Kill())
	close(goOn)
	if _, err := b.client.Job(b.ctx, j.ID); !errors.Is(err, edda.Temporary) {
		t.Errorf("while Redis is down: %v", err)
	}
	testkit.Must(t, s.Restart())
	if got := b.ended(j.ID); got != "finished survived" {
		t.Error(got)
	}
	second := b.dispatch(Job{})
	if got := b.ended(second.ID); got != "finished survived" {
		t.Error(got)
	}
}

func TestManyDispatchAtOnce(t *testing.T) {
	b := newBench(t, Options{})
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var made, refused atomic.Int64
	for range 16 {
		wg.Go(func() {
			for range 100 {
				_, err := b.client.Dispatch(ctx, Job{WorkerID: "w", Script: "x"})
				switch {
				case err == nil:
					made.Add(1)
				case ctx.Err() == nil:
					t.Error(err)
				default:
					refused.Add(1)
				}
				if made.Load() == 1000 {
					cancel() // the leader of a batch; the other creations must not fail
				}
			}
		})
	}
	wg.Wait()
	if n, _ := b.client.Depth(b.ctx, "w"); n != made.Load() || made.Load()+refused.Load() != 1600 || n < 1000 {
		t.Errorf("%d made, %d refused, %d in the queue", made.Load(), refused.Load(), n)
	}
	b.db.Del(b.ctx, "hero:work_queue:w")
	b.db.Set(b.ctx, "hero:work_queue:w", "no list", 0)
	if _, err := b.client.Dispatch(b.ctx, Job{WorkerID: "w", Script: "x"}); !errors.Is(err, edda.Permanent) {
		t.Errorf("%v", err)
	}
}

// A batch is written even if the context of the client that writes it ends.
func TestALeaderThatGivesUpWritesTheBatch(t *testing.T) {
	b := newBench(t, Options{})
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	other := &creation{queue: "hero:work_queue:w", id: "other", fields: []any{"id", "other"}}
	b.client.write(ctx, []*creation{{queue: "hero:work_queue:w", id: "leader", fields: []any{"id", "leader"}}, other})
	if other.err != nil || b.db.HGet(b.ctx, "hero:job:other", "id").Val() != "other" {
		t.Errorf("%v", other.err)
	}
}
