package router

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"edda/hero"
	"edda/internal/testkit"
)

// pythonSupervisor starts testdata/supervisor.py and returns its address.
func pythonSupervisor(t *testing.T, secret string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/supervisor.py", secret)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	testkit.Must(t, err)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	testkit.Must(t, err)
	return strings.TrimSpace(address)
}

// actor runs testdata/actor.py to its end and returns the result message's hash.
func (b *bed) actor(id, script string) map[string]string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "python3", "testdata/actor.py", b.redis.Port, "1", id, script)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("the actor: %v: %s", err, said.String())
	}
	var hash map[string]string
	b.must(json.Unmarshal(out, &hash))
	return hash
}

func TestAnActorAndASupervisorWrittenFromTheDocuments(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Address: pythonSupervisor(t, "s3cret"), Secret: "s3cret"}, 1)
	b.start(Options{})
	for script, want := range map[string]struct{ text, status string }{
		`print("hello from a script")`: {"hello from a script\n", "finished"},
		`print('{"sum": 3}')`:          {`{"sum":"3"}`, "finished"},
		`raise ValueError("no")`:       {`{"error":"ValueError: no"}`, "error"},
	} {
		id := map[string]string{"finished": "101", "error": "102"}[want.status]
		if strings.Contains(script, "sum") {
			id = "103"
		}
		got := b.actor(id, script)
		if got["message"] != want.text || got["message_type"] != "result" || got["reply_to"] != "message:12:"+id || got["caller_id"] != "12" {
			t.Errorf("%s: %v", script, got)
		}
		var jobs []struct {
			Status string
			Result map[string]string
		}
		if err := json.Unmarshal([]byte(got["job"]), &jobs); err != nil || len(jobs) != 1 || jobs[0].Status != want.status {
			t.Errorf("%s: job %s, %v", script, got["job"], err)
		}
	}
	b.idle(1)
}

func TestThePythonSupervisorIsAskedAfterACrash(t *testing.T) {
	b, flows := newBed(t), &reports{}
	address := pythonSupervisor(t, "s3cret")
	b.runner(hero.Runner{ID: 20, Address: address, Secret: "s3cret"}, 1)
	j := job(2001)
	j.Script = `import os; print("once")`
	m := b.send(hero.Message{FlowID: 33, Nodes: []hero.FlowNode{{ID: 2001, SupervisorURL: address}}, Job: []hero.Job{j}})
	b.doomed("answered", Options{Flows: flows})
	b.start(Options{Flows: flows})
	b.end(m, hero.MessageProcessed)
	if ends := flows.ends(); len(ends) != 1 || ends[0].Result["output"] != "once\n" {
		t.Errorf("reports %+v", ends)
	}
}

func TestAPythonActorAndALocalRunner(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Local: true}, 1)
	b.localRunner(1, func(key string) { b.writeEnd(1, key) })
	b.start(Options{})
	if got := b.actor("101", "anything"); got["message"] != "done" || got["reply_to"] != "message:12:101" {
		t.Errorf("%v", got)
	}
}
