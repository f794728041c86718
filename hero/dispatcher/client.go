package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
	"edda/internal/backoff"
	"edda/internal/coalesce"
)

// The errors of a client.
var (
	ErrNotFound = errors.New("there is no such job")
	ErrExists   = errors.New("there is a job with this id already")
	// ErrEnded refuses to stop or requeue a job that has a result.
	ErrEnded = errors.New("the job has ended")
	// ErrRunning refuses to requeue a job that a live worker runs.
	ErrRunning = errors.New("the job is running")
)

// Options of a Client. The zero value speaks the documented protocol.
type Options struct {
	Scheme  Scheme
	Order   Order  // of the workers: the end of the queue to which a sweep returns jobs
	LogDir  string // the workers' folder of logs; Logs fails without one
	Metrics prometheus.Registerer
}

// Client creates jobs and follows them. Its methods may be called concurrently.
type Client struct {
	conn
	logs    logFolder
	metrics *metrics
	news    coalesce.Coalescer[*creation]
}

// New makes a client of a Redis. The caller closes db.
func New(db *redis.Client, o Options) (*Client, error) {
	l, err := newConn(db, o.Scheme, o.Order)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: l, logs: logFolder(o.LogDir), metrics: m}
	c.news.Send = c.write
	return c, nil
}

// prepared completes and checks a new job.
func (c *Client) prepared(j Job) (Job, error) {
	if j.ID == "" {
		j.ID = uuid.NewString()
	}
	j.CreatedAt = time.Now().UTC()
	j.UpdatedAt, j.Status, j.Attempts, j.Output, j.Error = j.CreatedAt, hero.JobDispatched, 0, "", ""
	if err := checkID("the job's id", j.ID); err != nil {
		return j, err
	}
	if err := checkID("the job's worker", j.WorkerID); err != nil {
		return j, err
	}
	if j.Script == "" {
		return j, edda.Classify(edda.Permanent, "the job has no script")
	}
	if j.Priority != hero.PriorityNormal {
		p, err := hero.ParsePriority(string(j.Priority))
		if err != nil {
			return j, edda.Classify(edda.Permanent, "the job's %w", err)
		}
		j.Priority = p
	}
	for _, dep := range j.Waits() {
		if err := checkID("a job that it depends on", dep); err != nil {
			return j, err
		}
	}
	return j, c.logs.check(j.LogPath)
}

// Create stores a job, which does not run before Submit. A job without an id gets a UUID. A
// job that depends on itself, through any number of others, is a CycleError.
func (c *Client) Create(ctx context.Context, j Job) (Job, error) {
	j, err := c.prepared(j)
	if err != nil {
		return j, err
	}
	if err := c.acyclic(ctx, j.ID, j.Waits()); err != nil {
		return j, err
	}
	return j, c.create(ctx, j, false)
}

func (c *Client) create(ctx context.Context, j Job, submit bool) error {
	answer, err := c.run(ctx, c.scripts.create, append([]any{j.ID, bit(submit), j.WorkerID}, j.fields()...)...).Text()
	if err != nil {
		return trouble("create job "+j.ID, err)
	}
	if answer == "exists" {
		return edda.Classify(edda.Permanent, "create job %s: %w", j.ID, ErrExists)
	}
	c.metrics.created.Inc()
	return nil
}

// Dispatch creates a job and submits it. Without dependencies it does both in one step.
// After a Temporary error the job may exist. A caller that chose the id may dispatch it
// again: ErrExists means that it exists.
func (c *Client) Dispatch(ctx context.Context, j Job) (Job, error) {
	fresh := j.ID == ""
	if len(j.Waits()) > 0 {
		j, err := c.Create(ctx, j)
		if err != nil {
			return j, err
		}
		_, err = c.Submit(ctx, j.ID)
		return j, err
	}
	j, err := c.prepared(j)
	switch {
	case err != nil:
		return j, err
	case !fresh || j.Priority != hero.PriorityNormal:
		return j, c.create(ctx, j, true)
	}
	n := &creation{queue: c.scheme.WorkQueue(j.WorkerID), id: j.ID, fields: j.fields()}
	if n.err = ctx.Err(); n.err == nil {
		c.news.Do(ctx, n, len(j.Script))
	}
	if n.err != nil {
		return j, trouble("create job "+j.ID, n.err)
	}
	c.metrics.created.Inc()
	return j, nil
}

// creation is a new job under a unique id.
type creation struct {
	queue, id string
	fields    []any
	err       error
}

