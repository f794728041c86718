//go:build !race

package systemtest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"edda/hero"
	"edda/hero/flow"
	"edda/internal/realservers"
)

// The contexts of the pairings: one each, so that they do not meet. The Python
// coordinator client has 2 and 3.
const (
	inHTTP uint32 = iota + 4
	inMesh
	inQuiet
	inTelling
	inActor
	inTheirActor
	inOurSupervisor
	inTrace
)

// TestEveryPairingOfOursAndTheirs runs the binary's coordinator and runner beside
// programs that others wrote from the documents, over one Redis and one stand-in
// for Mycelium, each pair in a context of its own.
func TestEveryPairingOfOursAndTheirs(t *testing.T) {
	h := newHeroWorld(t, realservers.RedisOptions{})
	nodes := h.mesh(4) // the coordinator's, our runner's, their supervisor's, their caller's
	coordinator := h.coordinator("--mycelium-port", nodes[0].port())
	h.runner([]string{"EDDA_HERO_SUPERVISOR_SECRET=" + heroSecret}, "--mycelium-port", nodes[1].port())
	for _, pair := range []struct {
		name string
		test func(*heroWorld, *testing.T, []meshNode)
	}{
		{"their client and our coordinator", theirClient},
		{"our router and their supervisor over HTTP", theirSupervisor},
		{"our router and their supervisor over Mycelium", theirSupervisorOnTheMesh},
		{"our router and our supervisor over Mycelium", ourSupervisorOnTheMesh},
		{"our coordinator and their runner that writes the hash only", theirQuietRunner},
		{"our coordinator and their runner that sends results", theirTellingRunner},
		{"their actor and our runner", theirActor},
		{"their actor and their runner", theirActorAndRunner},
		{"the documents' sequence", theDocumentsSequence},
		{"their client and our worker", theirDispatcher},
		{"our client and their worker", theirWorker},
	} {
		t.Run(pair.name, func(t *testing.T) {
			t.Parallel()
			world := *h
			world.t = t
			pair.test(&world, t, nodes)
		})
	}
	t.Cleanup(func() {
		if code := coordinator.terminate(); code != 0 {
			t.Errorf("the coordinator's exit code is %d", code)
		}
	})
}

// diamond is a flow whose last job sees what the flow and its own variables say.
func diamond(first uint32) []step {
	return []step{
		{id: first, script: `print('{"n": 2}')`},
		{id: first + 1, script: `print("left")`, after: []uint32{first}},
		{id: first + 2, script: `import os; print("right of", os.environ["FLOW"])`, after: []uint32{first}},
		{id: first + 3, script: `import os; print(os.environ["WHO"])`, after: []uint32{first + 1, first + 2}, env: map[string]string{"WHO": "me"}},
	}
}

// diamondEnds runs a diamond and wants what it ends with.
func (h *heroWorld) diamondEnds(in uint32) {
	h.t.Helper()
	h.flow(in, 33, diamond(2001)...)
	h.finished(in, 33, map[string]string{"2001.n": "2", "2002.output": "left", "2003.output": "right of 33", "2004.output": "me"})
	h.idle(in)
}

func theirClient(h *heroWorld, t *testing.T, _ []meshNode) {
	if said := h.says(by("coordinator", "session.py"), "http://"+h.api, h.ws); said != "ok" {
		t.Error(said)
	}
}

func theirSupervisor(h *heroWorld, t *testing.T, _ []meshNode) {
	address := h.starts(by("router", "supervisor.py"), heroSecret).line()
	h.place(inHTTP, hero.Runner{ID: theirRunner, Address: address, Secret: heroSecret})
	h.diamondEnds(inHTTP)
	h.flow(inHTTP, 34, step{id: 2101, script: `raise ValueError("no")`, retries: 1}, step{id: 2102, script: "print(1)", after: []uint32{2101}})
	if f := h.ended(inHTTP, 34); f.Status != hero.FlowError || f.Result["2101.error"] != "ValueError: no" || f.Result["error"] != "job 2101 failed: ValueError: no" {
		t.Errorf("%+v", f)
	}
	h.idle(inHTTP)
}

