package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/list"
	"edda/hero/redisdb"
	"edda/internal/backoff"
)

// Runner runs jobs on this machine.
type Runner struct {
	id      uint32
	db      *redisdb.DB
	scripts Scripts
	o       Options
	metrics *metrics
	workers *list.Workers // they run the jobs of all contexts and of the topic
	topic   *topic        // nil without a node
}

// New makes the runner of that id. Nothing runs before Run. Without a db the runner serves
// its topic only, without a hub its queues only.
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
	r := &Runner{id: id, db: db, scripts: scripts, o: o, metrics: m, workers: list.NewWorkers(o.Concurrency)}
	r.o.Log = o.Log.With(zap.Uint32("runner", id))
	return r, r.listen()
}

var errDrained = errors.New("the runner ends")

// Run takes and runs jobs until ctx ends. Then it waits until the running jobs have
// ended, at most for Drain.
func (r *Runner) Run(ctx context.Context) error {
	if n, err := r.scripts.Sweep(); err != nil || n > 0 {
		r.o.Log.Warn("processes and folders of an earlier runner removed", zap.Int("runs", n), zap.Error(err))
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
		parts.Go(func() { r.contexts(ctx, work) })
	}
	parts.Wait()
	r.workers.Close()
	return nil
}

// contexts serves contexts as they come and go.
func (r *Runner) contexts(ctx, work context.Context) {
	s := list.Contexts{
		DB: r.db, Served: r.serving, Every: slowly * r.o.Look, Pause: newRetry(), What: "do what a job needs", Log: r.o.Log,
		Run: func(ctx context.Context, l *list.Loop) { r.serve(ctx, work, l) },
	}
	if len(r.o.Contexts) == 0 { // else the options name the contexts
		s.Changed = func() {}
	}
	s.Serve(ctx)
}

// serving lists the contexts whose queues the runner takes jobs from.
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

// register writes the runner's hash in a context that the options name.
func (r *Runner) register(ctx context.Context, in uint32) error {
	if len(r.o.Contexts) == 0 {
		return nil // its registration named the context
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
