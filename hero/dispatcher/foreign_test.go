package dispatcher

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/script"
	"edda/internal/testkit"
)

// foreign is a client or worker that was written from the document alone.
type foreign struct {
	b      *bench
	scheme Scheme
	order  Order
}

// python returns the system's interpreter, because the first one in PATH may be a slow
// wrapper.
func python() string {
	const debian = "/usr/bin/python3"
	if _, err := os.Stat(debian); err == nil {
		return debian
	}
	return "python3"
}

func (f foreign) command(role string, more ...string) *exec.Cmd {
	host, port, _ := net.SplitHostPort(f.b.server.Address())
	return exec.CommandContext(f.b.ctx, python(), append([]string{"testdata/foreign.py", host, port, role, "w", string(f.scheme), string(f.order)}, more...)...)
}

// said is the output of a foreign client.
type said struct {
	ID    string            `json:"id"`
	Reply *string           `json:"reply"`
	Hash  map[string]string `json:"hash"`
}

func (f foreign) say(role string, more ...string) said {
	f.b.t.Helper()
	out, err := f.command(role, more...).Output()
	var s said
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		f.b.t.Fatalf("%s: %v\n%s", role, err, out)
	}
	return s
}

// work starts a foreign worker.
func (f foreign) work() {
	f.b.t.Helper()
	cmd := f.command("worker")
	out, err := cmd.StdoutPipe()
	testkit.Must(f.b.t, err)
	testkit.Must(f.b.t, cmd.Start())
	f.b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		f.b.t.Fatalf("%q, %v", line, err)
	}
}

// scripts starts a worker of Edda that runs Python.
func (f foreign) scripts() (stop func()) {
	f.b.t.Helper()
	host, err := script.New(script.Options{Interpreters: map[string][]string{Interpreter: {python(), "-"}}, Dir: filepath.Join(f.b.t.TempDir(), "scripts")})
	testkit.Must(f.b.t, err)
	return f.b.work("w", Scripts{host}.Execute, WorkerOptions{Scheme: f.scheme, Order: f.order})
}

func pairings(t *testing.T, test func(t *testing.T, f foreign)) {
	for scheme, order := range map[Scheme]Order{SchemeProtocol: FIFO, SchemeUnified: LIFO} {
		t.Run(string(scheme)+"-"+string(order), func(t *testing.T) {
			b := newBench(t, Options{Scheme: scheme, Order: order})
			test(t, foreign{b, scheme, order})
		})
	}
}

const asks = `import os; print("hello", os.environ["WHO"])`

func TestAForeignClientAndOurWorker(t *testing.T) {
	pairings(t, func(t *testing.T, f foreign) {
		stop := f.scripts()
		got := f.say("run", asks, "30")
		if got.Reply == nil || *got.Reply != "hello python" || got.Hash["status"] != "finished" || got.Hash["output"] != "hello python" || got.Hash["caller_id"] != "python" {
			t.Errorf("%+v", got)
		}
		got = f.say("run", "import time; time.sleep(60)", "1")
		if f.b.ended(got.ID) != "error timeout" {
			t.Errorf("%+v", got)
		}
		got = f.say("run", "import sys; sys.exit('oh no')", "30")
		if got.Reply == nil || *got.Reply != "exit 1: oh no" || got.Hash["error"] != "exit 1: oh no" {
			t.Errorf("%+v", got)
		}
		slow := f.say("submit", "import time; time.sleep(60)")
		testkit.Until(t, 20*time.Second, "it runs", func() bool { j, _ := f.b.client.Job(f.b.ctx, slow.ID); return j.Status == hero.JobStarted })
		f.say("stop", slow.ID)
		if got := f.b.ended(slow.ID); got != "error stopped_by_request" {
			t.Error(got)
		}
		stop()
		f.b.idle("w")
	})
}

func TestOurClientAndAForeignWorker(t *testing.T) {
	pairings(t, func(t *testing.T, f foreign) {
		f.work()
		run := func(script string, timeout uint32) string {
			j, err := f.b.client.Run(f.b.ctx, Job{WorkerID: "w", Script: script, Timeout: timeout, EnvVars: map[string]string{"WHO": "go"}})
			testkit.Must(t, err)
			return told(j)
		}
		for script, want := range map[string]string{asks: "finished hello go", "import sys; sys.exit(3)": "error exit 3"} {
			if got := run(script, 30); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		if got := run("import time; time.sleep(60)", 1); got != "error timeout" {
			t.Error(got)
		}
		slow := f.b.dispatch(Job{Script: "import time; time.sleep(60)"})
		testkit.Until(t, 20*time.Second, "it runs", func() bool { j, _ := f.b.client.Job(f.b.ctx, slow.ID); return j.Status == hero.JobStarted })
		if _, err := f.b.client.Stop(f.b.ctx, slow.ID); err != nil {
			t.Error(err)
		}
		// The document's worker sets started before it reads its stop queue.
		if got := f.b.ended(slow.ID); got != "error stopped_by_request" && got != "error stopped" {
			t.Error(got)
		}
		// Both workers take from one queue, and the foreign one runs the jobs that ours releases.
		f.b.create("first", "print(1)", Job{})
		f.b.create("then", "print(2)", Job{Dependencies: []string{"first"}})
		f.b.submit("then", Waiting)
		f.b.submit("first", Queued)
		f.b.ended("first")
		if _, err := f.b.client.Sweep(f.b.ctx); err != nil {
			t.Fatal(err)
		}
		if got := f.b.ended("then"); got != "finished 2" {
			t.Error(got)
		}
	})
}

// A foreign client that waits for a foreign worker waits until its timeout, because the
// document's reply_queue_exists is never true. Edda's client and worker do not change that.
func TestForeignersAmongThemselvesAndOursBeside(t *testing.T) {
	b := newBench(t, Options{})
	f := foreign{b, SchemeProtocol, FIFO}
	f.work()
	stop := f.scripts()
	var ids []string
	for range 6 {
		ids = append(ids, f.say("submit", "print(1)").ID, b.dispatch(Job{Script: "print(1)"}).ID)
	}
	for _, id := range ids {
		if got := b.ended(id); got != "finished 1" {
			t.Error(id, got)
		}
	}
	stop()
	b.idle("w")
}

// The document's monitoring requeues with LPUSH only, so the job's status stays started.
func TestAForeignRequeueRunsTheJobsOfADeadWorker(t *testing.T) {
	b := newBench(t, Options{})
	b.create("stale", "again", Job{})
	b.db.HSet(b.ctx, "hero:job:stale", "status", "started", "worker_run", "gone", "started_at", "1", "attempts", "1")
	b.db.LPush(b.ctx, "hero:work_queue:w", "stale")
	if swept, err := b.client.Sweep(b.ctx); err != nil || len(swept.Requeued)+len(swept.Failed) != 0 {
		t.Errorf("what is queued already is swept: %+v, %v", swept, err)
	}
	b.work("w", echo, WorkerOptions{})
	j, err := b.client.Wait(b.ctx, "stale")
	if err != nil || told(j) != "finished again" || j.Attempts != 2 {
		t.Errorf("%+v, %v", j, err)
	}
	if strings.Contains(told(j), "stale") || time.Since(j.UpdatedAt) > time.Minute {
		t.Errorf("%+v", j)
	}
}
