package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda/access"
	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/mycelium"
	"edda/hero/script"
)

// remembered bounds the ended jobs in memory. One that is sent again is answered from
// there.
const remembered = 10_000

// topic serves the runner's topic: job.run runs a job and returns its end. A job that is
// sent twice runs once, as long as this process remembers it. A higher attempt of a failed
// job runs again.
type topic struct {
	r       *Runner
	rpc     *jsonrpc.Server
	secrets access.SecretHashes[struct{}]

	mu      sync.Mutex // guards the fields below
	work    context.Context
	open    bool
	jobs    map[remoteID]*remote
	ended   []remoteID // oldest first
	running sync.WaitGroup
}

// remote is a job of the topic.
type remote struct {
	job     hero.WireJob
	status  hero.JobStatus
	created time.Time
	started time.Time
	over    time.Time
	answer  hero.JobAnswer
	stop    context.CancelCauseFunc
	done    chan struct{} // closed at the end
	runs    uint32        // of the script; only perform uses it until done is closed
}

// listen registers the topic with the hub, where there is one. Call it before the hub runs.
func (r *Runner) listen() error {
	if r.o.Hub == nil {
		return nil
	}
	t := &topic{r: r, secrets: access.SecretHashes[struct{}]{}, jobs: map[remoteID]*remote{}}
	for _, s := range r.o.Secrets {
		t.secrets.Add(s, struct{}{})
	}
	errs := jsonrpc.MethodOptions{Errors: []int{jsonrpc.PermissionDenied, jsonrpc.NotFound, jsonrpc.Busy, jsonrpc.AlreadyExists}}
	run := errs
	run.Wrapper = "job"
	var err error
	t.rpc, err = jsonrpc.NewServer(jsonrpc.Info{Title: "Runner", Version: "1", Description: "Runs jobs."}, []jsonrpc.Method{
		jsonrpc.Define("job.run", "Run a job and wait for its end.", run, t.run),
		jsonrpc.Define("job.status", "Where a job stands.", errs, aboutJob(t, (*remote).state)),
		jsonrpc.Define("job.result", "The end of a job that ended.", errs, aboutJob(t, (*remote).result)),
		jsonrpc.Define("job.stop", "End a job that waits or runs.", errs, aboutJob(t, (*remote).end)),
		jsonrpc.Define("job.logs", "The last lines that a job wrote.", errs, t.logs),
	}, jsonrpc.ServerOptions{Log: r.o.Log})
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	name := cmp.Or(r.o.Topic, hero.Runner{ID: r.id}.Listens())
	if err := r.o.Hub.Serve(name, func(ctx context.Context, m mycelium.Message) []byte { return t.rpc.Handle(ctx, m.Payload) }); err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	r.topic = t
	return nil
}

// serve accepts jobs until ctx ends, and waits for the running ones.
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

// allow checks the secret, where the options have any.
func (t *topic) allow(secret string) error {
	if _, known := t.secrets.Owner(secret); !known && len(t.secrets) > 0 {
		return jsonrpc.Errorf(jsonrpc.PermissionDenied, "the secret is not this runner's")
	}
	return nil
}

// run runs a job, or waits for the run of a job that was sent before.
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

// job finds a known job, or starts it.
func (t *topic) job(sent hero.WireJob) (*remote, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := idOf(sent)
	known, ok := t.jobs[id]
	again := ok && known.status == hero.JobError && sent.Attempt > known.job.Attempt
	switch {
	case ok && !again && !same(known.job, sent):
		return nil, jsonrpc.Errorf(jsonrpc.AlreadyExists, "job %s of caller %s is another job: choose a new id", sent.ID, sent.CallerID)
	case ok && !again:
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

// perform waits for a free worker, at most for the queue timeout, and runs the job.
func (t *topic) perform(ctx context.Context, id remoteID, j *remote) {
	waits := hero.QueueTimeoutOf(j.job.QueueTimeout)
	waiting, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	if !t.r.workers.Acquire(waiting) {
		why := script.Interrupted
		switch {
		case ctx.Err() == nil:
			why = fmt.Sprintf("queue_timeout: not begun within %s", waits)
		case errors.Is(context.Cause(ctx), script.ErrStopped):
			why = script.Stopped
		}
		t.end(id, j, script.RunResult{Reason: why, Result: map[string]string{hero.ResultError: why}}, nil)
		return
	}
	defer t.r.workers.Release()
	t.mu.Lock()
	j.status, j.started = hero.JobStarted, time.Now()
	t.mu.Unlock()
	t.r.metrics.started(j.job.Executor)
	var out script.RunResult
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

// end keeps the answer. It forgets an interrupted job, so that the job can be sent again.
func (t *topic) end(id remoteID, j *remote, out script.RunResult, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer close(j.done)
	if err != nil || out.Reason == script.Interrupted {
		t.r.o.Log.Warn("job of the topic was not run: its sender has to send it again", zap.String("job", string(id.id)), zap.String("why", out.Reason), zap.Error(err))
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

// find finds the job of a query. The id is enough where only one job has it. The caller
// holds mu.
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

// aboutJob makes a method about one job, which do reads or stops while mu is held.
func aboutJob[R any](t *topic, do func(*remote) (R, error)) func(context.Context, hero.JobQuery) (R, error) {
	return func(_ context.Context, p hero.JobQuery) (R, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		j, err := t.find(p)
		if err != nil {
			var none R
			return none, err
		}
		return do(j)
	}
}

func (j *remote) state() (hero.JobState, error) {
	return hero.JobState{JobID: j.job.ID, Status: string(j.status), CreatedAt: hero.WireTime(j.created), StartedAt: hero.WireTime(j.started), CompletedAt: hero.WireTime(j.over)}, nil
}

func (j *remote) result() (hero.JobAnswer, error) {
	if !j.status.Ended() {
		return hero.JobAnswer{}, jsonrpc.Errorf(jsonrpc.InvalidParams, "job %.40s has not ended: it is %s", j.job.ID, j.status)
	}
	return j.answer, nil
}

// end ends the job's script; false where the job has ended.
func (j *remote) end() (bool, error) {
	if j.status.Ended() {
		return false, nil
	}
	j.stop(script.ErrStopped)
	return true, nil
}

// logger is implemented by a host of scripts that keeps logs.
type logger interface {
	Log(context, id string, most int64) (string, error)
}

// maxLog bounds the bytes of job.logs, which are the end of the log.
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
	if all == "" {
		return []string{}, nil
	}
	return strings.Split(strings.TrimSuffix(all, "\n"), "\n"), nil
}

// remoteID identifies a job of the topic.
type remoteID struct{ context, caller, id hero.WireID }

func idOf(j hero.WireJob) remoteID { return remoteID{j.ContextID, j.CallerID, j.ID} }

func (id remoteID) key() string { return "job:" + string(id.caller) + ":" + string(id.id) }

// executorOf is the type of the job's script. Two fields may hold it.
func executorOf(j hero.WireJob) string { return strings.ToLower(cmp.Or(j.Executor, j.Runner)) }

// same reports whether two jobs are the same work.
func same(j, k hero.WireJob) bool {
	return j.Payload == k.Payload && j.Executor == k.Executor && j.Timeout == k.Timeout && maps.Equal(j.EnvVars, k.EnvVars)
}

func scriptOf(j hero.WireJob, runner uint32) script.Script {
	return script.Script{ID: idOf(j).key(), Type: j.Executor, Source: j.Payload, Env: j.EnvVars, Context: string(j.ContextID),
		Timeout: time.Duration(j.Timeout) * time.Second, Who: fmt.Sprintf("actor %s by runner%d", j.CallerID, runner)}
}
