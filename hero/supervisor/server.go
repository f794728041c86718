// Package supervisor implements the supervisor's API. Its server stores jobs in Redis and
// gives them to registered runners. The router calls any supervisor with its client, over
// HTTP or Mycelium.
//
// The server keeps all state in Redis: an accepted job is a RunnerJob hash in the database
// of the job's context, so a restarted supervisor answers for it. A job whose id exists
// with the same content does not run a second time; the recorded result is the answer. The
// server runs no script, and passes signatures on without verifying them.
package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"edda/access"
	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/mycelium"
	"edda/hero/redisdb"
)

// Server is a supervisor. Calls may run concurrently. It keeps no state between them, so
// two servers on one Redis act as one.
type Server struct {
	db      *redisdb.DB
	o       Options
	secrets access.SecretHashes[Credential]
	rpc     *jsonrpc.Server
}

// New makes a supervisor; nothing starts before Run.
func New(db *redisdb.DB, o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{db: db, o: o, secrets: configure(o)}
	var err error
	s.rpc, err = jsonrpc.NewServer(
		jsonrpc.Info{Title: "Supervisor", Version: "1", Description: "Has jobs run by registered runners."},
		s.methods(), jsonrpc.ServerOptions{Log: o.Log, Auth: s.withBearer, MaxConcurrent: maxCalls})
	if err != nil {
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	return s, nil
}

// ServeHTTP answers JSON-RPC over HTTP.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.rpc.ServeHTTP(w, r) }

// HandleMessage answers a JSON-RPC request that came over Mycelium. A hub serves the topic
// supervisor.rpc with it.
func (s *Server) HandleMessage(ctx context.Context, m mycelium.Message) []byte {
	return s.rpc.Handle(ctx, m.Payload)
}

// methods lists the documented methods, with the names of later documents too.
func (s *Server) methods() []jsonrpc.Method {
	job := jsonrpc.MethodOptions{Wrapper: "job", Errors: []int{jsonrpc.PermissionDenied, jsonrpc.AlreadyExists, jsonrpc.NotFound, jsonrpc.StorageError}}
	id := jsonrpc.MethodOptions{Errors: []int{jsonrpc.PermissionDenied, jsonrpc.NotFound, jsonrpc.StorageError}}
	var out []jsonrpc.Method
	out = append(out, named(job, "Store a job without starting it.", s.create, "jobs.create", "create_job")...)
	out = append(out, named(job, "Have a job run and wait for its end.", s.run, "job.run")...)
	out = append(out, named(id, "List the jobs.", s.list, "jobs.list", "list_jobs")...)
	out = append(out, named(id, "One job.", aboutJob(s, s.get), "get_job")...)
	out = append(out, named(id, "Start a job that was stored.", aboutJob(s, s.start), "job.start")...)
	out = append(out, named(id, "Where a job stands.", aboutJob(s, s.status), "job.status")...)
	out = append(out, named(id, "The end of a job that ended.", aboutJob(s, s.result), "job.result")...)
	out = append(out, named(id, "End a job that waits or runs.", aboutJob(s, s.stop), "job.stop")...)
	out = append(out, named(id, "Forget a job that does not run.", aboutJob(s, s.delete), "job.delete", "delete_job")...)
	out = append(out, named(id, "What a job has written.", aboutJob(s, s.logs), "job.logs", "get_job_logs")...)
	out = append(out, named(id, "Register a runner and the list it takes jobs from.", s.register, "register_runner")...)
	out = append(out, named(id, "The names of the registered runners.", s.listRunners, "list_runners")...)
	out = append(out, named(id, "One runner and how many jobs wait for it.", s.runnerStatus, "get_runner_status")...)
	out = append(out, named(id, "Whose key it is.", s.verify, "auth.verify")...)
	out = append(out, named(id, "Make a key.", s.createKey, "auth.create_key", "auth.key.create")...)
	out = append(out, named(id, "The keys that were made, without their secrets.", s.listKeys, "auth.key.list")...)
	out = append(out, named(id, "Make the keys of a name worthless.", s.removeKey, "auth.key.remove")...)
	out = append(out, named(id, "Not supported: says what to do instead.", s.unsupported, "start_runner", "stop_runner", "get_runner_logs")...)
	return out
}

func named[P, R any](o jsonrpc.MethodOptions, summary string, call func(context.Context, P) (R, error), names ...string) []jsonrpc.Method {
	var out []jsonrpc.Method
	for _, name := range names {
		out = append(out, jsonrpc.Define(name, summary, o, call))
	}
	return out
}

// unsupported answers the methods of other supervisors that start and stop processes.
func (s *Server) unsupported(_ context.Context, p runnerParams) (any, error) {
	return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound, "runners are processes of their own here, which this supervisor does not start, stop or read: start one with edda run --role runner; what a job wrote is in job.logs")
}

// create stores a job and returns its id, also for a job that exists.
func (s *Server) create(ctx context.Context, p hero.JobParams) (ID, error) {
	j, err := s.admit(ctx, p)
	if err != nil {
		return "", err
	}
	if _, err := s.enqueue(ctx, j, p.Job.Runner, ""); err != nil {
		return "", err
	}
	return idOf(j), nil
}

