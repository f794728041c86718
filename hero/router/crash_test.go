package router

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// steps lists the steps at which the tests kill a router.
func steps() []string {
	return []string{"permitted", "routed", "queued", "answered", "recorded", "reported", "replied", "noted", "posted", "before done"}
}

// The environment of a child process.
const childRedis, childStep = "EDDA_ROUTER_CHILD_REDIS", "EDDA_ROUTER_CHILD_STEP"

// doomed runs a router that does nothing more from the step on, as a killed one.
func (b *bed) doomed(step string, o Options) {
	b.t.Helper()
	ctx, kill := context.WithCancel(b.t.Context())
	defer kill()
	reached := make(chan struct{}, 1)
	o.at = func(at, _ string) {
		if ctx.Err() == nil && at == step {
			kill()
			reached <- struct{}{}
		}
		if ctx.Err() != nil {
			runtime.Goexit() // a killed process does nothing more
		}
	}
	r, err := New(b.db, quick(o))
	b.must(err)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	select {
	case <-reached:
	case <-time.After(5 * time.Second):
		b.t.Fatalf("the router never came to %q", step)
	}
	b.must(<-done)
}

// undisturbed checks that a message of a flow ends as without a kill.
func (b *bed) undisturbed(m hero.Message, flows *reports, runs int) {
	b.t.Helper()
	b.end(m, hero.MessageProcessed)
	if runs != 1 {
		b.t.Errorf("the job ran %d times", runs)
	}
	ends := flows.ends()
	if len(ends) != 1 || ends[0].Status != hero.NodeCompleted || ends[0].Node != 2001 {
		b.t.Errorf("reports %+v", ends)
	}
	if got := b.pop(1); got.ReplyTo != m.Key() || got.Job[0].Status != hero.JobFinished {
		b.t.Errorf("result %+v", got)
	}
	// If the router was killed after it recorded the end, the next one does this.
	testkit.Until(b.t, 20*time.Second, "no message is watched any more", func() bool {
		n, err := b.raw(1).ZCard(b.t.Context(), awaiting).Result()
		return err == nil && n == 0
	})
}

func TestARouterKilledAtEachStepOfACall(t *testing.T) {
	t.Parallel()
	for _, step := range slices.DeleteFunc(steps(), func(s string) bool { return s == "queued" || s == "posted" }) {
		t.Run(step, func(t *testing.T) {
			b, s, flows := newBed(t), newBoss(t), &reports{}
			b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
			m := b.send(hero.Message{FlowID: 33, Attempt: 1, Job: []hero.Job{job(2001)}})
			b.doomed(step, Options{Flows: flows})
			b.start(Options{Flows: flows})
			b.end(m, hero.MessageProcessed)
			b.undisturbed(m, flows, s.ran("2001"))
		})
	}
}

func TestARouterKilledAtEachStepOfALocalJob(t *testing.T) {
	t.Parallel()
	for _, step := range slices.DeleteFunc(steps(), func(s string) bool { return s == "routed" || s == "answered" || s == "posted" }) {
		t.Run(step, func(t *testing.T) {
			b, flows := newBed(t), &reports{}
			b.runner(hero.Runner{ID: 20, Local: true}, 1)
			b.must(b.db.PutJob(t.Context(), hero.Job{ID: 2001, CallerID: 12, ContextID: 1, Script: job(2001).Script, ScriptType: "python", FlowID: 33}))
			m := b.send(hero.Message{FlowID: 33, Attempt: 1, Job: []hero.Job{job(2001)}})
			runs := b.localRunner(1, func(key string) { b.writeEnd(1, key) })
			b.doomed(step, Options{Flows: flows})
			b.start(Options{Flows: flows})
			b.end(m, hero.MessageProcessed)
			b.undisturbed(m, flows, runs())
		})
	}
}

