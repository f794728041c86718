package dispatcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda"
	"edda/hero/list"
	"edda/hero/script"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

const (
	// tick is the interval at which a worker reads its stop queue while a job runs.
	tick = 250 * time.Millisecond
	// beatEvery is the interval of a worker's heartbeats. A worker that misses beatsLost of
	// them counts as dead.
	beatEvery = 5 * time.Second
	beatsLost = 3
	// takeWait bounds one blocking take. A stop waits for its end.
	takeWait = 250 * time.Millisecond
	// maxBatch bounds one round, because Redis serves no other client during a script.
	maxBatch = 128
	// maxConcurrency bounds the jobs that a worker runs at once.
	maxConcurrency = 10_000
	// The pauses after a failed call of Redis.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	// defaultGrace is the time that running jobs have to end when the worker stops.
	defaultGrace = 20 * time.Second
	// recordWithin bounds the time that a stopping worker tries to record the last results.
	// The sweep finds the jobs that it could not record.
	recordWithin = 5 * time.Second
)

// WorkerOptions of a Worker. The zero value speaks the documented protocol, and runs one
// job at a time.
type WorkerOptions struct {
	Scheme      Scheme
	Order       Order
	Concurrency int           // jobs with concurrent: true that run at once; 0: 1
	Timeout     time.Duration // of jobs without one; 0: none
	Grace       time.Duration // of running jobs when Run stops; then they return to the queue; 0: 20 s
	Keep        time.Duration // until an ended job is removed; 0: never
	LogDir      string        // the folder of the jobs' logs
	// Logs bounds the jobs' logs: 16 MiB, one rotated part, 1000 files, 30 days.
	Logs    script.LogBounds
	Beat    time.Duration // between two heartbeats; a worker is dead after three missed ones; 0: 5 s
	Sweep   time.Duration // between two sweeps for stale jobs; 0: 10 s; negative: never
	Log     *zap.Logger
	Metrics prometheus.Registerer
	// Began, where set, is called once the worker has registered itself.
	Began func()
}

