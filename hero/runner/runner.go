package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/backoff"
	"edda/internal/complaint"
)

// Runner runs jobs on this machine.
type Runner struct {
	id      uint32
	db      *redisdb.DB
	scripts Scripts
	o       Options
	metrics *metrics
	slots   chan struct{} // one for each job that runs
	hands   *hands
	topic   *topic // nil without a node
}

// New makes the runner of that id. Nothing runs yet. Without a db it has its topic
// only, without a hub its queues only.
func New(id uint32, db *redisdb.DB, scripts Scripts, o Options) (*Runner, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if id == 0 {
		return nil, errors.New("runner: give it an id above 0: the one of its hash runner:<id>")
	}
	if db == nil && o.Hub == nil {
		return nil, errors.New("runner: it needs a Redis to take jobs from, or a node of Mycelium to be sent them")
	}
	if len(scripts.Types()) == 0 {
		return nil, errors.New("runner: it has no interpreter: install python3, or say which there are")
	}
	m, err := newMetrics(o.Metrics, scripts.Types())
	if err != nil {
		return nil, err
	}
	r := &Runner{id: id, db: db, scripts: scripts, o: o, metrics: m, slots: make(chan struct{}, o.Concurrency), hands: newHands()}
	r.o.Log = o.Log.With(zap.Uint32("runner", id))
	return r, r.listen()
}

var errDrained = errors.New("the runner ends")

// Run takes and runs jobs until ctx ends, and then until the jobs that run have
// ended, or Drain has passed.
func (r *Runner) Run(ctx context.Context) error {
	if n, err := r.scripts.Sweep(); err != nil || n > 0 {
		r.o.Log.Warn("cleared away what an earlier runner left", zap.Int("runs", n), zap.Error(err))
	}
	r.o.Log.Info("runner starts", zap.Strings("types", r.scripts.Types()), zap.Int("concurrency", r.o.Concurrency))
	work, interrupt := context.WithCancelCause(context.WithoutCancel(ctx))
	defer interrupt(nil)
	stopLate := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(r.o.Drain, func() { interrupt(errDrained) })
		context.AfterFunc(work, func() { late.Stop() })
	})
	defer stopLate()
	var parts sync.WaitGroup
	if r.topic != nil {
		parts.Go(func() { r.topic.serve(ctx, work) })
	}
	if r.db != nil {
		parts.Go(func() { r.lines(ctx, work) })
	}
	parts.Wait()
	r.hands.close()
	return nil
}

// lines runs a line for every context that is served, as they come and go.
func (r *Runner) lines(ctx, work context.Context) {
	var all sync.WaitGroup
	running := map[uint32]context.CancelFunc{}
	ended := make(chan uint32)
	p := newRetry()
	changes := ""
	looking := complaint.New(r.o.Log, "look for contexts")
	for {
		served, err := r.serving(ctx)
		if ctx.Err() == nil {
			looking.Note(err)
		}
		for _, c := range served {
			if running[c] != nil {
				continue
			}
			mine, cancel := context.WithCancel(ctx)
			running[c] = cancel
			all.Go(func() {
				defer cancel()
				newLine(r, c).run(mine, work)
				select {
				case ended <- c:
				case <-ctx.Done():
				}
			})
		}
		if err == nil {
			p.Reset()
			for c, cancel := range running {
				if !slices.Contains(served, c) {
					cancel()
				}
			}
		}
		if !r.rest(ctx, running, ended, &changes, r.wait(&p, err)) {
			all.Wait()
			return
		}
	}
}

// noticeEvery is how often it is looked whether a context or runner was created.
const noticeEvery = 200 * time.Millisecond

// rest waits until a line has ended, a context or runner was created or changed, or the
// wait is over: other programs tell nobody of what they write. False: ctx ended.
func (r *Runner) rest(ctx context.Context, running map[uint32]context.CancelFunc, ended <-chan uint32, changes *string, wait time.Duration) bool {
	for until := time.Now().Add(wait); time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return false
		case c := <-ended:
			delete(running, c)
			return true
		case <-time.After(min(noticeEvery, time.Until(until))):
		}
		if len(r.o.Contexts) > 0 {
			continue // it serves those that it was told to
		}
		if now, err := r.db.Changes(ctx); err == nil && now != *changes {
			*changes = now
			return true
		}
	}
	return true
}

func (r *Runner) wait(p *backoff.Exponential, err error) time.Duration {
	if err != nil {
		return p.Next()
	}
	return slowly * r.o.Look
}

// serving lists the contexts whose queues are taken from.
func (r *Runner) serving(ctx context.Context) ([]uint32, error) {
	if len(r.o.Contexts) > 0 {
		return r.o.Contexts, nil
	}
	contexts, err := r.db.Contexts(ctx)
	if err != nil {
		return nil, err
	}
	var out []uint32
	for _, c := range contexts {
		me, err := r.db.Runner(ctx, c, r.id)
		switch {
		case errors.Is(err, redisdb.ErrNotFound):
		case errors.Is(err, edda.Permanent):
			r.o.Log.Error("registration cannot be read", zap.Uint32("context", c), zap.Error(err))
		case err != nil:
			return nil, err
		case me.Local:
			out = append(out, c)
		}
	}
	return out, nil
}

// register makes the runner known in a context that it was told to serve.
func (r *Runner) register(ctx context.Context, in uint32) error {
	if len(r.o.Contexts) == 0 {
		return nil // it was found by its registration
	}
	_, err := r.db.Runner(ctx, in, r.id)
	if !errors.Is(err, redisdb.ErrNotFound) {
		return err
	}
	if err := r.db.PutRunner(ctx, in, hero.Runner{ID: r.id, Local: true}); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	return nil
}

func newRetry() backoff.Exponential {
	return backoff.Exponential{First: pauseFirst, Most: pauseLast}
}
