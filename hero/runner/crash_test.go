package runner

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/script"
)

// asRunner makes the test binary a runner. Its value has the address of Redis, the id, the
// folder, and the point at which the process kills itself.
const asRunner = "EDDA_TEST_RUNNER"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(asRunner)); len(words) == 4 {
		fmt.Fprintln(os.Stderr, beRunner(words[0], words[1], words[2], words[3]))
		os.Exit(1)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests mostly wait for servers
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func beRunner(address, id, dir, point string) error {
	db, err := redisdb.Open(redisdb.Options{Addr: address})
	if err != nil {
		return err
	}
	h, err := script.New(script.Options{Dir: dir, Interpreters: interpreters()})
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(id)
	if err != nil {
		return err
	}
	r, err := New(uint32(n), db, h, quick(Options{Log: zap.NewNop(), At: func(at, _ string) {
		if at == point {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}}))
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// process starts a runner process.
func (w *world) process(id int, dir, point string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s %s", asRunner, w.server.Address(), id, dir, point))
	cmd.Stderr = os.Stderr
	w.must(cmd.Start())
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// marks is a script that records its run, and runs longer the first time.
const marks = `
import os, time
with open(os.environ["F"], "a") as f: f.write("x")
if len(open(os.environ["F"]).read()) == 1: time.sleep(float(os.environ["LONG"]))
print("done")`

func TestAKilledRunnersJobIsFound(t *testing.T) {
	tests := []struct {
		point   string
		retries uint8
		flow    uint32
		again   bool // the same runner restarts, and no other runs
		status  hero.JobStatus
		runs    int
	}{
		{"taken", 0, 0, false, hero.JobFinished, 1},
		{"taken", 0, 0, true, hero.JobFinished, 1},
		{"begun", 1, 0, false, hero.JobFinished, 1},
		{"begun", 0, 0, false, hero.JobError, 0},
		{"ran", 1, 0, false, hero.JobFinished, 2},
		{"ran", 1, 0, true, hero.JobFinished, 2},
		{"ran", 0, 0, true, hero.JobError, 1},
		{"ran", 3, 9, false, hero.JobError, 1}, // the flow makes the retries
		{"recorded", 3, 0, false, hero.JobFinished, 1},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s retries %d flow %d again %v", tt.point, tt.retries, tt.flow, tt.again), func(t *testing.T) {
			w := newWorld(t)
			file, dir := t.TempDir()+"/runs", t.TempDir()
			w.queue(hero.Job{ID: 1, Script: marks, Retries: tt.retries, FlowID: tt.flow, EnvVars: map[string]string{"F": file, "LONG": "0"}})
			cmd := w.process(20, dir, tt.point)
			_ = cmd.Wait() // it kills itself
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("ended by %v", cmd.ProcessState)
			}
			next := uint32(21)
			if tt.again {
				next = 20
			}
			w.start(next, newScripts(t, dir), Options{})
			j := w.ended(1)
			runs, _ := os.ReadFile(file)
			if j.Status != tt.status || len(runs) != tt.runs {
				t.Errorf("%s after %d runs: %v", j.Status, len(runs), j.Result)
			}
			if tt.status == hero.JobError && j.Result[hero.ResultError] != "runner 20 died while it ran" {
				t.Errorf("%v", j.Result)
			}
			w.idle(20, 21)
			if told := w.told(); len(told) != 1 || told[0].Job[0].Status != tt.status {
				t.Errorf("told %+v", told)
			}
		})
	}
}

// A runner is killed while a script runs. The script and its processes end, and another
// runner runs the job.
func TestARunnerKilledInTheMiddle(t *testing.T) {
	w := newWorld(t)
	file, dir := t.TempDir()+"/runs", t.TempDir()
	w.queue(hero.Job{ID: 1, Script: marks, Retries: 1, EnvVars: map[string]string{"F": file, "LONG": "60"}})
	cmd := w.process(20, dir, "never")
	w.eventually("it runs", func() bool { b, _ := os.ReadFile(file); return string(b) == "x" })
	began := time.Now()
	w.start(21, newScripts(t, dir), Options{})
	w.must(cmd.Process.Kill())
	_ = cmd.Wait()
	j := w.ended(1)
	if runs, _ := os.ReadFile(file); j.Status != hero.JobFinished || len(runs) != 2 || time.Since(began) > 10*time.Second {
		t.Errorf("%s after %d runs and %s", j.Status, len(runs), time.Since(began))
	}
	w.idle(20, 21)
}

// A runner hangs for longer than its heartbeat and loses its job. Its result must not
// overwrite that of the other runner.
func TestARunnerThatHungRecordsNothing(t *testing.T) {
	w := newWorld(t)
	file, dir := t.TempDir()+"/runs", t.TempDir()
	waits := "\nwhile not os.path.exists(os.environ['F'] + '.hangs'): time.sleep(0.01)"
	w.queue(hero.Job{ID: 1, Script: marks + waits + "\nprint('by', os.getppid())", Retries: 1, EnvVars: map[string]string{"F": file, "LONG": "0"}})
	cmd := w.process(20, dir, "never")
	w.eventually("it runs", func() bool { b, _ := os.ReadFile(file); return string(b) == "x" })
	w.must(cmd.Process.Signal(syscall.SIGSTOP))
	w.must(os.WriteFile(file+".hangs", nil, 0o600))
	w.start(21, newScripts(t, t.TempDir()), Options{})
	j := w.ended(1)
	if want := fmt.Sprintf("done\nby %d\n", os.Getpid()); j.Status != hero.JobFinished || j.Result["output"] != want {
		t.Fatalf("%+v, want %q", j, want)
	}
	w.must(cmd.Process.Signal(syscall.SIGCONT))
	w.queue(hero.Job{ID: 2, Script: "print(2)"})
	w.ended(2)
	w.eventually("the one that hung lives again", func() bool { return w.lives(20) })
	w.idle(20, 21)
	if now := w.job(1); now.Result["output"] != j.Result["output"] || len(w.told()) != 2 {
		t.Errorf("%+v, told %d", now, len(w.told()))
	}
}

// Each loop logs once that Redis is unreachable, and once that it is back.
func TestARedisThatIsAwayDoesNotFillTheLog(t *testing.T) {
	w := newWorld(t)
	core, said := observer.New(zapcore.InfoLevel)
	w.start(20, newScripts(t, t.TempDir()), Options{Log: zap.New(core)})
	w.queue(hero.Job{ID: 1, Script: "print(1)"})
	w.ended(1) // every loop runs
	w.must(w.server.Kill())
	loops := []string{"take from queue:python", "heartbeat", "look for dead runners"}
	for _, loop := range loops {
		w.eventually(loop+" fails", func() bool { return said.FilterMessage(loop).Len() > 0 })
	}
	w.must(w.server.Restart())
	w.queue(hero.Job{ID: 2, Script: "print(2)"})
	for _, loop := range loops {
		w.eventually(loop+" works again", func() bool { return said.FilterMessage(loop+": works again").Len() == 1 })
		if n := said.FilterMessage(loop).Len(); n != 1 {
			t.Errorf("%s: %d warnings", loop, n)
		}
	}
}

func TestRedisRestarts(t *testing.T) {
	w := newWorld(t)
	file := t.TempDir() + "/runs"
	w.start(20, newScripts(t, t.TempDir()), Options{})
	const jobs = 12
	for id := range uint32(jobs) {
		w.queue(hero.Job{ID: id + 1, Script: "import os, time\nopen(os.environ['F'], 'a').write('x')\ntime.sleep(0.2)\nprint('done')", EnvVars: map[string]string{"F": file}})
	}
	for range 3 {
		w.eventually("some run", func() bool { return len(w.list(taken("python", 20))) > 0 || len(w.list("queue:python")) == 0 })
		w.must(w.server.Kill())
		w.must(w.server.Restart())
	}
	for id := range uint32(jobs) {
		if j := w.ended(id + 1); j.Status != hero.JobFinished || j.Result["output"] != "done\n" {
			t.Errorf("%+v", j)
		}
	}
	w.idle(20)
	if runs, _ := os.ReadFile(file); len(runs) != jobs {
		t.Errorf("%d runs of %d jobs", len(runs), jobs)
	}
	w.eventually("all are told", func() bool { return len(w.told()) == jobs })
}
