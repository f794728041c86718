package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/redisdb/redisdbtest"
	"edda/hero/script"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

const (
	tenant = 7  // the context of the tests
	actor  = 12 // the caller of the jobs
)

// world is a Redis with a context.
type world struct {
	t      *testing.T
	server *realservers.Server
	db     *redisdb.DB
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	server, db := redisdbtest.New(t, realservers.RedisOptions{AppendOnly: true})
	w := &world{t: t, server: server, db: db}
	w.must(w.db.PutContext(t.Context(), hero.Context{ID: tenant, Admins: []uint32{actor}}))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	testkit.Must(w.t, err)
}

// interpreters prefers the system's Python, because the first python3 in PATH may be a slow
// wrapper.
func interpreters() map[string][]string {
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		python = "python3"
	}
	return map[string][]string{"python": {python, "-"}, "bash": {"bash", "-s"}}
}

func newScripts(t testing.TB, dir string) *script.Host {
	t.Helper()
	h, err := script.New(script.Options{Dir: dir, Interpreters: interpreters(), Limits: script.Limits{Grace: 300 * time.Millisecond}})
	testkit.Must(t, err)
	return h
}

// quick shortens the intervals of a runner.
func quick(o Options) Options {
	o.Alive, o.Look = 2*time.Second, 50*time.Millisecond
	if o.Contexts == nil {
		o.Contexts = []uint32{tenant}
	}
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	return o
}

// start runs a runner until the test ends, or stop is called.
func (w *world) start(id uint32, scripts Scripts, o Options) (stop func()) {
	w.t.Helper()
	r, err := New(id, w.db, scripts, quick(o))
	w.must(err)
	return testkit.Run(w.t, r.Run)
}

// queue makes a job and puts it into its queue.
func (w *world) queue(j hero.Job) hero.Job {
	w.t.Helper()
	j.CallerID, j.ContextID, j.Status = actor, tenant, hero.JobDispatched
	if j.ScriptType == "" {
		j.ScriptType = hero.ScriptPython
	}
	w.must(w.db.PutJob(w.t.Context(), j))
	w.must(w.db.Push(w.t.Context(), tenant, j.ScriptType.Queue(), j.Key()))
	return j
}

func (w *world) job(id uint32) hero.Job {
	w.t.Helper()
	j, err := w.db.Job(w.t.Context(), tenant, actor, id)
	w.must(err)
	return j
}

func (w *world) status(id uint32) hero.JobStatus { return w.job(id).Status }

// ended waits for a job's end.
func (w *world) ended(id uint32) hero.Job {
	w.t.Helper()
	var j hero.Job
	w.eventually(fmt.Sprintf("job %d ends", id), func() bool {
		j = w.job(id)
		return j.Status.Ended()
	})
	return j
}

func (w *world) eventually(what string, met func() bool) {
	w.t.Helper()
	testkit.Until(w.t, 20*time.Second, what, met)
}

// list returns a list's keys, newest first.
func (w *world) list(name string) []string {
	w.t.Helper()
	c, err := w.db.Client(tenant)
	w.must(err)
	keys, err := c.LRange(w.t.Context(), name, 0, -1).Result()
	w.must(err)
	return keys
}

// told returns the messages in msg_out, oldest first.
func (w *world) told() []hero.Message {
	w.t.Helper()
	var out []hero.Message
	for _, key := range slices.Backward(w.list(hero.MsgOut)) {
		caller, id, err := hero.ParseMessageKey(key)
		w.must(err)
		m, err := w.db.Message(w.t.Context(), tenant, caller, id)
		w.must(err)
		out = append(out, m)
	}
	return out
}

// idle waits until the queues and the processing lists are empty.
func (w *world) idle(runners ...uint32) {
	w.t.Helper()
	for _, kind := range []string{"python", "bash"} {
		lists := []string{"queue:" + kind, "queue:" + kind + brokenSuffix}
		for _, id := range runners {
			lists = append(lists, taken(kind, id))
		}
		for _, name := range lists {
			w.eventually(name+" is empty", func() bool { return len(w.list(name)) == 0 })
		}
	}
}

func (w *world) client(do func(ctx context.Context, set func(key string, words ...any))) {
	w.t.Helper()
	c, err := w.db.Client(tenant)
	w.must(err)
	do(w.t.Context(), func(key string, words ...any) { w.must(c.HSet(w.t.Context(), key, words...).Err()) })
}

