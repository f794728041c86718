package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/mycelium"
	"edda/hero/mycelium/standin"
	"edda/hero/script"
	"edda/internal/testkit"
)

// air is a network of two nodes: the runner's and the caller's.
type air struct {
	t      *testing.T
	caller *mycelium.Hub
	runner mycelium.Peer
	hub    *mycelium.Hub
}

func newAir(t *testing.T) *air {
	t.Helper()
	t.Parallel()
	bus := standin.New(standin.Options{})
	t.Cleanup(bus.Close)
	hub := func(name string) (*mycelium.Hub, *standin.Node) {
		node := bus.Node(name)
		rpc, err := node.RPC()
		testkit.Must(t, err)
		server := httptest.NewServer(rpc)
		t.Cleanup(server.Close)
		return mycelium.NewHub(mycelium.NewRPC(server.URL), mycelium.Options{}), node
	}
	a := &air{t: t}
	var node *standin.Node
	a.hub, node = hub("runner")
	a.caller, _ = hub("caller")
	a.runner = mycelium.Peer{PK: node.Key()}
	return a
}

// run runs the hubs and the runner until the test ends, or stop is called.
func (a *air) run(scripts Scripts, o Options) (stop func()) {
	a.t.Helper()
	o.Hub = a.hub
	r, err := New(20, nil, scripts, quick(o))
	testkit.Must(a.t, err)
	for _, h := range []*mycelium.Hub{a.hub, a.caller} {
		testkit.Run(a.t, h.Run)
	}
	stop = testkit.Run(a.t, r.Run)
	isOpen := func() bool { r.topic.mu.Lock(); defer r.topic.mu.Unlock(); return r.topic.open }
	testkit.Until(a.t, 15*time.Second, "the runner takes jobs from its topic", isOpen) // before that it answers busy
	return stop
}

// call calls a method of the runner.
func (a *air) call(method, params string, result any) error {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 15*time.Second)
	defer cancel()
	id := fmt.Sprint(method, "-", time.Now().UnixNano())
	request, err := jsonrpc.Request(id, method, json.RawMessage(params))
	testkit.Must(a.t, err)
	reply, err := a.caller.Call(ctx, a.runner, "runner20", request, id, mycelium.CallOptions{})
	testkit.Must(a.t, err)
	return jsonrpc.ReadResponse(reply, id, result)
}

func jobJSON(id int, payload string, more string) string {
	b, _ := json.Marshal(payload)
	return fmt.Sprintf(`{"job": {"id": "%d", "caller_id": "12", "context_id": "7", "payload": %s, "runner": "r", "executor": "python", "timeout": 10, "env_vars": {"A": "1"}%s}}`, id, b, more)
}

func TestJobsByTopic(t *testing.T) {
	a := newAir(t)
	a.run(newScripts(t, t.TempDir()), Options{Secrets: []string{"old", "s3cret"}})
	secret := `, "signatures": []}, "secret": "s3cret"}`
	with := func(s string) string { return strings.TrimSuffix(s, "}}") + secret }
	tests := []struct{ name, payload, want string }{
		{"text", "import os; print(os.environ['A'])", `{"success":"1\n"}`},
		{"object", `print('{"n": 1, "s": "x"}')`, `{"success":"{\"n\":\"1\",\"s\":\"x\"}"}`},
		{"failed", "1/0", `{"error":"exit 1: ZeroDivisionError: division by zero"}`},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got json.RawMessage
			if err := a.call("job.run", "["+with(jobJSON(i, tt.payload, ""))+"]", &got); err != nil || string(got) != tt.want {
				t.Errorf("%s, %v, want %s", got, err, tt.want)
			}
		})
	}
	var status hero.JobState
	if err := a.call("job.status", `{"job_id": 2, "secret": "s3cret"}`, &status); err != nil || status.Status != "error" || status.CompletedAt == "" || status.JobID != "2" {
		t.Errorf("%+v, %v", status, err)
	}
	var got json.RawMessage
	if err := a.call("job.result", `{"job_id": "0", "caller_id": "12", "context_id": "7", "secret": "s3cret"}`, &got); err != nil || string(got) != tests[0].want {
		t.Errorf("%s, %v", got, err)
	}
	var log []string
	if err := a.call("job.logs", `{"job_id": "0", "secret": "old"}`, &log); err != nil || len(log) != 1 || !strings.HasSuffix(log[0], " stdout 1") {
		t.Errorf("%q, %v", log, err)
	}
	refusals := []struct {
		name, method, params string
		code                 int
		says                 string
	}{
		{"no secret", "job.run", jobJSON(9, "1", ""), jsonrpc.PermissionDenied, "secret"},
		{"wrong secret", "job.status", `{"job_id": "0", "secret": "S3cret"}`, jsonrpc.PermissionDenied, "secret"},
		{"another job of the id", "job.run", with(jobJSON(0, "other", "")), jsonrpc.AlreadyExists, "another job"},
		{"no interpreter", "job.run", strings.Replace(with(jobJSON(8, "1", "")), `"python"`, `"rhai"`, 1), jsonrpc.Busy, "no interpreter for rhai"},
		{"unknown job", "job.status", `{"job_id": "404", "secret": "s3cret"}`, jsonrpc.NotFound, "no job 404"},
		{"no job", "job.run", `{"secret": "s3cret", "job": {"id": "5"}}`, jsonrpc.InvalidParams, "needs id, executor and payload"},
		{"no such method", "job.fly", `{}`, jsonrpc.MethodNotFound, ""},
	}
	for _, tt := range refusals {
		t.Run(tt.name, func(t *testing.T) {
			err := a.call(tt.method, tt.params, nil)
			var e *jsonrpc.Error
			if !errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Error(), tt.says) {
				t.Errorf("%v, want %d", err, tt.code)
			}
		})
	}
}