// write writes and pushes new jobs as the document does: HSET, LPUSH. It ignores the end of
// ctx, which is the context of only one of the clients.
func (c *Client) write(ctx context.Context, batch []*creation) {
	ctx = context.WithoutCancel(ctx)
	pipe := c.db.Pipeline()
	cmds := make([]redis.Cmder, 0, 2*len(batch))
	for _, n := range batch {
		cmds = append(cmds, pipe.HSet(ctx, JobKey(n.id), n.fields...), pipe.LPush(ctx, n.queue, n.id))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, n := range batch {
		if n.err = cmds[2*i].Err(); n.err == nil {
			n.err = cmds[2*i+1].Err()
		}
	}
}

// Submitted is the outcome of a submission.
type Submitted string

// The outcomes of a submission.
const (
	Queued  Submitted = "queued"  // on its worker's queue
	Waiting Submitted = "waiting" // for jobs that it depends on
	Failed  Submitted = "failed"  // one of them failed or does not exist: the job ended in error
)

// Submit puts a created job on its worker's queue. Until all jobs that it depends on have
// finished, it waits. Submitting a queued job again changes nothing.
func (c *Client) Submit(ctx context.Context, id string) (Submitted, error) {
	j, err := c.Job(ctx, id)
	if err != nil {
		return "", err
	}
	if err := c.acyclic(ctx, id, j.Waits()); err != nil {
		return "", err
	}
	return c.place(ctx, c.scripts.submit, "submit", j)
}

// place runs a script that queues a job, and reads the script's answer.
func (c *Client) place(ctx context.Context, s *redis.Script, doing string, j Job) (Submitted, error) {
	answer, err := c.run(ctx, s, with(j.Waits(), j.ID)...).StringSlice()
	if err != nil {
		return "", trouble(doing+" job "+j.ID, err)
	}
	if len(answer) != 2 {
		return "", edda.Classify(edda.Permanent, "%s job %s: Redis answered %q", doing, j.ID, answer)
	}
	switch answer[0] {
	case "ready", "queued":
		return Queued, nil
	case "waiting":
		return Waiting, nil
	case "failed":
		return Failed, edda.Classify(edda.Permanent, "%s job %s: %s", doing, j.ID, answer[1])
	case "missing":
		return "", notFound(j.ID)
	case "nobody":
		return "", edda.Classify(edda.Permanent, "%s job %s: it names no worker: set its field worker_id", doing, j.ID)
	case "running":
		return "", edda.Classify(edda.Permanent, "%s job %s: %w at worker %s, which is alive: stop it first", doing, j.ID, ErrRunning, answer[1])
	case string(hero.JobStarted):
		return "", edda.Classify(edda.Permanent, "%s job %s: %w", doing, j.ID, ErrRunning)
	}
	return "", edda.Classify(edda.Permanent, "%s job %s: %w: it is %s", doing, j.ID, ErrEnded, answer[0])
}

// Requeue runs a job again that failed, whose worker died, or that is missing from its
// queue. It resets the attempts. It refuses a finished job and one that a live worker of
// Edda runs. A queued job stays queued once.
func (c *Client) Requeue(ctx context.Context, id string) (Submitted, error) {
	j, err := c.Job(ctx, id)
	if err != nil {
		return "", err
	}
	return c.place(ctx, c.scripts.requeue, "requeue", j)
}

func notFound(id string) error {
	return edda.Classify(edda.Permanent, "job %s: %w: list them with edda hero job list", id, ErrNotFound)
}

// Job reads a job.
func (c *Client) Job(ctx context.Context, id string) (Job, error) {
	if err := checkID("the job's id", id); err != nil {
		return Job{}, err
	}
	h, err := c.db.HGetAll(ctx, JobKey(id)).Result()
	if err != nil {
		return Job{}, trouble("read job "+id, err)
	}
	if len(h) == 0 {
		return Job{}, notFound(id)
	}
	return readJob(id, h)
}

// Stopped is the outcome of a request to stop.
type Stopped string

// The outcomes of a request to stop.
const (
	StopAsked Stopped = "asked"   // the request is on the worker's stop queue
	StopDone  Stopped = "stopped" // the job waited for other jobs and has ended
)

// Stop asks the job's worker to stop the job. It ends in error, with "stopped" if it had not
// begun and with "stopped_by_request" if it ran.
func (c *Client) Stop(ctx context.Context, id string) (Stopped, error) {
	if err := checkID("the job's id", id); err != nil {
		return "", err
	}
	answer, err := c.run(ctx, c.scripts.stop, id).Text()
	if err != nil {
		return "", trouble("stop job "+id, err)
	}
	switch answer {
	case "asked", "stopped":
		return Stopped(answer), nil
	case "missing":
		return "", notFound(id)
	case "nobody":
		return "", edda.Classify(edda.Permanent, "stop job %s: it names no worker", id)
	}
	return "", edda.Classify(edda.Permanent, "stop job %s: %w: it is %s", id, ErrEnded, answer)
}

// Logs reads the log at the job's log_path, at most the last maxLogRead bytes. The file must
// lie in the client's log folder.
func (c *Client) Logs(ctx context.Context, id string) (string, error) {
	j, err := c.Job(ctx, id)
	if err != nil {
		return "", err
	}
	if j.LogPath == "" {
		return "", edda.Classify(edda.Permanent, "job %s has no log_path: its worker kept no log", id)
	}
	return c.logs.read(j.LogPath)
}

// Filter selects jobs. An empty field matches all.
type Filter struct {
	Worker, Caller, Context string
	Status                  hero.JobStatus
}

func (f Filter) match(j Job) bool {
	return (f.Worker == "" || f.Worker == j.WorkerID) && (f.Caller == "" || f.Caller == j.CallerID) &&
		(f.Context == "" || f.Context == j.ContextID) && (f.Status == "" || f.Status == j.Status)
}

// scanPage is the number of keys that Redis examines in one step of a scan.
const scanPage = 500

// List lists all jobs, in no order. A hash that cannot be read is listed with its error. An
// error with an empty job ends the list.
func (c *Client) List(ctx context.Context, f Filter) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for page, err := range c.pages(ctx) {
			if err != nil {
				yield(Job{}, err)
				return
			}
			if !c.list(ctx, f, page, yield) {
				return
			}
		}
	}
}

