package router

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"edda/hero"
	"edda/internal/testkit"
)

// writes creates a job as a foreign client does, in Redis alone.
func (b *bed) writes(id uint32, status hero.JobStatus, after string) string {
	b.t.Helper()
	key := hero.JobKey(12, id)
	b.must(b.raw(1).HSet(b.t.Context(), key, "id", id, "caller_id", 12, "context_id", 1, "script", fmt.Sprintf("print(%d)", id), "script_type", "python", "timeout", 5,
		"dependends", after, "prerequisites", "[]", "status", string(status)).Err())
	return key
}

func (b *bed) pushes(key string) {
	b.t.Helper()
	b.must(b.raw(1).LPush(b.t.Context(), "queue:python", key).Err())
}

// worker is a foreign worker that runs no waiting job: it sets the status in the hash and
// drops the key. ran returns the jobs that ran, in order.
func (b *bed) worker() (ran func() []string) {
	var mu sync.Mutex
	var got []string
	b.localRunner(1, func(key string) {
		c := b.raw(1)
		_, id, err := hero.ParseJobKey(key)
		b.must(err)
		j := b.job(1, 12, id)
		for _, need := range j.Dependends {
			if s := c.HGet(b.t.Context(), hero.JobKey(12, need), "status").Val(); s != "finished" {
				b.must(c.HSet(b.t.Context(), key, "status", "waiting_for_prerequisites").Err())
				return
			}
		}
		mu.Lock()
		got = append(got, fmt.Sprint(id))
		mu.Unlock()
		b.writeEnd(1, key)
	})
	return func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) }
}

// If client and worker are foreign and use Redis alone, only the router can release waiting
// jobs. It releases each once, after a restart too.
func TestDependentsAreNeverReleasedAmongClientsAndWorkersOfOthers(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"the worker lets them wait", "the client lets them wait"} {
		t.Run(who, func(t *testing.T) {
			b := newBed(t)
			b.runner(hero.Runner{ID: 20, Local: true}, 1)
			_, stop := b.start(Options{})
			ran := b.worker()
			c, d, a := b.writes(3, hero.JobWaiting, "[2]"), b.writes(2, hero.JobWaiting, "1"), b.writes(1, hero.JobDispatched, "")
			if who == "the worker lets them wait" {
				b.pushes(c)
				b.pushes(d)
				testkit.Until(t, 20*time.Second, "both were popped", func() bool { return b.raw(1).LLen(t.Context(), "queue:python").Val() == 0 })
			}
			b.pushes(a)
			testkit.Until(t, 20*time.Second, "the second has ended", func() bool { return b.job(1, 12, 2).Status == hero.JobFinished })
			stop()
			b.start(Options{})
			testkit.Until(t, 20*time.Second, "the third has ended", func() bool { return b.job(1, 12, 3).Status == hero.JobFinished })
			b.rounds(3)
			testkit.Until(t, 20*time.Second, "the worker has nothing to do", func() bool { return b.job(1, 12, 9002).Status == hero.JobFinished })
			if got := slices.DeleteFunc(ran(), func(id string) bool { return len(id) > 1 }); fmt.Sprint(got) != "[1 2 3]" {
				t.Errorf("ran %v", got)
			}
			if n := b.raw(1).ZCard(t.Context(), "edda:waiting").Val(); n != 0 {
				t.Errorf("%d jobs wait still", n)
			}
		})
	}
}

// rounds waits for n rounds of the search for strays: each time, a job of its own is found
// and released, which takes two rounds.
func (b *bed) rounds(n int) {
	b.t.Helper()
	for i := range n {
		id := uint32(9000 + i)
		b.writes(id-1000, hero.JobFinished, "")
		key := b.writes(id, hero.JobWaiting, fmt.Sprintf("[%d]", id-1000))
		testkit.Until(b.t, 20*time.Second, "a round", func() bool { return b.raw(1).HGet(b.t.Context(), key, "status").Val() != string(hero.JobWaiting) })
	}
}

