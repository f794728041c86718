package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"

	"edda/internal/harness"
	"edda/stream/kv"
)

// run is one run of the demo.
type run struct {
	Options
	dir   string
	ports ports
	stops harness.Stops

	redisIs     string // which one it is, for people
	near, far   side   // the Redis of the coordinator, and that of the supervisor
	key         string // of the node that the supervisor is behind
	coordinator *harness.Process
	runner      *harness.Process
	call        caller
}

const (
	// startFor bounds how long a process may take to be ready. A runner that was
	// killed waits until its last heartbeat has expired.
	startFor = 40 * time.Second
	// settleFor bounds how long the books may lag behind the flow's end: its last
	// result message, and counters.
	settleFor = 10 * time.Second
	// callFor bounds one call.
	callFor = 20 * time.Second
	// workers is how many scripts the runner runs at once, however few processors
	// there are: they mostly sleep.
	workers = "4"
)

// secret is what the router tells the supervisor.
const secret = "the demo's own secret"

// Run runs the demo. The error says which checks failed.
func Run(ctx context.Context, o Options) (err error) {
	if o.Edda, err = harness.Binary(o.Edda); err != nil {
		return err
	}
	asked := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("the demo may take %s", o.Timeout))
	defer cancel()
	r := &run{Options: o}
	defer func() { err = errors.Join(err, r.stops.Stop()) }()
	err = r.play(ctx)
	if asked.Err() != nil {
		return errors.New("interrupted; everything that was started is stopped")
	}
	return err
}

func (r *run) play(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := r.firstAct(ctx); err != nil {
		return err
	}
	return r.secondAct(ctx)
}

func (r *run) say(format string, args ...any) { fmt.Fprintf(r.Out, format+"\n", args...) }

// process prepares a process that logs to a file in the folder. It has its own process
// group, so that Ctrl-C reaches only the demo, which then stops it in order.
func (r *run) process(name, program string, env []string, args ...string) *harness.Process {
	return harness.New("the "+name, filepath.Join(r.dir, name+".log"), func() *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Env = r.dir, harness.Environ(env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	})
}

// edda prepares a process of the binary under test.
func (r *run) edda(name string, env []string, args ...string) *harness.Process {
	return r.process(name, r.Edda, env, args...)
}

// begin starts a process and stops it at the end of the demo.
func (r *run) begin(p *harness.Process) error {
	if err := p.Start(); err != nil {
		return err
	}
	r.stops.Add(p.Stop)
	return nil
}

// open starts everything.
func (r *run) open(ctx context.Context) (err error) {
	if _, err := exec.LookPath("python3"); err != nil {
		return errors.New("the demo's jobs are Python scripts: install python3")
	}
	if r.dir, err = os.MkdirTemp("", "edda-demo-hero-"); err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	r.stops.Add(r.cleanUp)
	if r.ports, err = freePorts(); err != nil {
		return err
	}
	if r.near, err = r.openRedis(ctx, "redis-coordinator", r.ports.redis[0]); err != nil {
		return err
	}
	if r.far, err = r.openRedis(ctx, "redis-supervisor", r.ports.redis[1]); err != nil {
		return err
	}
	if err := r.openMycelium(ctx); err != nil {
		return err
	}
	if err := r.openRoles(ctx); err != nil {
		return err
	}
	r.introduce()
	return r.register()
}

func (r *run) cleanUp() error {
	if r.Keep {
		r.say("data, scripts and logs are in %s", r.dir)
		return nil
	}
	return os.RemoveAll(r.dir)
}

// openMycelium serves two nodes of the stand-in.
func (r *run) openMycelium(ctx context.Context) error {
	p := r.edda("mycelium", nil, "hero", "mycelium", "--nodes", "2", "--port", strconv.Itoa(r.ports.mycelium), "--metrics", address(r.ports.myceliumMetrics))
	if err := r.begin(p); err != nil {
		return err
	}
	told := regexp.MustCompile(`node2 +key ([0-9a-f]{64}) `)
	return p.Until(ctx, startFor, func() error {
		found := told.FindStringSubmatch(p.Tail())
		if found == nil {
			return errors.New("it has not told its keys yet")
		}
		r.key = found[1]
		return harness.Ready(ctx, url(r.ports.myceliumMetrics)+"/health")()
	})
}

// openRoles starts NATS in this process, and the coordinator and the runner as
// processes apart: each knows a node of its own and a Redis of its own.
func (r *run) openRoles(ctx context.Context) error {
	nats, err := kv.StartEmbedded(ctx, kv.EmbeddedOptions{Dir: filepath.Join(r.dir, "nats"), Addr: loopback + ":0", Log: zap.NewNop()})
	if err != nil {
		return err
	}
	r.stops.Add(func() error { nats.Close(); return nil })
	r.coordinator = r.edda("coordinator", nil, "run", "--role", "coordinator", "--addr", address(r.ports.coordinator), "--data", filepath.Join(r.dir, "data-coordinator"),
		"--nats-url", nats.URL(), "--redis-addr", address(r.ports.redis[0]), "--mycelium-port", strconv.Itoa(r.ports.mycelium),
		"--api-http-port", strconv.Itoa(r.ports.rpc), "--api-ws-port", strconv.Itoa(r.ports.ws))
	r.runner = r.edda("runner", []string{
		"EDDA_HERO_SUPERVISOR_SECRET=" + secret, "EDDA_HERO_RUNNER_CONTEXTS=" + strconv.Itoa(contextID), "EDDA_HERO_RUNNER_CONCURRENCY=" + workers,
	}, "run", "--role", "runner", "--addr", address(r.ports.runner), "--data", filepath.Join(r.dir, "data-runner"),
		"--redis-addr", address(r.ports.redis[1]), "--mycelium-port", strconv.Itoa(r.ports.mycelium+1))
	r.call = calls(ctx, url(r.ports.rpc))
	for _, p := range []*harness.Process{r.coordinator, r.runner} {
		if err := r.begin(p); err != nil {
			return err
		}
	}
	return r.rolesReady(ctx)
}

