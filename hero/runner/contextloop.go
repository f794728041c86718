package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/list"
	"edda/hero/redisdb"
	"edda/internal/logthrottle"
)

// contextLoop is the runner in one context.
type contextLoop struct {
	*list.Loop
	r       *Runner
	self    string                // names this process in the heartbeat
	logging *logthrottle.Throttle // of the logs of jobs

	mu      sync.Mutex         // guards running
	running map[string]*active // by key

	waiting  atomic.Bool   // jobs of the context wait for others, as of the last look
	released chan struct{} // wakes release: a job ended that others may wait for
}

// active is a job that runs.
type active struct {
	work redisdb.RunnerJob
	stop context.CancelCauseFunc
}

// taken names the processing list of a runner for one type's queue.
func taken(kind string, runner uint32) string {
	return hero.ScriptType(kind).Queue() + ":running:" + strconv.FormatUint(uint64(runner), 10)
}

// serve serves one context until ctx ends, and then until its jobs have ended.
func (r *Runner) serve(ctx, work context.Context, loop *list.Loop) {
	loop.Retry.Final = permanent
	host, _ := os.Hostname() // for people only
	l := &contextLoop{
		Loop: loop, r: r, self: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()),
		logging: logthrottle.New(loop.Log, "write the logs of jobs"), running: map[string]*active{}, released: make(chan struct{}, 1),
	}
	if !l.claim(ctx) {
		return
	}
	var beating sync.WaitGroup
	alive, die := context.WithCancel(context.WithoutCancel(ctx)) // until the last job has ended
	mine, cancel := context.WithCancel(ctx)
	defer cancel()
	beating.Go(func() {
		defer cancel() // another process has the id: take no more jobs
		l.beats(alive)
	})
	l.take(mine, work)
	die()
	beating.Wait()
	l.lastBeat()
}

// take runs every loop of the context until ctx ends and the jobs that it took have ended.
func (l *contextLoop) take(ctx, work context.Context) {
	kinds := l.r.scripts.Types()
	for _, kind := range kinds { // other runners must know the list before it holds a key
		if !l.persist(ctx, "announce "+taken(kind, l.r.id), func(ctx context.Context) error {
			return l.Redis.SAdd(ctx, redisdb.RunningLists, taken(kind, l.r.id)).Err()
		}) {
			return
		}
	}
	var loops sync.WaitGroup
	for _, kind := range kinds {
		c := l.Consumer(hero.ScriptType(kind).Queue(), taken(kind, l.r.id), takeWait, l.r.workers, func(key string) { l.one(work, kind, key) })
		loops.Go(func() { c.Run(ctx, work) })
	}
	loops.Go(func() { l.watch(ctx, work) })
	loops.Go(func() { l.Every(ctx, slowly*l.r.o.Look, "look for dead runners", l.sweep) })
	loops.Go(func() { l.release(ctx) })
	loops.Wait()
}

// persist repeats a step until it succeeds or ctx ends. It reports success. It logs an
// error that Redis will repeat, and gives up.
func (l *contextLoop) persist(ctx context.Context, what string, do func(context.Context) error) bool {
	err := l.Retry.Do(ctx, what, do)
	if permanent(err) {
		l.Log.Error(what, zap.Error(err))
	}
	return err == nil
}

func permanent(err error) bool { return errors.Is(err, edda.Permanent) }