func TestAJobIsRunAndTold(t *testing.T) {
	w := newWorld(t)
	m := hero.Message{ID: 101, CallerID: actor, ContextID: tenant, MessageType: hero.MessageJob, MessageFormat: hero.FormatText}
	w.must(w.db.PutMessage(t.Context(), tenant, m))
	w.start(20, newScripts(t, t.TempDir()), Options{})
	w.queue(hero.Job{ID: 2001, Script: "import os, sys\nprint('hello')\nprint('careful', file=sys.stderr)\nprint('{\"sum\": 42, \"who\": \"%s\"}' % os.environ['WHO'])",
		EnvVars: map[string]string{"WHO": "me"}, FlowID: 9, Attempt: 2, MessageKey: m.Key()})
	j := w.ended(2001)
	if j.Status != hero.JobFinished || fmt.Sprint(j.Result) != "map[sum:42 who:me]" {
		t.Errorf("%+v", j)
	}
	w.idle(20)
	told := w.told()
	if len(told) != 1 {
		t.Fatalf("told %+v", told)
	}
	got := told[0]
	if got.MessageType != hero.MessageResult || got.CallerID != actor || got.To != actor || got.FlowID != 9 || got.Attempt != 2 || got.ReplyTo != m.Key() ||
		got.Status != hero.MessageDispatched || len(got.Job) != 1 || got.Job[0].Status != hero.JobFinished || got.Job[0].Result["sum"] != "42" {
		t.Errorf("told %+v", got)
	}
	w.eventually("the log is in Redis", func() bool { return len(w.list(LogKey(j.Key()))) == 3 })
	if lines := w.list(LogKey(j.Key())); !slices.Contains(lines, "stdout hello") || !slices.Contains(lines, "stderr careful") {
		t.Errorf("log %q", lines)
	}
	got, err := w.db.Message(t.Context(), tenant, actor, 101)
	if err != nil || len(got.Logs) != 3 || !strings.HasPrefix(got.Logs[0].Source, "runner 20, std") {
		t.Errorf("log of the message %+v, %v", got.Logs, err)
	}
	if r, err := w.db.Runner(t.Context(), tenant, 20); err != nil || !r.Local {
		t.Errorf("registration %+v, %v", r, err)
	}
}

