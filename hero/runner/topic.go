package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda/access"
	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/mycelium"
	"edda/hero/script"
)

// remembered is how many jobs that ended are known, so that one that is sent again
// is answered and not run again.
const remembered = 10_000

// topic is the runner on its topic: whoever sends job.run has a job run and is
// answered with its end. A job that is sent twice runs once, for as long as this
// process lives and remembers it; a higher attempt of one that failed runs again.
type topic struct {
	r       *Runner
	rpc     *jsonrpc.Server
	secrets access.Secrets[struct{}]

	mu      sync.Mutex // guards what follows
	work    context.Context
	open    bool
	jobs    map[remoteID]*remote
	ended   []remoteID // oldest first
	running sync.WaitGroup
}

// remote is one of them.
type remote struct {
	job     hero.WireJob
	status  hero.JobStatus
	created time.Time
	started time.Time
	over    time.Time
	answer  hero.JobAnswer
	stop    context.CancelCauseFunc
	done    chan struct{} // closed at the end
	runs    uint32        // of the script; of perform alone until the end
}

// listen serves the topic, where there is a node. It comes before the hub runs.
func (r *Runner) listen() error {
	if r.o.Hub == nil {
		return nil
	}
	t := &topic{r: r, secrets: access.Secrets[struct{}]{}, jobs: map[remoteID]*remote{}}
	for _, s := range r.o.Secrets {
		t.secrets.Add(s, struct{}{})
	}
	errs := jsonrpc.MethodOptions{Errors: []int{jsonrpc.PermissionDenied, jsonrpc.NotFound, jsonrpc.Busy, jsonrpc.AlreadyExists}}
	run := errs
	run.Wrapper = "job"
	var err error
	t.rpc, err = jsonrpc.NewServer(jsonrpc.Info{Title: "Runner", Version: "1", Description: "Runs jobs."}, []jsonrpc.Method{
		jsonrpc.Define("job.run", "Run a job and wait for its end.", run, t.run),
		jsonrpc.Define("job.status", "Where a job stands.", errs, t.status),
		jsonrpc.Define("job.result", "The end of a job that ended.", errs, t.result),
		jsonrpc.Define("job.stop", "End a job that waits or runs.", errs, t.stop),
		jsonrpc.Define("job.logs", "The last lines that a job wrote.", errs, t.logs),
	}, jsonrpc.ServerOptions{Log: r.o.Log})
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	name := r.o.Topic
	if name == "" {
		name = hero.Runner{ID: r.id}.Listens()
	}
	if err := r.o.Hub.Serve(name, func(ctx context.Context, m mycelium.Message) []byte { return t.rpc.Handle(ctx, m.Payload) }); err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	r.topic = t
	return nil
}

// serve takes jobs until ctx ends, and waits for those that run.
func (t *topic) serve(ctx, work context.Context) {
	t.mu.Lock()
	t.work, t.open = work, true
	t.mu.Unlock()
	<-ctx.Done()
	t.mu.Lock()
	t.open = false
	t.mu.Unlock()
	t.running.Wait()
}

// allow checks the secret, where there are any.
func (t *topic) allow(secret string) error {
	if _, known := t.secrets.Owner(secret); !known && len(t.secrets) > 0 {
		return jsonrpc.Errorf(jsonrpc.PermissionDenied, "the secret is not this runner's")
	}
	return nil
}

// run runs a job, or joins the run of one that was sent before.
func (t *topic) run(ctx context.Context, p hero.JobParams) (hero.JobAnswer, error) {
	if err := t.allow(p.Secret); err != nil {
		return hero.JobAnswer{}, err
	}
	sent := p.Job
	sent.Executor = executorOf(sent)
	if sent.ID == "" || sent.Executor == "" || sent.Payload == "" {
		return hero.JobAnswer{}, jsonrpc.Errorf(jsonrpc.InvalidParams, "job: it needs id, executor and payload")
	}
	j, err := t.job(sent)
	if err != nil {
		return hero.JobAnswer{}, err
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		return hero.JobAnswer{}, jsonrpc.Errorf(jsonrpc.Busy, "the runner ends: ask for the job's result, or send it again")
	}
	if j.answer == (hero.JobAnswer{}) {
		return hero.JobAnswer{}, jsonrpc.Errorf(jsonrpc.Busy, "the runner ended before the job did: send it again")
	}
	return j.answer, nil
}

// job finds a job that is known, or begins it.
func (t *topic) job(sent hero.WireJob) (*remote, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := idOf(sent)
	known, ok := t.jobs[id]
	switch {
	case ok && !same(known.job, sent) && (known.status != hero.JobError || sent.Attempt <= known.job.Attempt):
		return nil, jsonrpc.Errorf(jsonrpc.AlreadyExists, "job %s of caller %s is another job: choose a new id", sent.ID, sent.CallerID)
	case ok && (known.status != hero.JobError || sent.Attempt <= known.job.Attempt):
		return known, nil
	case !t.open:
		return nil, jsonrpc.Errorf(jsonrpc.Busy, "the runner takes no jobs: send it to another, or later")
	case !slices.Contains(t.r.scripts.Types(), sent.Executor):
		return nil, jsonrpc.Errorf(jsonrpc.Busy, "no interpreter for %.40s scripts here: this runner has %v", sent.Executor, t.r.scripts.Types())
	}
	ctx, stop := context.WithCancelCause(t.work)
	j := &remote{job: sent, status: hero.JobDispatched, created: time.Now(), stop: stop, done: make(chan struct{})}
	t.jobs[id] = j
	t.running.Go(func() {
		defer stop(nil)
		t.perform(ctx, id, j)
	})
	return j, nil
}