func TestAJobThatIsSentTwiceRunsOnce(t *testing.T) {
	a := newAir(t)
	file := t.TempDir() + "/runs"
	a.run(newScripts(t, t.TempDir()), Options{})
	job := func(attempt int) string {
		return jobJSON(1, "import sys, time\nopen('"+file+"', 'a').write('x')\ntime.sleep(0.2)\nn = open('"+file+"').read()\nprint(n)\nsys.exit(len(n) == 1)", fmt.Sprintf(`, "attempt": %d`, attempt))
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			var got hero.JobAnswer
			if err := a.call("job.run", job(1), &got); err != nil || got.Error == nil || *got.Error != "exit 1" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	all.Wait()
	var got hero.JobAnswer
	for attempt := range []int{1, 2} { // an older one, and the same
		if err := a.call("job.run", job(attempt), &got); err != nil || got.Error == nil {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if runs, _ := os.ReadFile(file); len(runs) != 1 {
		t.Errorf("%d runs", len(runs))
	}
	got = hero.JobAnswer{}
	if err := a.call("job.run", job(2), &got); err != nil || got.Success == nil || *got.Success != "xx\n" {
		t.Errorf("%+v, %v", got, err)
	}
	got = hero.JobAnswer{}
	if err := a.call("job.run", job(3), &got); err != nil || got.Success == nil || *got.Success != "xx\n" {
		t.Errorf("one that finished ran again: %+v, %v", got, err)
	}
}

func TestAJobOfTheTopicIsStopped(t *testing.T) {
	a := newAir(t)
	a.run(newScripts(t, t.TempDir()), Options{Concurrency: 1})
	ends := make(chan hero.JobAnswer, 2)
	for id := range 2 {
		go func() {
			var got hero.JobAnswer
			if err := a.call("job.run", jobJSON(id, "import time; time.sleep(60)", ""), &got); err != nil {
				t.Error(err)
			}
			ends <- got
		}()
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var first, second hero.JobState
		if a.call("job.status", `{"job_id": "0"}`, &first) == nil && a.call("job.status", `{"job_id": "1"}`, &second) == nil && first.Status != second.Status {
			break // one runs, one waits
		}
		if time.Now().After(until) {
			t.Fatal("they never came")
		}
	}
	for id := range 2 {
		var stopped bool
		if err := a.call("job.stop", fmt.Sprintf(`{"job_id": "%d"}`, id), &stopped); err != nil || !stopped {
			t.Errorf("%v, %v", stopped, err)
		}
		if got := <-ends; got.Error == nil || *got.Error != script.Stopped {
			t.Errorf("%+v", got)
		}
	}
	stopped := true
	if err := a.call("job.stop", `{"job_id": "0"}`, &stopped); err != nil || stopped {
		t.Errorf("again: %v, %v", stopped, err)
	}
}

func TestATopicDrains(t *testing.T) {
	a := newAir(t)
	stop := a.run(newScripts(t, t.TempDir()), Options{Drain: time.Second})
	ends := make(chan error, 1)
	go func() { ends <- a.call("job.run", jobJSON(1, "import time; time.sleep(60)", ""), nil) }()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var s hero.JobState
		if a.call("job.status", `{"job_id": "1"}`, &s) == nil && s.Status == "started" {
			break
		}
		if time.Now().After(until) {
			t.Fatal("it never came")
		}
	}
	stop()
	var e *jsonrpc.Error
	if err := <-ends; !errors.As(err, &e) || e.Code != jsonrpc.Busy {
		t.Errorf("the one that ran: %v", err)
	}
	if err := a.call("job.run", jobJSON(2, "1", ""), nil); !errors.As(err, &e) || e.Code != jsonrpc.Busy {
		t.Errorf("one that comes later: %v", err)
	}
	if err := a.call("job.status", `{"job_id": "1"}`, nil); !errors.As(err, &e) || e.Code != jsonrpc.NotFound {
		t.Errorf("one that may be sent again: %v", err)
	}
}

// Two jobs compete for one worker. The second is not begun within its queue timeout, though
// its own timeout would suffice.
func TestAJobOfTheTopicThatWaitsTooLongIsNotBegun(t *testing.T) {
	a := newAir(t)
	a.run(newScripts(t, t.TempDir()), Options{Concurrency: 1})
	first := make(chan error, 1)
	var got json.RawMessage
	go func() {
		first <- a.call("job.run", "["+jobJSON(1, "import time; time.sleep(4); print('first')", "")+"]", &got)
	}()
	until := time.Now().Add(15 * time.Second)
	for state := (hero.JobState{}); state.Status != "started"; {
		if time.Now().After(until) {
			t.Fatal("the first job was not begun")
		}
		_ = a.call("job.status", `{"job_id": "1"}`, &state) // the job may be unknown yet
	}
	var second json.RawMessage
	if err := a.call("job.run", "["+jobJSON(2, "print('second')", `, "queue_timeout": 1`)+"]", &second); err != nil || string(second) != `{"error":"queue_timeout: not begun within 1s"}` {
		t.Errorf("%s, %v", second, err)
	}
	if err := <-first; err != nil || string(got) != `{"success":"first\n"}` {
		t.Errorf("%s, %v", got, err)
	}
}

// The runner makes the retries, the runs after the first. Its answer has "runs", so the
// caller makes none.
func TestAJobOfTheTopicThatFailsIsRunAgainByItsRetries(t *testing.T) {
	a := newAir(t)
	a.run(newScripts(t, t.TempDir()), Options{})
	for name, test := range map[string]struct {
		retries, fails int
		slow           bool // it fails by its timeout
		want           string
		runs           int
	}{
		"the second succeeds":  {2, 1, false, `{"success":"xx\n"}`, 2},
		"the last succeeds":    {2, 2, false, `{"success":"xxx\n"}`, 3},
		"none succeeds":        {2, 9, false, `{"error":"exit 1","runs":3}`, 3},
		"without retries":      {0, 9, false, `{"error":"exit 1"}`, 1},
		"the first succeeds":   {2, 0, false, `{"success":"x\n"}`, 1},
		"timeouts count, too":  {1, 9, true, `{"error":"timeout: ran longer than 1s","runs":2}`, 2},
		"as many as there are": {255, 4, false, `{"success":"xxxxx\n"}`, 5},
	} {
		t.Run(name, func(t *testing.T) {
			file := t.TempDir() + "/runs"
			script := "import sys, time\nopen('" + file + "', 'a').write('x')\nn = open('" + file + "').read()\nprint(n)\nsys.exit(len(n) <= " + fmt.Sprint(test.fails) + ")"
			more := fmt.Sprintf(`, "retries": %d`, test.retries)
			if test.slow {
				script = strings.Replace(script, "print(n)", "time.sleep(60)", 1)
			}
			job := jobJSON(len(name)*1000+test.fails, script, more)
			if test.slow {
				job = strings.Replace(job, `"timeout": 10`, `"timeout": 1`, 1)
			}
			var got json.RawMessage
			if err := a.call("job.run", job, &got); err != nil || string(got) != test.want {
				t.Errorf("%s, %v, want %s", got, err, test.want)
			}
			if runs, _ := os.ReadFile(file); len(runs) != test.runs {
				t.Errorf("%d runs, want %d", len(runs), test.runs)
			}
			got = nil // sent again: answered, not run
			if err := a.call("job.run", job, &got); err != nil || string(got) != test.want {
				t.Errorf("again: %s, %v, want %s", got, err, test.want)
			}
			if runs, _ := os.ReadFile(file); len(runs) != test.runs {
				t.Errorf("again: %d runs, want %d", len(runs), test.runs)
			}
		})
	}
}

// A stop prevents the remaining retries, too.
func TestAJobOfTheTopicThatIsStoppedIsNotRunAgain(t *testing.T) {
	a := newAir(t)
	a.run(newScripts(t, t.TempDir()), Options{})
	file := t.TempDir() + "/runs"
	end := make(chan json.RawMessage, 1)
	go func() {
		var got json.RawMessage
		if err := a.call("job.run", jobJSON(7, "import time\nopen('"+file+"', 'a').write('x')\ntime.sleep(60)", `, "retries": 5`), &got); err != nil {
			t.Error(err)
		}
		end <- got
	}()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if text, _ := os.ReadFile(file); len(text) == 1 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("it was not begun")
		}
	}
	var stopped bool
	if err := a.call("job.stop", `{"job_id": "7"}`, &stopped); err != nil || !stopped {
		t.Errorf("%v, %v", stopped, err)
	}
	if got := <-end; string(got) != `{"error":"stopped","runs":1}` {
		t.Errorf("%s", got)
	}
	if text, _ := os.ReadFile(file); len(text) != 1 {
		t.Errorf("%d runs", len(text))
	}
}