func (c *Client) list(ctx context.Context, f Filter, ids []string, yield func(Job, error) bool) bool {
	pipe := c.db.Pipeline()
	hashes := make([]*redis.MapStringStringCmd, len(ids))
	for i, id := range ids {
		hashes[i] = pipe.HGetAll(ctx, JobKey(id))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, id := range ids {
		h, err := hashes[i].Result()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			yield(Job{}, trouble("read jobs", err))
			return false
		}
		if len(h) == 0 {
			continue // it was deleted or replaced since the scan
		}
		j, err := readJob(id, h)
		if (err != nil || f.match(j)) && !yield(j, err) {
			return false
		}
	}
	return true
}

// pages lists the ids of all jobs, each once. It scans with TYPE, because lists with the
// same prefix are no jobs.
func (l conn) pages(ctx context.Context) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		seen := map[string]bool{}
		for cursor := uint64(0); ; {
			keys, next, err := l.db.ScanType(ctx, cursor, jobPrefix+"*", scanPage, "hash").Result()
			if err != nil {
				yield(nil, trouble("list jobs", err))
				return
			}
			var ids []string
			for _, key := range keys {
				if id := strings.TrimPrefix(key, jobPrefix); !seen[id] {
					seen[id] = true
					ids = append(ids, id)
				}
			}
			if len(ids) > 0 && !yield(ids, nil) {
				return
			}
			if cursor = next; cursor == 0 {
				return
			}
		}
	}
}

// WorkerAlive reports whether a worker of that id has a heartbeat. Workers of other programs
// have none.
func (c *Client) WorkerAlive(ctx context.Context, worker string) (bool, error) {
	n, err := c.db.Exists(ctx, workerPrefix+worker).Result()
	return n > 0, trouble("look for worker "+worker, err)
}

// Depth returns the length of a worker's queue.
func (c *Client) Depth(ctx context.Context, worker string) (int64, error) {
	n, err := c.db.LLen(ctx, c.scheme.WorkQueue(worker)).Result()
	return n, trouble("measure the queue of "+worker, err)
}

// Run creates a job, submits it and waits for its end: run_job_and_await_result. The error
// is nil also where the job failed. When ctx ends the job goes on.
func (c *Client) Run(ctx context.Context, j Job) (Job, error) {
	j, err := c.Dispatch(ctx, j)
	if err != nil {
		return j, err
	}
	return c.Wait(ctx, j.ID)
}

// The waits of Wait. The first is short, because some workers push no reply.
const (
	firstLook = 100 * time.Millisecond
	lastLook  = time.Second
)

// Wait waits until a job has ended, and returns it. A reply only wakes it: it reads the
// hash, because some workers push no reply. Redis may be down meanwhile. While the job
// waits for other jobs, Wait queues jobs that may run, because workers of other programs
// do not.
func (c *Client) Wait(ctx context.Context, id string) (Job, error) {
	page := uint64(0)
	for looks := (backoff.Exponential{First: firstLook, Most: lastLook}); ; {
		look := looks.Next()
		err := c.db.Do(ctx, "BLPOP", c.scheme.ReplyQueue(id), look.Seconds()).Err()
		if err != nil && !errors.Is(err, redis.Nil) && ctx.Err() == nil {
			if err := trouble("wait for job "+id, err); !errors.Is(err, edda.Temporary) {
				return Job{}, err
			}
			_ = backoff.Wait(ctx, look)
		}
		j, err := c.Job(ctx, id)
		switch {
		case ctx.Err() != nil:
			return j, fmt.Errorf("wait for job %s: %w", id, context.Cause(ctx))
		case err == nil && j.Status.Ended():
			return j, nil
		case err != nil && !errors.Is(err, edda.Temporary):
			return j, err
		case err == nil && j.Status == hero.JobDispatched && len(j.Waits()) > 0:
			// An error here is no reason to end the wait: the next look tries again.
			page, _, _ = c.releasePage(ctx, page)
		}
	}
}