func theirSupervisorOnTheMesh(h *heroWorld, t *testing.T, nodes []meshNode) {
	supervisor := h.starts(filepath.Join("testdata", "mesh.py"), "supervise", nodes[2].rpc, heroSecret)
	if said := supervisor.line(); said != "ready" {
		t.Fatal(said)
	}
	h.place(inMesh, hero.Runner{ID: theirRunner, PubKey: nodes[2].key, Address: nodes[2].ip, Secret: heroSecret})
	h.diamondEnds(inMesh)
	// a node's own supervisor_url goes before the runner's key
	var ignored json.RawMessage
	h.call("job.create", object{"context_id": inMesh, "job": object{"id": 2201, "caller_id": heroActor, "script": "print(1)", "script_type": "python", "timeout": 30}}, &ignored)
	h.call("flow.create", object{"context_id": inMesh, "flow": object{"id": 35, "caller_id": heroActor, "nodes": []object{
		{"id": 2201, "depends": []int{}, "prerequisites": []string{}, "supervisor_url": "mycelium://" + nodes[2].ip + "?topic=supervisor.rpc"},
	}}}, &ignored)
	h.begin(inMesh, 35)
	h.finished(inMesh, 35, map[string]string{"2201.output": "1"})
	h.idle(inMesh)
}