// The router does not release every waiting job. A job of a flow belongs to the flow, even
// before its start. A job in a queue, or taken from one, belongs to its runner. A job that
// another program has released is not released again.
func TestAJobThatAnotherProgramReleasesIsReleasedTwice(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Local: true}, 1)
	ctx, c := t.Context(), b.raw(1)
	b.writes(1, hero.JobFinished, "")
	of := map[string]string{}
	for i, what := range []string{"a flow's", "a flow's node", "queued", "taken", "held up", "of no dependency", "a message's", "not said to wait"} {
		of[what] = b.writes(uint32(10+i), hero.JobWaiting, "[1]")
	}
	b.must(b.db.PutFlow(ctx, hero.Flow{ID: 33, CallerID: 12, ContextID: 1, Jobs: []uint32{10}, Nodes: []hero.FlowNode{{ID: 11}}}))
	b.must(c.LPush(ctx, "queue:python", of["queued"]).Err())
	b.must(c.SAdd(ctx, "edda:running", "queue:python:running:20").Err())
	b.must(c.LPush(ctx, "queue:python:running:20", of["taken"]).Err())
	b.must(c.HSet(ctx, of["held up"], "dependends", "[1,10]").Err())
	b.must(c.HSet(ctx, of["of no dependency"], "dependends", "[]").Err())
	b.must(c.HSet(ctx, of["a message's"], "message_key", "message:12:77").Err())
	b.must(c.HSet(ctx, of["not said to wait"], "status", "dispatched").Err())
	// Held by this router, and then released by another program, too.
	for i, status := range []hero.JobStatus{hero.JobWaiting, hero.JobDispatched, hero.JobStarted} {
		key := b.writes(uint32(30+i), hero.JobWaiting, "[1]")
		b.must(b.db.Hold(ctx, 1, b.job(1, 12, uint32(30+i)), key, "queue:python", ""))
		b.must(c.HSet(ctx, key, "status", string(status)).Err())
		if status != hero.JobStarted {
			b.must(c.LPush(ctx, "queue:python", key).Err())
		}
	}
	b.start(Options{})
	b.rounds(3)
	want := []string{of["queued"], "job:12:30", "job:12:31"}
	for i := range 3 {
		want = append(want, hero.JobKey(12, uint32(9000+i)))
	}
	got := c.LRange(ctx, "queue:python", 0, -1).Val()
	slices.Sort(got)
	if s := b.job(1, 12, 32).Status; s != hero.JobStarted {
		t.Errorf("a job that was begun is %s", s)
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("queued %v, want %v", got, want)
	}
	if waiting := c.ZRange(ctx, "edda:waiting", 0, -1).Val(); len(waiting) > 0 {
		t.Errorf("%v wait", waiting)
	}
}

// A job that can never run ends with the reason, and its caller gets the result. A job that
// its caller may not run is refused.
func TestAJobOfOthersWhoseDependencyFailedWaitsForEver(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Local: true}, 1)
	ctx, c := t.Context(), b.raw(1)
	b.writes(1, hero.JobError, "")
	b.must(c.HSet(ctx, "job:12:1", "result", `{"error":"exit 3"}`).Err())
	b.writes(2, hero.JobWaiting, "[1]")
	for _, caller := range []uint32{14, 15} {
		b.must(c.HSet(ctx, hero.JobKey(caller, 1), "id", 1, "status", "finished").Err())
		b.must(c.HSet(ctx, hero.JobKey(caller, 2), "id", 2, "caller_id", caller, "script", "x", "script_type", "python", "dependends", "[1]", "status", "waiting_for_prerequisites").Err())
	}
	b.start(Options{})
	for caller, why := range map[uint32]string{12: "dependency 1 failed: exit 3", 14: "permission denied: actor 14 is neither admin nor executor of context 1: have one of its admins add it to executors",
		15: "permission denied: actor 15 is neither admin nor executor of context 1: have one of its admins add it to executors"} {
		testkit.Until(t, 20*time.Second, "it ends", func() bool { return b.job(1, caller, 2).Status == hero.JobError })
		if j := b.job(1, caller, 2); j.Result["error"] != why {
			t.Errorf("%q, want %q", j.Result["error"], why)
		}
	}
	if m := b.pop(1); m.Message != "dependency 1 failed: exit 3" || m.ReplyTo != "job:12:2" {
		t.Errorf("told %+v", m)
	}
}