func (r *run) rolesReady(ctx context.Context) error {
	if err := r.coordinator.Until(ctx, startFor, harness.Ready(ctx, url(r.ports.coordinator)+"/ready")); err != nil {
		return err
	}
	return r.runner.Until(ctx, startFor, harness.Ready(ctx, url(r.ports.runner)+"/ready"))
}

func (r *run) introduce() {
	r.say("redis        two of them: %s", r.redisIs)
	r.say("mycelium     two nodes of a stand-in, not Mycelium itself: they reach this machine only")
	r.say("coordinator  %s  (process %d, behind node 1)", url(r.ports.rpc), r.coordinator.PID())
	r.say("runner       with its supervisor (process %d, behind node 2)\n", r.runner.PID())
}

// register makes the actor, its context and the runner that stands for the supervisor.
func (r *run) register() error {
	if err := r.call("actor.create", map[string]any{"actor": map[string]any{"id": actorID, "pubkey": "", "address": []string{}}}, nil); err != nil {
		return err
	}
	space := map[string]any{"id": contextID, "admins": []int{actorID}, "readers": []int{}, "executors": []int{}}
	if err := r.call("context.create", map[string]any{"caller_id": actorID, "context": space}, nil); err != nil {
		return err
	}
	return r.call("runner.create", map[string]any{"context_id": contextID, "caller_id": actorID, "runner": map[string]any{
		"id": runnerID, "pubkey": r.key, "address": "", "topic": "", "local": false, "secret": secret,
	}}, nil)
}

// work is the folder that the scripts of a plan share.
func (r *run) work(p plan) string {
	return filepath.Join(r.dir, "flow-"+strconv.FormatUint(uint64(p.id), 10))
}

// begins creates a plan's flow and starts it.
func (r *run) begins(p plan) error {
	if err := os.Mkdir(r.work(p), 0o700); err != nil {
		return err
	}
	if err := p.register(r.call, r.work(p)); err != nil {
		return err
	}
	var started bool
	if err := r.call("flow.start", map[string]any{"context_id": contextID, "id": p.id}, &started); err != nil || !started {
		return errors.Join(err, fmt.Errorf("flow.start said %v", started))
	}
	return nil
}

// draw has a flow drawn as it runs, by the command that everybody has for it.
// Wait for the command.
func (r *run) draw(ctx context.Context, p plan) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, r.Edda, "hero", "flow", "show", "--watch", "--coordinator", url(r.ports.rpc),
		strconv.Itoa(contextID), strconv.FormatUint(uint64(p.id), 10))
	cmd.Env = harness.Environ()
	cmd.Stdout, cmd.Stderr = r.Out, r.Out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("draw the flow: %w", err)
	}
	return cmd, nil
}

// firstAct runs the flow of a dozen jobs.
func (r *run) firstAct(ctx context.Context) error {
	p := saga()
	r.say("A flow of %d jobs. 2010 fails twice; 2012 waits for the word %q, which comes when all the others are done.", len(p.jobs), approval)
	began := time.Now()
	if err := r.begins(p); err != nil {
		return err
	}
	pictures, err := r.draw(ctx, p)
	if err != nil {
		return err
	}
	waited, err := r.approve(ctx, p)
	if err = errors.Join(err, pictures.Wait()); err != nil {
		return err
	}
	took := time.Since(began)
	if err := r.verify(ctx, p, func(b books) []finding { return append(p.undisturbed(b), waited) }); err != nil {
		return err
	}
	r.say("Flow %d took %.1f s; everything agrees.\n", p.id, took.Seconds())
	return nil
}

// approve waits until only the last job is left, looks whether it waits, and says
// that its prerequisite holds.
func (r *run) approve(ctx context.Context, p plan) (finding, error) {
	last := p.jobs[len(p.jobs)-1]
	waited := finding{what: "2012 waits for " + approval, want: "waiting_for_prerequisites, then made ready [2012]"}
	err := harness.Poll(ctx, "all but the last job to end", func() error {
		s, err := r.call.flow(p.id)
		if err == nil && len(s.Completed) < len(p.jobs)-1 && !s.ended() {
			return fmt.Errorf("%d of %d have", len(s.Completed), len(p.jobs))
		}
		return err
	})
	if err != nil {
		return waited, err
	}
	var job object
	if err := r.call("job.load", map[string]any{"context_id": contextID, "caller_id": actorID, "id": last.id}, &job); err != nil {
		return waited, err
	}
	var ready []uint32
	err = r.call("flow.prerequisite_met", map[string]any{"context_id": contextID, "id": p.id, "name": approval}, &ready)
	waited.got = fmt.Sprintf("%s, then made ready %v", job.Status, ready)
	return waited, err
}