// Our supervisor is asked by our router and by a caller in Python.
func ourSupervisorOnTheMesh(h *heroWorld, t *testing.T, nodes []meshNode) {
	h.place(inOurSupervisor, hero.Runner{ID: ourRunner, PubKey: nodes[1].key, Secret: heroSecret, Local: true})
	h.diamondEnds(inOurSupervisor)
	// The supervisor works on the coordinator's Redis: the jobs are as they were created.
	h.define(inOurSupervisor, 33, diamond(2001)...)
	h.flow(inOurSupervisor, 34, step{id: 2301, script: "print(1)"}, step{id: 2302, script: "import sys; sys.exit(3)", after: []uint32{2301}, retries: 1})
	for _, attempt := range []uint32{2, flow.MaxAttempts + 2} { // started again, it has its edges and its retries
		untilIn(t, heroEnds, "flow 34 has made its attempts", func() bool { return h.job(inOurSupervisor, 2302).Attempt == attempt })
		if f := h.ended(inOurSupervisor, 34); f.Status != hero.FlowError {
			t.Fatalf("%+v", f)
		}
		g, j := h.dag(inOurSupervisor, 34), h.job(inOurSupervisor, 2302)
		if fmt.Sprint(g.Edges) != "[[2301 2302]]" || j.Retries != 1 || fmt.Sprint(j.Dependends) != "[2301]" {
			t.Fatalf("edges %v, job %+v", g.Edges, j)
		}
		if attempt == 2 {
			h.begin(inOurSupervisor, 34)
		}
	}
	for script, want := range map[string]string{
		`import os; print("hello", os.environ["WHO"])`: `{"id":"call-3001","jsonrpc":"2.0","result":{"success":"hello mesh\n"}}`,
		`import sys; sys.exit("oh no")`:                `{"id":"call-3002","jsonrpc":"2.0","result":{"error":"exit 1: oh no"}}`,
	} {
		id := "3001"
		if strings.Contains(script, "sys.exit") {
			id = "3002"
		}
		said := h.says(filepath.Join("testdata", "mesh.py"), "run", nodes[3].rpc, nodes[1].key, heroSecret, fmt.Sprint(inOurSupervisor), id, script)
		var got any
		h.must(json.Unmarshal([]byte(said), &got))
		if text, _ := json.Marshal(got); string(text) != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	said := h.says(filepath.Join("testdata", "mesh.py"), "run", nodes[3].rpc, nodes[1].key, "wrong", fmt.Sprint(inOurSupervisor), "3003", "print(1)")
	if !strings.Contains(said, "-32003") {
		t.Errorf("a wrong secret: %s", said)
	}
	h.idle(inOurSupervisor)
}

func theirQuietRunner(h *heroWorld, _ *testing.T, _ []meshNode) { h.theirs(inQuiet, "--quiet") }

func theirTellingRunner(h *heroWorld, _ *testing.T, _ []meshNode) { h.theirs(inTelling) }

// theirs has a runner in Python run a flow and a job that fails for good.
func (h *heroWorld) theirs(in uint32, more ...string) {
	h.t.Helper()
	h.place(in, hero.Runner{ID: theirRunner, Local: true})
	h.starts(by("runner", "runner.py"), append([]string{h.redis.Host, h.redis.Port, fmt.Sprint(in), fmt.Sprint(theirRunner), "python"}, more...)...)
	h.diamondEnds(in)
	h.flow(in, 34, step{id: 2101, script: "import sys; sys.exit(3)", retries: 1}, step{id: 2102, script: "print(1)", after: []uint32{2101}})
	if f := h.ended(in, 34); f.Status != hero.FlowError || f.Result["2101.error"] != "exit 3" {
		h.t.Errorf("%+v", f)
	}
	if g := h.dag(in, 34); g.FailedJob == nil || *g.FailedJob != 2101 || g.Nodes["2101"].Attempt != 2 {
		h.t.Errorf("%+v", g)
	}
	h.idle(in)
}

func theirActor(h *heroWorld, t *testing.T, _ []meshNode) {
	h.place(inActor, hero.Runner{ID: ourRunner, Local: true})
	h.acts(inActor)
}

func theirActorAndRunner(h *heroWorld, t *testing.T, _ []meshNode) {
	h.place(inTheirActor, hero.Runner{ID: theirRunner, Local: true})
	h.starts(by("runner", "runner.py"), h.redis.Host, h.redis.Port, fmt.Sprint(inTheirActor), fmt.Sprint(theirRunner), "python", "--quiet")
	h.acts(inTheirActor)
}

// acts has an actor push job messages on msg_out and pop their results from msg_in.
func (h *heroWorld) acts(in uint32) {
	h.t.Helper()
	for id, job := range map[string]struct{ script, status, result string }{
		"101": {`print("hello")`, "finished", "hello"},
		"102": {`print('{"sum": 3}')`, "finished", `{"sum":"3"}`},
		"103": {`import sys; sys.exit(3)`, "error", "exit 3"},
	} {
		var got struct {
			Message, Job string
			Type         string `json:"message_type"`
			ReplyTo      string `json:"reply_to"`
		}
		h.must(json.Unmarshal([]byte(h.says(by("router", "actor.py"), h.redis.Port, fmt.Sprint(in), id, job.script)), &got))
		if got.Type != "result" || got.ReplyTo != "message:12:"+id || !strings.Contains(got.Message, job.result) || !strings.Contains(got.Job, `"status":"`+job.status+`"`) {
			h.t.Errorf("%s: %+v", job.script, got)
		}
	}
	h.idle(in)
}

func theirDispatcher(h *heroWorld, t *testing.T, _ []meshNode) {
	w := launch(t, "hero", "worker", "--worker", "ours", "--redis-addr", h.redis.Address(), "--interpreter", h.python+" -", "--log-dir", t.TempDir(), "--dir", filepath.Join(t.TempDir(), "jobs"))
	w.says("the worker takes jobs")
	said := h.says(by("dispatcher", "foreign.py"), h.redis.Host, h.redis.Port, "run", "ours", "protocol", "fifo", `import os; print("hello", os.environ["WHO"])`, "30")
	var got struct {
		Reply string
		Hash  map[string]string
	}
	h.must(json.Unmarshal([]byte(said), &got))
	if got.Reply != "hello python" || got.Hash["status"] != "finished" || got.Hash["output"] != "hello python" {
		t.Errorf("%+v", got)
	}
	if code := w.terminate(); code != 0 {
		t.Errorf("the worker's exit code is %d: %s", code, w.err)
	}
}

func theirWorker(h *heroWorld, t *testing.T, _ []meshNode) {
	worker := h.starts(by("dispatcher", "foreign.py"), h.redis.Host, h.redis.Port, "worker", "theirs", "protocol", "fifo")
	if said := worker.line(); said != "ready" {
		t.Fatal(said)
	}
	run := func(want int, script string) string {
		t.Helper()
		c := launch(t, "hero", "job", "run", "--redis-addr", h.redis.Address(), "--worker", "theirs", "--timeout", "30s", "--script", script, "--env", "WHO=edda", "--log-dir", t.TempDir())
		if code := c.code(); code != want {
			t.Errorf("%s: exit code %d, want %d: %s%s", script, code, want, c.out, c.err)
		}
		return c.out.String() + c.err.String()
	}
	if said := run(0, `import os; print("hello", os.environ["WHO"])`); !strings.Contains(said, "hello edda") {
		t.Error(said)
	}
	if said := run(1, "import sys; sys.exit(3)"); !strings.Contains(said, "exit 3") {
		t.Error(said)
	}
}
