package runner

import (
	"context"
	"errors"
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
	r       *Runner
	context uint32
	log     *zap.Logger
	retry   list.Retry            // of all that must be done until it is
	logging *logthrottle.Throttle // of the logs of jobs

	mu      sync.Mutex           // guards running
	running map[string]*underway // by key

	waiting  atomic.Bool   // jobs of the context wait for others, as far as is known
	released chan struct{} // one of them may have to wait no more
}

// underway is a job that runs.
type underway struct {
	work redisdb.Work
	stop context.CancelCauseFunc
}

func newContextLoop(r *Runner, c uint32) *contextLoop {
	log := r.o.Log.With(zap.Uint32("context", c))
	return &contextLoop{
		r: r, context: c, log: log, running: map[string]*underway{}, released: make(chan struct{}, 1),
		retry:   list.Retry{Pause: newRetry(), Log: logthrottle.New(log, "do what a job needs"), Final: permanent},
		logging: logthrottle.New(log, "write the logs of jobs"),
	}
}

// taken is the list of what a runner took from a type's queue.
func taken(kind string, runner uint32) string {
	return hero.ScriptType(kind).Queue() + ":running:" + strconv.FormatUint(uint64(runner), 10)
}

// run serves the context until ctx ends, and then until its jobs have ended.
func (l *contextLoop) run(ctx, work context.Context) {
	pulse, ok := l.claim(ctx)
	if !ok {
		return
	}
	var beating sync.WaitGroup
	alive, die := context.WithCancel(context.WithoutCancel(ctx)) // until the last job has ended
	mine, cancel := context.WithCancel(ctx)
	defer cancel()
	beating.Go(func() {
		defer cancel() // another runner has the id: nothing more is taken
		pulse.run(alive)
	})
	l.take(mine, work)
	die()
	beating.Wait()
	pulse.end()
}

// take runs every loop of the context until ctx ends and the jobs that it took have ended.
func (l *contextLoop) take(ctx, work context.Context) {
	var loops sync.WaitGroup
	for _, kind := range l.r.scripts.Types() {
		if !l.persist(ctx, "announce "+taken(kind, l.r.id), func(ctx context.Context) error { return l.announce(ctx, kind) }) {
			return
		}
	}
	for _, kind := range l.r.scripts.Types() {
		loops.Go(func() { l.consume(ctx, work, kind) })
	}
	loops.Go(func() { l.watch(ctx, work) })
	loops.Go(func() { l.sweep(ctx) })
	loops.Go(func() { l.release(ctx) })
	loops.Wait()
}

// consume takes jobs of one type, first those that this runner had taken when it ended
// the last time.
func (l *contextLoop) consume(ctx, work context.Context, kind string) {
	c := list.Consumer{
		DB: l.r.db, Context: l.context, From: hero.ScriptType(kind).Queue(), Into: taken(kind, l.r.id), Wait: takeWait,
		Workers: l.r.workers, Retry: &l.retry, Log: l.log, Work: func(key string) { l.one(work, kind, key) },
	}
	c.Run(ctx, work)
}

// persist does what must be done until it is, or until ctx ends. What Redis
// refuses for good is logged, and is not done.
func (l *contextLoop) persist(ctx context.Context, what string, do func(context.Context) error) bool {
	err := l.retry.Do(ctx, what, do)
	if permanent(err) {
		l.log.Error(what, zap.Error(err))
	}
	return err == nil
}

func permanent(err error) bool { return errors.Is(err, edda.Permanent) }