func TestEndsAreRecorded(t *testing.T) {
	w := newWorld(t)
	reg := prometheus.NewRegistry()
	w.start(20, newScripts(t, t.TempDir()), Options{Metrics: reg})
	tests := []struct {
		name, script, why string
		timeout           uint32
	}{
		{"exit", "print('so far')\nimport sys; sys.exit(3)", "exit 3", 0},
		{"timeout", "import time; time.sleep(60)", "timeout: ran longer than 1s", 1},
		{"refused", "print(1)\x00", "refused: the script has a NUL", 0},
		{"signal", "import os; os.kill(os.getpid(), 9)", "signal SIGKILL", 0},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.queue(hero.Job{ID: uint32(i + 1), Script: tt.script, Timeout: tt.timeout})
			j := w.ended(uint32(i + 1))
			if j.Status != hero.JobError || !strings.HasPrefix(j.Result[hero.ResultError], tt.why) {
				t.Errorf("%+v", j)
			}
		})
	}
	w.idle(20)
	for _, m := range w.told() {
		if m.Job[0].Status != hero.JobError || m.Message != m.Job[0].Result[hero.ResultError] {
			t.Errorf("told %+v", m)
		}
	}
	want := `
# HELP edda_hero_runner_jobs_ended_total Runs of jobs that ended; dispatched means that the job is tried again.
# TYPE edda_hero_runner_jobs_ended_total counter
edda_hero_runner_jobs_ended_total{error="exit",status="error",type="python"} 1
edda_hero_runner_jobs_ended_total{error="refused",status="error",type="python"} 1
edda_hero_runner_jobs_ended_total{error="signal",status="error",type="python"} 1
edda_hero_runner_jobs_ended_total{error="timeout",status="error",type="python"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "edda_hero_runner_jobs_ended_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestRetriesAreCallsAfterTheFirst(t *testing.T) {
	w := newWorld(t)
	w.start(20, newScripts(t, t.TempDir()), Options{})
	count := t.TempDir() + "/count"
	source := "import os, sys\nn = open(os.environ['COUNT'], 'a+'); n.write('x'); n.seek(0); sys.exit(0 if len(n.read()) == 3 else 1)"
	for _, tt := range []struct {
		id   uint32
		flow uint32
		max  uint8
		want hero.JobStatus
		runs int
	}{{1, 0, 2, hero.JobFinished, 3}, {2, 0, 1, hero.JobError, 2}, {3, 9, 5, hero.JobError, 1}} {
		file := fmt.Sprint(count, tt.id)
		w.queue(hero.Job{ID: tt.id, FlowID: tt.flow, Retries: tt.max, Script: source, EnvVars: map[string]string{"COUNT": file}})
		j := w.ended(tt.id)
		runs, err := os.ReadFile(file)
		if err != nil || j.Status != tt.want || len(runs) != tt.runs {
			t.Errorf("job %d of flow %d: %s after %d runs, %v", tt.id, tt.flow, j.Status, len(runs), err)
		}
	}
	if got := len(w.told()); got != 3 {
		t.Errorf("%d messages for 3 jobs", got)
	}
}

func TestAJobThatEndedIsNeverRunAgain(t *testing.T) {
	w := newWorld(t)
	file := t.TempDir() + "/ran"
	for id, status := range map[uint32]hero.JobStatus{1: hero.JobFinished, 2: hero.JobError} {
		j := w.queue(hero.Job{ID: id, Script: "import os; open(os.environ['F'], 'w')", EnvVars: map[string]string{"F": file}})
		_, _, err := w.db.MoveJob(t.Context(), tenant, actor, id, status, map[string]string{"output": "first"})
		w.must(err)
		w.must(w.db.Push(t.Context(), tenant, j.ScriptType.Queue(), j.Key()))
	}
	w.start(20, newScripts(t, t.TempDir()), Options{})
	w.idle(20)
	for _, id := range []uint32{1, 2} {
		if j := w.job(id); j.Result["output"] != "first" {
			t.Errorf("%+v", j)
		}
	}
	if _, err := os.Stat(file); err == nil || len(w.told()) != 0 {
		t.Errorf("a job ran again")
	}
}

func TestAKeyThatIsNoJobIsSetAside(t *testing.T) {
	w := newWorld(t)
	c, err := w.db.Client(tenant)
	w.must(err)
	w.must(c.HSet(t.Context(), "job:12:1", "id", "1", "caller_id", "12", "script", "print(1)", "script_type", "python", "timeout", "never").Err())
	w.must(c.HSet(t.Context(), "job:12:5", "id", "5", "caller_id", "12", "script", "print(1)", "script_type", "python", "status", "Started").Err())
	for _, key := range []string{"job:12:1", "nonsense", "job:12:5", "job:12:404"} {
		w.must(w.db.Push(t.Context(), tenant, "queue:python", key))
	}
	w.queue(hero.Job{ID: 2, Script: "print(1)"})
	w.start(20, newScripts(t, t.TempDir()), Options{})
	w.ended(2)
	want := []string{"job:12:1", "job:12:5", "nonsense"}
	w.eventually("all are aside", func() bool {
		got := w.list("queue:python" + brokenSuffix)
		slices.Sort(got)
		return slices.Equal(got, want) && len(w.list(taken("python", 20))) == 0
	})
	h, err := c.HGetAll(t.Context(), "job:12:1").Result()
	if err != nil || len(h) != 5 {
		t.Errorf("a broken job was written to: %v, %v", h, err)
	}
}

func TestAForeignJobInTheWrongQueueFindsItsOwn(t *testing.T) {
	w := newWorld(t)
	w.queue(hero.Job{ID: 1, Script: "echo $((6*7))", ScriptType: "bash"})
	c, err := w.db.Client(tenant)
	w.must(err)
	w.must(c.Rename(t.Context(), "queue:bash", "queue:python").Err())
	w.start(20, newScripts(t, t.TempDir()), Options{})
	if j := w.ended(1); j.Result["output"] != "42\n" {
		t.Errorf("%+v", j)
	}
	w.idle(20)
}

func TestATypeWithoutAnInterpreterWaits(t *testing.T) {
	w := newWorld(t)
	core, said := observer.New(zapcore.ErrorLevel)
	w.queue(hero.Job{ID: 1, Script: "1", ScriptType: hero.ScriptV})
	w.start(20, newScripts(t, t.TempDir()), Options{Log: zap.New(core)})
	w.eventually("it is said", func() bool { return said.FilterMessageSnippet("no interpreter is here").Len() > 0 })
	if fields := said.All()[0].ContextMap(); fields["queue"] != "queue:v" || fields["jobs"] != int64(1) {
		t.Errorf("%v", fields)
	}
	if got := w.list("queue:v"); len(got) != 1 || w.status(1) != hero.JobDispatched {
		t.Errorf("queue %v, job %s", got, w.status(1))
	}
}

const sleeper = "import time; print('ready', flush=True); time.sleep(60)"

func TestStop(t *testing.T) {
	w := newWorld(t)
	w.start(20, newScripts(t, t.TempDir()), Options{})
	w.queue(hero.Job{ID: 1, FlowID: 9, Attempt: 3, Script: sleeper})
	end := t.TempDir() + "/end"
	w.queue(hero.Job{ID: 2, FlowID: 9, Attempt: 3, Script: "import os, time\nwhile not os.path.exists(os.environ['END']): time.sleep(0.01)", EnvVars: map[string]string{"END": end}})
	w.eventually("both run", func() bool { return w.status(1) == hero.JobStarted && w.status(2) == hero.JobStarted })
	w.must(w.db.StopJob(t.Context(), tenant, actor, 2, 9, 2)) // an older attempt
	w.must(w.db.StopJob(t.Context(), tenant, actor, 1, 9, 3))
	if j := w.ended(1); j.Status != hero.JobError || j.Result[hero.ResultError] != script.Stopped {
		t.Errorf("%+v", j)
	}
	w.must(os.WriteFile(end, nil, 0o600))
	if j := w.ended(2); j.Status != hero.JobFinished {
		t.Errorf("%+v", j)
	}
}

func TestAStopBeforeTheStart(t *testing.T) {
	w := newWorld(t)
	w.queue(hero.Job{ID: 1, Script: sleeper, Retries: 3})
	w.must(w.db.StopJob(t.Context(), tenant, actor, 1, 0, 0))
	w.start(20, newScripts(t, t.TempDir()), Options{})
	if j := w.ended(1); j.Status != hero.JobError || j.Result[hero.ResultError] != script.Stopped {
		t.Errorf("%+v", j)
	}
	w.idle(20)
}

// If another program ends a running job, its end counts: the script is stopped, and its
// result dropped.
func TestAnEndFromElsewhereStays(t *testing.T) {
	w := newWorld(t)
	ran := make(chan struct{}, 1)
	w.start(20, newScripts(t, t.TempDir()), Options{At: func(point, _ string) {
		if point == "ran" {
			ran <- struct{}{}
		}
	}})
	w.queue(hero.Job{ID: 1, Script: sleeper, Retries: 3})
	w.eventually("it runs", func() bool { return w.status(1) == hero.JobStarted })
	_, _, err := w.db.MoveJob(t.Context(), tenant, actor, 1, hero.JobError, map[string]string{"error": "cancelled"})
	w.must(err)
	select {
	case <-ran:
	case <-time.After(20 * time.Second):
		t.Fatal("the script goes on")
	}
	w.idle(20)
	if j := w.job(1); j.Result["error"] != "cancelled" || len(w.told()) != 0 {
		t.Errorf("%+v, told %v", j, w.told())
	}
}

// An older attempt that still runs must not end the newer one.
func TestAnOlderAttemptRecordsNothing(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	w.start(20, stubScripts{run: func(ctx context.Context, s script.Script) (script.RunResult, error) {
		if s.Env["N"] == "1" {
			<-release
			return script.RunResult{OK: true, Result: map[string]string{"output": "old"}}, nil
		}
		return script.RunResult{OK: true, Result: map[string]string{"output": "new"}}, nil
	}}, Options{})
	w.queue(hero.Job{ID: 1, FlowID: 9, Attempt: 1, Script: "x", EnvVars: map[string]string{"N": "1"}})
	w.eventually("the first runs", func() bool { return w.status(1) == hero.JobStarted })
	_, err := w.db.DispatchJob(t.Context(), tenant, actor, 1, redisdb.Dispatch{FlowID: 9, Attempt: 2, Env: map[string]string{}})
	w.must(err)
	w.client(func(_ context.Context, set func(string, ...any)) { set("job:12:1", "env_vars", `{"N":"2"}`) })
	close(release)
	w.eventually("the first is dropped", func() bool { return len(w.list(taken("python", 20))) == 0 })
	if w.status(1) != hero.JobDispatched {
		t.Fatalf("the second attempt is %s", w.status(1))
	}
	w.must(w.db.Push(t.Context(), tenant, "queue:python", "job:12:1"))
	if j := w.ended(1); j.Result["output"] != "new" {
		t.Errorf("%+v", j)
	}
	if told := w.told(); len(told) != 1 || told[0].Attempt != 2 {
		t.Errorf("told %+v", told)
	}
}

// stubScripts run nothing.
type stubScripts struct {
	run func(ctx context.Context, s script.Script) (script.RunResult, error)
}

func (s stubScripts) Run(ctx context.Context, sc script.Script) (script.RunResult, error) {
	return s.run(ctx, sc)
}
func (s stubScripts) Types() []string     { return []string{"python"} }
func (s stubScripts) Sweep() (int, error) { return 0, nil }

func TestNoMoreRunThanMay(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	now, most := 0, 0
	full := make(chan struct{}) // closed when as many run as may
	scripts := stubScripts{run: func(context.Context, script.Script) (script.RunResult, error) {
		mu.Lock()
		now++
		if most = max(most, now); now == 3 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-full
		mu.Lock()
		now--
		mu.Unlock()
		return script.RunResult{OK: true, Result: map[string]string{}}, nil
	}}
	const jobs = 60
	for id := range uint32(jobs) {
		w.queue(hero.Job{ID: id + 1, Script: "x"})
	}
	w.start(20, scripts, Options{Concurrency: 3})
	w.eventually("all are told", func() bool { return len(w.list(hero.MsgOut)) == jobs })
	if most != 3 {
		t.Errorf("%d at once, want 3", most)
	}
	w.idle(20)
}

func TestFirstInFirstOut(t *testing.T) {
	w := newWorld(t)
	for id := range uint32(20) {
		w.queue(hero.Job{ID: id + 1, Script: "x"})
	}
	var order []string
	w.start(20, stubScripts{run: func(_ context.Context, s script.Script) (script.RunResult, error) {
		order = append(order, s.ID) // one at a time
		return script.RunResult{OK: true}, nil
	}}, Options{Concurrency: 1})
	w.eventually("all are told", func() bool { return len(w.list(hero.MsgOut)) == 20 })
	for i, id := range order {
		if id != fmt.Sprint("job:12:", i+1) {
			t.Fatalf("order %v", order)
		}
	}
}

func TestDrain(t *testing.T) {
	w := newWorld(t)
	stop := w.start(20, newScripts(t, t.TempDir()), Options{Drain: time.Minute})
	w.queue(hero.Job{ID: 1, Script: "import time; time.sleep(0.5); print('done')"})
	w.eventually("it runs", func() bool { return w.status(1) != hero.JobDispatched })
	stop()
	if j := w.job(1); j.Status != hero.JobFinished || j.Result["output"] != "done\n" {
		t.Errorf("%+v", j)
	}
	stop = w.start(20, newScripts(t, t.TempDir()), Options{Drain: time.Second})
	w.queue(hero.Job{ID: 2, Script: sleeper})
	w.eventually("it runs", func() bool { return w.status(2) == hero.JobStarted })
	began := time.Now()
	stop()
	if took := time.Since(began); took > 30*time.Second { // the script sleeps for 60 s
		t.Errorf("took %s", took)
	}
	// The interrupted job is queued again, and its run does not count.
	if w.status(2) != hero.JobDispatched || fmt.Sprint(w.list("queue:python")) != "[job:12:2]" || len(w.list(taken("python", 20))) != 0 {
		t.Errorf("%s, queue %v", w.status(2), w.list("queue:python"))
	}
	if work, err := w.db.Work(t.Context(), tenant, actor, 2); err != nil || work.Run.Number != 0 {
		t.Errorf("%+v, %v", work.Run, err)
	}
	if alive := w.lives(20); alive {
		t.Error("the heartbeat goes on")
	}
}

func (w *world) lives(id uint32) bool {
	c, err := w.db.Client(tenant)
	w.must(err)
	n, err := c.Exists(w.t.Context(), hero.RunnerAliveKey(id)).Result()
	w.must(err)
	return n == 1
}

// A job that the host cannot start now stays in its list, such as on a machine without free
// processes.
func TestAScriptThatCannotBeginWaits(t *testing.T) {
	w := newWorld(t)
	tries := 0
	w.start(20, stubScripts{run: func(context.Context, script.Script) (script.RunResult, error) {
		if tries++; tries == 1 {
			return script.RunResult{}, errors.New("fork: resource temporarily unavailable")
		}
		return script.RunResult{OK: true, Result: map[string]string{"output": "later"}}, nil
	}}, Options{Concurrency: 1})
	w.queue(hero.Job{ID: 1, Script: "x"})
	if j := w.ended(1); j.Result["output"] != "later" || tries != 2 {
		t.Errorf("%+v after %d tries", j, tries)
	}
}

func TestRegistrationSaysWhere(t *testing.T) {
	w := newWorld(t)
	w.must(w.db.PutRunner(t.Context(), tenant, hero.Runner{ID: 20, Local: true, Secret: "kept"}))
	w.must(w.db.PutContext(t.Context(), hero.Context{ID: 8, Admins: []uint32{actor}}))
	w.must(w.db.PutRunner(t.Context(), 8, hero.Runner{ID: 20}))
	w.queue(hero.Job{ID: 1, Script: "print(1)"})
	w.must(w.db.Push(t.Context(), 8, "queue:python", "job:12:1"))
	w.start(20, newScripts(t, t.TempDir()), Options{Contexts: []uint32{}})
	w.ended(1)
	if n, err := w.db.Depth(t.Context(), 8, "queue:python"); err != nil || n != 1 {
		t.Errorf("a context where it is not local: %d, %v", n, err)
	}
	if r, err := w.db.Runner(t.Context(), tenant, 20); err != nil || r.Secret != "kept" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTwoProcessesAreNotOneRunner(t *testing.T) {
	w := newWorld(t)
	core, said := observer.New(zapcore.WarnLevel)
	stop := w.start(20, newScripts(t, t.TempDir()), Options{})
	w.eventually("the first lives", func() bool { return w.lives(20) })
	w.start(20, stubScripts{run: func(context.Context, script.Script) (script.RunResult, error) {
		return script.RunResult{OK: true, Result: map[string]string{"output": "second"}}, nil
	}}, Options{Log: zap.New(core)})
	w.eventually("the second waits", func() bool { return said.FilterMessage("runner waits to serve the context").Len() == 1 })
	w.queue(hero.Job{ID: 1, Script: "print('first')"})
	if j := w.ended(1); j.Result["output"] != "first\n" {
		t.Errorf("%+v", j)
	}
	stop()
	w.queue(hero.Job{ID: 2, Script: "x"})
	if j := w.ended(2); j.Result["output"] != "second" {
		t.Errorf("%+v", j)
	}
}

func TestBadOptions(t *testing.T) {
	scripts := stubScripts{}
	for _, tt := range []struct {
		name    string
		id      uint32
		scripts Scripts
		o       Options
		want    string
	}{
		{"no id", 0, scripts, Options{}, "id above 0"},
		{"concurrency", 1, scripts, Options{Concurrency: -1}, "at least 1"},
		{"times", 1, scripts, Options{Drain: -1}, "positive"},
		{"context 0", 1, scripts, Options{Contexts: []uint32{0}}, "context 0"},
		{"no interpreter", 1, noTypes{scripts}, Options{}, "no interpreter"},
		{"neither Redis nor node", 1, scripts, Options{}, "needs a Redis"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var db *redisdb.DB
			if tt.want != "needs a Redis" {
				db = redisdbtest.Open(t, redisdb.Options{Addr: "127.0.0.1:1"})
			}
			if _, err := New(tt.id, db, tt.scripts, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Error(err)
			}
		})
	}
}

type noTypes struct{ stubScripts }

func (noTypes) Types() []string { return nil }

// The first flow of a new context waited for the next look for contexts. This runner makes
// no such look during the test.
func TestTheFirstJobOfANewContextDoesNotWaitForALook(t *testing.T) {
	w := newWorld(t)
	r, err := New(20, w.db, newScripts(t, t.TempDir()), Options{Look: time.Minute, Drain: time.Second})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		w.must(<-done)
	})
	for in := uint32(8); in < 10; in++ { // the second is created while the runner serves
		w.must(w.db.PutContext(t.Context(), hero.Context{ID: in, Admins: []uint32{actor}}))
		w.must(w.db.PutRunner(t.Context(), in, hero.Runner{ID: 20, Local: true}))
		j := hero.Job{ID: 1, CallerID: actor, ContextID: in, Script: "print(1)", ScriptType: hero.ScriptPython, Status: hero.JobDispatched}
		w.must(w.db.PutJob(t.Context(), j))
		w.must(w.db.Push(t.Context(), in, j.ScriptType.Queue(), j.Key()))
		w.eventually(fmt.Sprintf("the job of context %d ran", in), func() bool {
			got, err := w.db.Job(t.Context(), in, actor, 1)
			return err == nil && got.Status == hero.JobFinished
		})
	}
}