// run stores and queues a job and returns its end. A job that exists with the same content
// is not queued again.
func (s *Server) run(ctx context.Context, p hero.JobParams) (Answer, error) {
	j, err := s.admit(ctx, p)
	if err != nil {
		return Answer{}, err
	}
	if err := s.queue(ctx, j, p.Job); err != nil {
		return Answer{}, err
	}
	answer, err := s.await(ctx, j)
	if err == nil && answer.Error != nil && j.Retries > 0 { // a client that sends retries knows the field
		w, err := s.db.Work(ctx, j.ContextID, j.CallerID, j.ID)
		if err != nil {
			return Answer{}, failed(err, "job %d", j.ID)
		}
		answer.Runs = max(1, w.Run.Number)
	}
	return answer, err
}

// bound is the time from a job's start within which it must end.
func (s *Server) bound(j hero.Job) time.Duration {
	return cmp.Or(time.Duration(j.Timeout)*time.Second, s.o.Timeout) + s.o.Grace
}

// until returns the time at which a job ends in error, and the reason: a queued job has its
// queue timeout, a started job its timeout.
func (s *Server) until(j hero.Job) (time.Time, string) {
	since := time.Now()
	if j.UpdatedAt != 0 { // when it was queued, or begun; a foreign program may leave it out
		since = time.Unix(int64(j.UpdatedAt), 0)
	}
	if j.Status == hero.JobStarted {
		return since.Add(s.bound(j)), fmt.Sprintf("timeout: no end within %s of its start", s.bound(j))
	}
	waits := j.WaitsAtMost() + s.o.Grace
	return since.Add(waits), fmt.Sprintf("queue_timeout: not begun within %s", waits)
}

// giveUp returns the time at which the sweep looks at the job. A queued job may have
// started, so the shorter of both bounds counts.
func (s *Server) giveUp(j hero.Job) time.Time {
	return time.Now().Add(min(s.bound(j), j.WaitsAtMost()+s.o.Grace))
}

// admit checks the caller and the job.
func (s *Server) admit(ctx context.Context, p hero.JobParams) (hero.Job, error) {
	k, err := s.allow(ctx, p.Secret, User)
	if err != nil {
		return hero.Job{}, err
	}
	j, err := ToHero(p.Job)
	if err != nil {
		return hero.Job{}, invalid("%v", err)
	}
	if !k.admits(j.ContextID, j.CallerID) {
		return hero.Job{}, refuse(fmt.Sprintf("the secret is for contexts %v and callers %v only", k.Contexts, k.Callers))
	}
	err = s.db.MayRun(ctx, j.ContextID, j.CallerID)
	if err != nil && !(errors.Is(err, redisdb.ErrNotFound) && slices.Contains(s.o.Contexts, j.ContextID)) {
		return hero.Job{}, unauthorised(err)
	}
	return j, s.named(ctx, j)
}

// unauthorised turns the reason why a caller may not run jobs into its error.
func unauthorised(err error) error {
	switch {
	case errors.Is(err, redisdb.ErrDenied):
		return refuse(err.Error())
	case errors.Is(err, redisdb.ErrNotFound):
		return notFound("%v", err)
	}
	return storage(err)
}

// named refuses a job whose name hashes to the number of another job.
func (s *Server) named(ctx context.Context, j hero.Job) error {
	if j.Name == "" {
		return nil
	}
	was, err := s.db.Job(ctx, j.ContextID, j.CallerID, j.ID)
	switch {
	case errors.Is(err, redisdb.ErrNotFound):
		return nil
	case err != nil:
		return failed(err, "job %q", j.Name)
	case was.Name != j.Name:
		return jsonrpc.Errorf(jsonrpc.AlreadyExists, "job %q would be kept as %s, which is another job: choose another id", j.Name, was.Key())
	}
	return nil
}

// queue finds the list of the job and queues the job there.
func (s *Server) queue(ctx context.Context, j hero.Job, wire Job) error {
	runners, err := s.runners(ctx)
	if err != nil {
		return storage(err)
	}
	queue, err := queueFor(wire, runners)
	if err != nil {
		return notFound("%v", err)
	}
	_, err = s.enqueue(ctx, j, wire.Runner, queue)
	return err
}

func (s *Server) enqueue(ctx context.Context, j hero.Job, runner, queue string) (Verdict, error) {
	verdict, err := Enqueue(ctx, s.db, j, queue, s.giveUp(j), fieldRunner, runner)
	if err != nil {
		return "", storage(err)
	}
	if verdict == Other {
		return "", jsonrpc.Errorf(jsonrpc.AlreadyExists, "%v", Taken(j))
	}
	return verdict, nil
}

// failed turns an error of redisdb into the caller's error.
func failed(err error, what string, args ...any) error {
	var broken *hero.FieldError
	switch {
	case errors.Is(err, redisdb.ErrNotFound):
		return notFound("no "+what, args...)
	case errors.As(err, &broken):
		return storage(broken)
	}
	return storage(err)
}