// perform runs the job in the next slot that is free within its queue timeout.
func (t *topic) perform(ctx context.Context, id remoteID, j *remote) {
	waits := hero.QueueTimeoutOf(j.job.QueueTimeout)
	waiting, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	if !t.r.workers.Acquire(waiting) {
		why := causeOf(ctx)
		if ctx.Err() == nil {
			why = fmt.Sprintf("queue_timeout: not begun within %s", waits)
		}
		t.end(id, j, script.Outcome{Reason: why, Result: map[string]string{hero.ResultError: why}}, nil)
		return
	}
	defer t.r.workers.Release()
	t.mu.Lock()
	j.status, j.started = hero.JobStarted, time.Now()
	t.mu.Unlock()
	t.r.metrics.started(j.job.Executor)
	var out script.Outcome
	var err error
	for runs := uint32(1); ; runs++ {
		out, err = t.r.scripts.Run(ctx, scriptOf(j.job, t.r.id))
		j.runs = runs
		if err != nil || out.OK || ctx.Err() != nil || out.Reason == script.Refused || runs > uint32(j.job.Retries) {
			break
		}
	}
	t.r.metrics.ran(j.job.Executor, time.Since(j.started))
	if err == nil {
		t.r.metrics.ended(j.job.Executor, statusOf(out), class(out))
	}
	t.end(id, j, out, err)
}

func causeOf(ctx context.Context) string {
	if errors.Is(context.Cause(ctx), script.ErrStopped) {
		return script.Stopped
	}
	return script.Interrupted
}

// end keeps the answer. A run that says nothing about the job is forgotten, so
// that the job can be sent again.
func (t *topic) end(id remoteID, j *remote, out script.Outcome, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer close(j.done)
	if err != nil || out.Reason == script.Interrupted {
		t.r.o.Log.Warn("job of the topic was not run", zap.String("job", string(id.id)), zap.String("why", out.Reason), zap.Error(err))
		delete(t.jobs, id)
		return
	}
	j.status, j.over, j.answer = statusOf(out), time.Now(), hero.AnswerOf(statusOf(out), out.Result)
	if j.answer.Error != nil && j.job.Retries > 0 {
		j.answer.Runs = j.runs
	}
	t.ended = append(t.ended, id)
	for len(t.ended) > remembered {
		if old := t.jobs[t.ended[0]]; old != nil && old.status.Ended() {
			delete(t.jobs, t.ended[0])
		}
		t.ended = t.ended[1:]
	}
}

// find is the job that is meant: its id is enough where only one has it.
func (t *topic) find(p hero.JobQuery) (*remote, error) {
	if err := t.allow(p.Secret); err != nil {
		return nil, err
	}
	want := cmp.Or(p.JobID, p.ID)
	if j, ok := t.jobs[remoteID{p.ContextID, p.CallerID, want}]; ok {
		return j, nil
	}
	var found []*remote
	for id, j := range t.jobs {
		if id.id == want && (p.CallerID == "" || p.CallerID == id.caller) && (p.ContextID == "" || p.ContextID == id.context) {
			found = append(found, j)
		}
	}
	switch len(found) {
	case 0:
		return nil, jsonrpc.Errorf(jsonrpc.NotFound, "no job %.40s", want)
	case 1:
		return found[0], nil
	}
	return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "%d jobs have the id %.40s: give context_id and caller_id", len(found), want)
}

func (t *topic) status(_ context.Context, p hero.JobQuery) (hero.JobState, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j, err := t.find(p)
	if err != nil {
		return hero.JobState{}, err
	}
	return hero.JobState{JobID: j.job.ID, Status: string(j.status), CreatedAt: hero.WireTime(j.created), StartedAt: hero.WireTime(j.started), CompletedAt: hero.WireTime(j.over)}, nil
}

func (t *topic) result(_ context.Context, p hero.JobQuery) (hero.JobAnswer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j, err := t.find(p)
	if err == nil && !j.status.Ended() {
		err = jsonrpc.Errorf(jsonrpc.InvalidParams, "job %.40s has not ended: it is %s", j.job.ID, j.status)
	}
	if err != nil {
		return hero.JobAnswer{}, err
	}
	return j.answer, nil
}

// stop asks for a job's end; false where it has ended.
func (t *topic) stop(_ context.Context, p hero.JobQuery) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j, err := t.find(p)
	if err != nil || j.status.Ended() {
		return false, err
	}
	j.stop(script.ErrStopped)
	return true, nil
}

// logger is what a host of scripts has that keeps logs.
type logger interface {
	Log(context, id string, most int64) (string, error)
}

// maxLog bounds the end of a log that is sent, in bytes.
const maxLog = 256 << 10

func (t *topic) logs(_ context.Context, p hero.JobQuery) ([]string, error) {
	t.mu.Lock()
	j, err := t.find(p)
	t.mu.Unlock()
	keeps, ok := t.r.scripts.(logger)
	if err != nil || !ok {
		return []string{}, err
	}
	all, err := keeps.Log(string(j.job.ContextID), idOf(j.job).key(), maxLog)
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.InternalError, "read the log: %v", err)
	}
	return lines(all), nil
}
