package runner

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/backoff"
	"edda/internal/complaint"
)

// line is the runner in one context.
type line struct {
	r       *Runner
	context uint32
	log     *zap.Logger
	jobs    sync.WaitGroup
	storing *complaint.Complaint // of all that must be done until it is
	logging *complaint.Complaint // of the logs of jobs

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

func newLine(r *Runner, c uint32) *line {
	log := r.o.Log.With(zap.Uint32("context", c))
	return &line{
		r: r, context: c, log: log, running: map[string]*underway{}, released: make(chan struct{}, 1),
		storing: complaint.New(log, "do what a job needs"), logging: complaint.New(log, "write the logs of jobs"),
	}
}

// taken is the list of what a runner took from a type's queue.
func taken(kind string, runner uint32) string {
	return hero.ScriptType(kind).Queue() + ":running:" + strconv.FormatUint(uint64(runner), 10)
}

// run serves the context until ctx ends, and then until its jobs have ended.
func (l *line) run(ctx, work context.Context) {
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
	l.jobs.Wait()
	die()
	beating.Wait()
	pulse.end()
}

// take runs every loop of the context until ctx ends.
func (l *line) take(ctx, work context.Context) {
	if !l.leftovers(ctx, work) {
		return
	}
	var loops sync.WaitGroup
	for _, kind := range l.r.scripts.Types() {
		loops.Go(func() { l.takeFrom(ctx, work, kind) })
	}
	loops.Go(func() { l.watch(ctx, work) })
	loops.Go(func() { l.sweep(ctx) })
	loops.Go(func() { l.release(ctx) })
	loops.Wait()
}

// leftovers looks at what this runner had taken when it ended the last time.
func (l *line) leftovers(ctx, work context.Context) bool {
	for _, kind := range l.r.scripts.Types() {
		var keys []string
		if !l.persist(ctx, "look for leftovers", func(ctx context.Context) (err error) {
			if err = l.announce(ctx, kind); err == nil {
				keys, err = l.r.db.Left(ctx, l.context, taken(kind, l.r.id))
			}
			return err
		}) {
			return false
		}
		for _, key := range keys {
			if !l.slot(ctx) {
				return false
			}
			l.start(work, kind, key)
		}
	}
	return true
}

// takeFrom takes jobs of one type as long as there is room for them. While there
// are many it takes as many at once as have room; else it waits for the next one.
func (l *line) takeFrom(ctx, work context.Context, kind string) {
	queue, into := hero.ScriptType(kind).Queue(), taken(kind, l.r.id)
	taking := complaint.New(l.log, "take from "+queue)
	p := newRetry()
	for l.room(ctx) {
		key, err := l.r.db.Take(ctx, l.context, queue, into, takeWait)
		switch {
		case errors.Is(err, redisdb.ErrEmpty):
			p.Reset()
			taking.Worked()
		case err != nil && ctx.Err() == nil:
			taking.Failed(err)
			_ = backoff.Wait(ctx, p.Next())
		case err != nil:
		case ctx.Err() == nil && l.trySlot():
			p.Reset()
			taking.Worked()
			l.start(work, kind, key)
			for l.more(ctx, work, kind, taking) {
			}
		default: // another type was quicker, or the runner ends
			l.persist(work, "return "+key, func(ctx context.Context) error { return l.r.db.Return(ctx, l.context, into, queue, key) })
		}
	}
}

// more takes what has room and is there. It tells whether there may be even more.
func (l *line) more(ctx, work context.Context, kind string, taking *complaint.Complaint) bool {
	if !l.slot(ctx) {
		return false
	}
	places := 1
	for places < takeMost && l.trySlot() {
		places++
	}
	queue, into := hero.ScriptType(kind).Queue(), taken(kind, l.r.id)
	keys, err := l.r.db.TakeMore(ctx, l.context, queue, into, places)
	if err != nil && ctx.Err() == nil {
		taking.Failed(err)
	}
	for range places - len(keys) {
		<-l.r.slots
	}
	if ctx.Err() != nil {
		l.giveBack(work, into, queue, keys)
		return false
	}
	for _, key := range keys {
		l.start(work, kind, key)
	}
	return len(keys) == places
}

// giveBack puts keys that were taken, and their places, back: the runner ends.
func (l *line) giveBack(work context.Context, into, queue string, keys []string) {
	for _, key := range slices.Backward(keys) { // so that the oldest is the next again
		<-l.r.slots
		l.persist(work, "return "+key, func(ctx context.Context) error { return l.r.db.Return(ctx, l.context, into, queue, key) })
	}
}

// room waits until a job may run, without keeping the place: a queue may stay empty.
func (l *line) room(ctx context.Context) bool {
	if !l.slot(ctx) {
		return false
	}
	<-l.r.slots
	return true
}

func (l *line) slot(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case l.r.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *line) trySlot() bool {
	select {
	case l.r.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// start works on a key in the place that was got for it.
func (l *line) start(work context.Context, kind, key string) {
	l.jobs.Add(1)
	l.r.hands.do(func() {
		defer func() {
			<-l.r.slots
			l.jobs.Done()
		}()
		l.one(work, kind, key)
	})
}

// persist does what must be done until it is, or until ctx ends. What Redis
// refuses for good is logged, and is not done.
func (l *line) persist(ctx context.Context, what string, do func(context.Context) error) bool {
	p := newRetry()
	for failed := false; ; failed = true {
		err := do(ctx)
		if err == nil {
			if failed {
				l.storing.Worked()
			}
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if errors.Is(err, edda.Permanent) {
			l.log.Error(what, zap.Error(err))
			return false
		}
		l.storing.Failed(err, zap.String("what", what))
		if backoff.Wait(ctx, p.Next()) != nil {
			return false
		}
	}
}
