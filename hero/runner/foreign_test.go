package runner

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"edda/hero"
)

// foreign runs a program that was written from the documents alone.
func (w *world) foreign(program string, words ...string) *exec.Cmd {
	w.t.Helper()
	host, port, _ := strings.Cut(w.server.Address(), ":")
	cmd := exec.Command(interpreters()["python"][0], append([]string{"testdata/" + program, host, port, fmt.Sprint(tenant)}, words...)...)
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

func TestAForeignActor(t *testing.T) {
	w := newWorld(t)
	w.start(20, newScripts(t, t.TempDir()), Options{})
	tests := []struct{ id, script, want string }{
		{"1", "import os; print('{\"n\": 1, \"g\": \"%s\"}' % os.environ['G'])", `{"status": "finished", "result": {"g": "hé", "n": "1"}, "message_type": "result", "to": "12", "reply_to": "job:12:1", "told": {"g": "hé", "n": "1"}}`},
		{"2", "1/0", `{"status": "error", "result": {"error": "exit 1: ZeroDivisionError: division by zero"}, "message_type": "result", "to": "12", "reply_to": "job:12:2", "told": {"error": "exit 1: ZeroDivisionError: division by zero"}}`},
	}
	for _, tt := range tests {
		out, err := w.foreign("actor.py", tt.id, tt.script, `{"G": "hé"}`).CombinedOutput()
		var got, want any
		if err != nil || json.Unmarshal(out, &got) != nil || json.Unmarshal([]byte(tt.want), &want) != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s, %v, want %s", out, err, tt.want)
		}
	}
}

// A foreign runner and one of Edda serve the same context.
func TestAForeignRunner(t *testing.T) {
	w := newWorld(t)
	cmd := w.foreign("runner.py", "30", "python,bash", "--jobs", "3")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	w.must(cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	w.queue(hero.Job{ID: 1, Script: "print('{\"n\": [1, 2]}')"})
	w.queue(hero.Job{ID: 2, Script: "exit 4", ScriptType: "bash"})
	w.queue(hero.Job{ID: 3, Script: "import time; time.sleep(60)", Timeout: 1})
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	for id, want := range map[uint32]string{1: "finished map[n:[1,2]]", 2: "error map[error:exit 4 output:]", 3: "error map[error:timeout]"} {
		if j := w.job(id); fmt.Sprint(j.Status, " ", j.Result) != want {
			t.Errorf("job %d: %s %v, want %s", id, j.Status, j.Result, want)
		}
	}
	told := w.told()
	if len(told) != 3 || told[0].MessageType != hero.MessageResult || told[0].Job[0].Result["n"] != "[1,2]" || told[0].ReplyTo != "job:12:1" {
		t.Errorf("%+v", told)
	}
	if r, err := w.db.Runner(t.Context(), tenant, 30); err != nil || !r.Local {
		t.Errorf("%+v, %v", r, err)
	}
}

// The trace of a job is that of the documents: a take from its queue, the start, result and
// end, and a message in msg_out.
func TestTheTraceOfAJob(t *testing.T) {
	w := newWorld(t)
	w.start(20, newScripts(t, t.TempDir()), Options{})
	w.queue(hero.Job{ID: 1, Script: "print(1)"})
	w.ended(1)
	w.eventually("it is told", func() bool { return len(w.list(hero.MsgOut)) == 1 })
	c, err := w.db.Client(tenant)
	w.must(err)
	stats, err := c.Info(t.Context(), "commandstats").Result()
	w.must(err)
	for _, command := range []string{"blmove", "hset", "lpush", "lrem"} {
		if !strings.Contains(stats, "cmdstat_"+command+":") {
			t.Errorf("no %s in %s", command, stats)
		}
	}
}