func TestARouterKilledDuringAPost(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"permitted", "posted", "before done"} {
		for _, into := range []uint32{1, 2} {
			t.Run(fmt.Sprintf("%s into %d", step, into), func(t *testing.T) {
				b := newBed(t)
				m := b.send(hero.Message{MessageType: hero.MessageChat, Message: "hello", To: 13, TargetContext: into})
				b.doomed(step, Options{})
				b.start(Options{})
				b.end(m, hero.MessageProcessed)
				if got := b.pop(into); got.Message != "hello" || got.MessageType != hero.MessageChat {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

// localRunner takes keys from queue:python as the documents say, and calls do with each.
// runs returns the number of keys that it took.
func (b *bed) localRunner(context uint32, do func(key string)) (runs func() int) {
	b.t.Helper()
	taken := make(chan string, 100)
	b.run(loop(func(ctx ctx) error {
		for ctx.Err() == nil {
			v, err := b.raw(context).BRPop(ctx, 50*time.Millisecond, "queue:python").Result()
			if err == nil {
				taken <- v[1]
				do(v[1])
			}
		}
		return nil
	}))
	return func() int { return len(taken) }
}

type ctx = context.Context

type loop func(ctx) error

func (l loop) Run(ctx context.Context) error { return l(ctx) }

// writeEnd writes the end of a job to its hash only, as some foreign runners do.
func (b *bed) writeEnd(context uint32, key string) {
	c := b.raw(context)
	err := errors.Join(c.HSet(b.t.Context(), key, "status", "started").Err(),
		c.HSet(b.t.Context(), key, "result", `{"output":"done"}`, "status", "finished").Err())
	if err != nil {
		b.t.Error(err)
	}
}

func TestARouterThatIsReallyKilled(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"routed", "answered", "recorded", "replied", "noted", "before done"} {
		t.Run(step, func(t *testing.T) {
			b, s := newBed(t), newBoss(t)
			b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
			m := b.send(hero.Message{Job: []hero.Job{job(2001)}})
			exe, err := os.Executable()
			b.must(err)
			victim := exec.CommandContext(t.Context(), exe, "-test.run=^$")
			victim.Env = append(os.Environ(), childRedis+"="+b.redis.Address(), childStep+"="+step)
			if err := victim.Run(); err == nil || victim.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the router ended with %v, not by a kill", err)
			}
			if n, _ := b.db.Depth(t.Context(), 1, hero.MsgOutCoordinator); n != 1 {
				t.Fatalf("%d keys in %s", n, hero.MsgOutCoordinator)
			}
			b.start(Options{})
			b.end(m, hero.MessageProcessed)
			b.pop(1)
			if s.ran("2001") != 1 {
				t.Errorf("the job ran %d times", s.ran("2001"))
			}
			if j := b.job(1, 12, 2001); j.Status != hero.JobFinished || j.Result["output"] != "ran print(2001)" {
				t.Errorf("job %+v", j)
			}
		})
	}
}

// child runs a router in a process that kills itself at the step.
func child(address, step string) int {
	db, err := redisdb.Open(redisdb.Options{Addr: address})
	if err != nil {
		return 1
	}
	r, err := New(db, quick(Options{at: func(at, _ string) {
		if at == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal arrives
		}
	}}))
	if err != nil {
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = r.Run(ctx)
	return 0
}

func TestRedisIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	b, s := another(t, realservers.RedisOptions{AppendOnly: true}), newBoss(t)
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{})
	var all []hero.Message
	for i := range uint32(10) {
		all = append(all, b.send(hero.Message{ID: 101 + i, Job: []hero.Job{job(2001 + i)}}))
	}
	testkit.Until(t, 20*time.Second, "one ran", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.runs) > 0 })
	b.must(b.redis.Kill())
	b.must(b.redis.Restart())
	for _, m := range all {
		b.end(m, hero.MessageProcessed)
	}
	if got := b.inbox(1); len(got) != len(all) {
		t.Errorf("%d results of %d", len(got), len(all))
	}
	for id, n := range s.runs {
		if n != 1 {
			t.Errorf("job %s ran %d times", id, n)
		}
	}
}