func (o *WorkerOptions) validate() error {
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.Concurrency < 1 || o.Concurrency > maxConcurrency {
		return edda.Classify(edda.Permanent, "concurrency %d: want 1 to %d", o.Concurrency, maxConcurrency)
	}
	if o.Timeout < 0 || o.Grace < 0 || o.Keep < 0 || o.Keep > 0 && o.Keep < time.Second {
		return edda.Classify(edda.Permanent, "timeout %s, grace %s, keep %s: none may be negative, and keep at least a second", o.Timeout, o.Grace, o.Keep)
	}
	if o.Beat == 0 {
		o.Beat = beatEvery
	}
	if o.Beat < 10*time.Millisecond {
		return edda.Classify(edda.Permanent, "beat %s: want 10ms at least", o.Beat)
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if err := o.Logs.Check(); err != nil {
		return edda.Classify(edda.Permanent, "%w", err)
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return nil
}

// Worker takes the jobs of one worker id and runs them. Several processes may have the same
// id and share its queue.
//
// A Worker is no list.Consumer, which moves a key and then decides in Go how to handle it.
// A worker reads the head of the queue first, because a job that must run alone stays there
// while other jobs run, and it records results, takes jobs and begins them in one script.
// Its taken list has a lease, the heartbeat, after which any worker's sweep requeues the
// jobs; a consumer's list waits for its owner.
type Worker struct {
	conn
	id, run string // run identifies this process among those of the id
	exec    Executor
	keeper  *logKeeper
	o       WorkerOptions
	metrics *metrics
	sweeper *sweeper
	taken   string // the list of the jobs that this process has taken

	// The goroutine of Run owns the following fields.
	running  map[string]*runningJob
	done     []result        // not recorded yet
	pending  []string        // in the taken list, not begun: "gate"|"free", id, …
	hungry   bool            // the queue may hold jobs
	blocked  bool            // the next job must run alone
	fetching bool            // fetch is under way
	troubled error           // of the last fetch
	beaten   time.Time       // of the last heartbeat
	stopped  time.Time       // of the last read of the stop queue
	strays   map[string]bool // in the taken list and unknown at the last comparison

	results chan result
	fetched chan fetch
	jobs    sync.WaitGroup
}

type runningJob struct {
	cancel context.CancelCauseFunc
	alone  bool // no other job may run beside it
}

// fetch is the outcome of a blocking take.
type fetch struct {
	id  string
	err error
}

// NewWorker makes a worker. The caller closes db.
func NewWorker(db *redis.Client, id string, exec Executor, o WorkerOptions) (*Worker, error) {
	if err := checkID("the worker's id", id); err != nil {
		return nil, err
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	l, err := newConn(db, o.Scheme, o.Order)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails
	run := hex.EncodeToString(name[:])
	w := &Worker{
		conn: l, id: id, run: run, exec: exec, keeper: newLogKeeper(o.LogDir, o.Logs, o.Log), o: o, metrics: m, taken: takenPrefix + id + ":" + run,
		sweeper: newSweeper(l, m, o.Log, o.Sweep), running: map[string]*runningJob{}, hungry: true, strays: map[string]bool{},
		results: make(chan result, o.Concurrency), fetched: make(chan fetch, 1),
	}
	return w, nil
}

// Run works until ctx ends. Then it takes no more jobs, gives the running ones their grace,
// and returns the others to the queue. It fails only on a Permanent error of Redis. It must
// be called once.
func (w *Worker) Run(ctx context.Context) error {
	jobs, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	sweeping, stopSweep := context.WithCancel(ctx)
	var sweeps sync.WaitGroup
	sweeps.Go(func() { w.sweeper.Run(sweeping) })
	sweeps.Go(func() { w.keeper.run(sweeping) })
	err := w.work(ctx, jobs)
	if err == nil {
		w.leave(cut)
	}
	cut(errStopping)
	w.jobs.Wait()
	stopSweep()
	sweeps.Wait()
	return err
}

// work is the worker's loop.
func (w *Worker) work(ctx, jobs context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	retry := newRetry()
	working := logthrottle.New(w.o.Log.With(zap.String("worker", w.id)), "ask Redis for work")
	for {
		err := w.runOnce(ctx, jobs)
		switch {
		case err == nil:
			retry.Reset()
			working.Worked()
		case permanent(err):
			return err
		case ctx.Err() != nil:
			return nil
		default:
			working.Failed(err)
			_ = backoff.Wait(ctx, retry.Next()) // the channel keeps results meanwhile
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if !w.due(ctx) {
			w.wait(ctx, ticker.C)
		}
	}
}

// runOnce looks at the clock, collects results, and runs a round if one is due.
func (w *Worker) runOnce(ctx, jobs context.Context) error {
	if err := w.troubled; err != nil {
		w.troubled = nil
		return err
	}
	if err := w.look(ctx); err != nil {
		return err
	}
	w.collect()
	if !w.due(ctx) {
		return nil
	}
	return w.round(ctx, jobs)
}

// due reports whether a round has anything to record, begin or take.
func (w *Worker) due(ctx context.Context) bool {
	return len(w.done) > 0 || w.begins() || ctx.Err() == nil && w.hungry && w.room() > 0
}

// begins reports whether a taken job may begin. A blocked one waits until no other job runs.
func (w *Worker) begins() bool { return len(w.pending) > 0 && (!w.blocked || len(w.running) == 0) }

// room returns the number of jobs that may be taken.
func (w *Worker) room() int {
	if w.alone() || w.blocked && len(w.running) > 0 {
		return 0
	}
	n := w.o.Concurrency - len(w.running) - len(w.pending)/2
	if w.fetching {
		n--
	}
	return max(0, min(n, maxBatch))
}

// alone reports whether the running job must run alone.
func (w *Worker) alone() bool {
	for _, r := range w.running {
		return r.alone // such a job is the only one
	}
	return false
}

// collect receives the results of ended jobs, without waiting.
func (w *Worker) collect() {
	for len(w.done) < maxBatch {
		select {
		case r := <-w.results:
			w.ended(r)
		default:
			return
		}
	}
}

func (w *Worker) ended(r result) {
	delete(w.running, r.id)
	w.done = append(w.done, r)
	if len(w.running) == 0 {
		w.blocked = false
	}
	w.hungry = w.hungry || !w.fetching
}

// wait waits for a result, the tick or, if there is room, a new job.
func (w *Worker) wait(ctx context.Context, tick <-chan time.Time) {
	if !w.fetching && w.room() > 0 {
		w.fetching = true
		go w.fetch(ctx) // the loop waits for its answer before it ends
	}
	select {
	case r := <-w.results:
		w.ended(r)
	case f := <-w.fetched:
		w.received(f)
	case <-tick:
	case <-ctx.Done():
	}
}

// fetch moves the next job to the taken list, and waits takeWait for it.
func (w *Worker) fetch(ctx context.Context) {
	from := "RIGHT"
	if w.order == LIFO {
		from = "LEFT"
	}
	id, err := w.db.Do(ctx, "BLMOVE", w.scheme.WorkQueue(w.id), w.taken, from, "LEFT", takeWait.Seconds()).Text()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	w.fetched <- fetch{id, err}
}

// received handles the outcome of fetch. runOnce returns its error.
func (w *Worker) received(f fetch) {
	w.fetching = false
	if f.err != nil {
		w.troubled = trouble("take jobs of "+w.id, f.err)
		return
	}
	if f.id != "" {
		w.pending = append(w.pending, "gate", f.id)
		w.hungry = true // more may follow
	}
}

// leave records the jobs that end within the grace, puts the others back, and removes
// the worker's heartbeat.
func (w *Worker) leave(cut context.CancelCauseFunc) {
	late := time.AfterFunc(w.o.Grace, func() { cut(errStopping) })
	defer late.Stop()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for len(w.running) > 0 {
		select {
		case r := <-w.results:
			w.ended(r)
			w.collect()
			w.farewell(w.recordAll)
		case <-ticker.C:
			w.farewell(w.look)
		}
	}
	if w.fetching {
		w.received(<-w.fetched)
	}
	w.farewell(w.recordAll)
	w.farewell(func(ctx context.Context) error {
		ids, err := w.db.LRange(ctx, w.taken, 0, -1).Result()
		if err != nil {
			return trouble("read the taken list", err)
		}
		if len(ids) > 0 {
			w.pending = nil
			if err := w.putBack(ctx, ids); err != nil {
				return err
			}
		}
		return trouble("remove the worker's heartbeat", w.script(ctx, w.scripts.beat, w.id, w.run, 0))
	})
}

// farewell repeats a step until it succeeds, for recordWithin at most. Later the sweep
// repairs an unfinished step.
func (w *Worker) farewell(do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), recordWithin)
	defer cancel()
	log := w.o.Log.With(zap.String("worker", w.id))
	retry := list.Retrier{Pause: newRetry(), Log: logthrottle.New(log, "stop a worker"), Final: permanent}
	if err := retry.Do(ctx, "record the last results", do); err != nil {
		log.Error("a worker stops and Redis does not take its last results; the sweep of another worker will find its jobs", zap.Error(err))
	}
}

func permanent(err error) bool { return errors.Is(err, edda.Permanent) }

func newRetry() backoff.Exponential { return backoff.Exponential{First: firstPause, Most: lastPause} }

func (w *Worker) putBack(ctx context.Context, ids []string) error {
	return trouble("return taken jobs", w.script(ctx, w.scripts.astray, with(ids, w.id, w.run)...))
}

// script runs a script and drops its answer.
func (l conn) script(ctx context.Context, s *redis.Script, args ...any) error {
	if err := l.run(ctx, s, args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}
