//go:build !race

package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"edda"
	"edda/hero"
	"edda/hero/mycelium"
	"edda/internal/realservers"
	"edda/server"
)

// The contexts of the faults, one each.
const (
	inSilent uint32 = iota + 1
	inTwice
	inCancel
	inCancelFar
	inUndelivered
)

// pausedFor is how long Redis hangs on once health says so, which is when a call
// to it was given up, after 3 s: as long again as a call is tried anew (4 s in all).
const pausedFor = 2 * time.Second

// TestFaultsOfSupervisorsAndCancelledFlows has what others do wrong, each in a
// context of its own.
func TestFaultsOfSupervisorsAndCancelledFlows(t *testing.T) {
	h := newHeroWorld(t, realservers.RedisOptions{})
	nodes := h.mesh(2)
	c := h.coordinator("--mycelium-port", nodes[0].port())
	supervisor := freeAddr(t)
	h.runner([]string{"EDDA_HERO_MYCELIUM_ENABLED=false", "EDDA_HERO_SUPERVISOR_SECRET=" + heroSecret, "EDDA_HERO_SUPERVISOR_ADDR=" + supervisor, "EDDA_HERO_RUNNER_CONCURRENCY=4"})
	for name, test := range map[string]func(*heroWorld, *testing.T){
		"a supervisor that never answers":                   silentSupervisor,
		"two answers to one call":                           func(h *heroWorld, t *testing.T) { twoAnswers(h, t, c, nodes[1]) },
		"a cancelled flow stops its script":                 func(h *heroWorld, t *testing.T) { h.cancels(inCancel, hero.Runner{ID: ourRunner, Local: true}) },
		"a cancelled flow stops its script at a supervisor": func(h *heroWorld, t *testing.T) { cancelsFar(h, "http://"+supervisor) },
		"what is cancelled before it is delivered":          cancelledOnItsWay,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := *h
			world.t = t
			test(&world, t)
		})
	}
}

// silentSupervisor takes calls and answers none: each attempt ends with the job's
// queue_timeout, since nobody said that it began, and then the flow with the reason.
func silentSupervisor(h *heroWorld, t *testing.T) {
	var calls sync.Map
	gone := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var call struct{ ID, Method string }
		_ = json.NewDecoder(r.Body).Decode(&call) // an empty method shows below
		calls.Store(call.ID, call.Method)
		select {
		case <-r.Context().Done():
		case <-gone:
		}
	}))
	defer site.Close()
	defer close(gone)
	h.place(inSilent, hero.Runner{ID: theirRunner, Address: site.URL, Secret: heroSecret})
	h.flow(inSilent, 33, step{id: 2001, script: "print(1)", timeout: 1, queued: 1, retries: 1}, step{id: 2002, script: "print(2)", after: []uint32{2001}})
	f := h.ended(inSilent, 33)
	if f.Status != hero.FlowError || !strings.Contains(f.Result["error"], "job 2001 failed") || !strings.Contains(f.Result["error"], "within 1s") {
		t.Errorf("%s: %v", f.Status, f.Result)
	}
	g := h.dag(inSilent, 33)
	if g.Nodes["2001"].Attempt != 2 || g.Nodes["2001"].NodeStatus != hero.NodeFailed || g.Nodes["2002"].NodeStatus != hero.NodeCancelled {
		t.Errorf("%+v", g.Nodes)
	}
	runs := 0
	calls.Range(func(_, method any) bool {
		if method == "job.run" {
			runs++
		}
		return true
	})
	if runs != 2 {
		t.Errorf("job.run was called %d times, want once for each attempt", runs)
	}
	h.idle(inSilent)
}

// twoAnswers has a supervisor answer a call twice, differently.
func twoAnswers(h *heroWorld, t *testing.T, coordinator *child, node meshNode) {
	api, topic := mycelium.NewRPC(node.rpc), hero.SupervisorTopic
	h.place(inTwice, hero.Runner{ID: theirRunner, PubKey: node.key, Secret: heroSecret})
	h.flow(inTwice, 33, step{id: 2001, script: "print(1)"}, step{id: 2002, script: "print(2)", after: []uint32{2001}})
	ctx := t.Context()
	take := func() (m *mycelium.Message, id json.RawMessage) {
		until(t, "the call arrives", func() bool {
			var err error
			m, err = api.Pop(ctx, &topic, 0)
			return err == nil && m != nil
		})
		var call struct{ ID json.RawMessage }
		h.must(json.Unmarshal(m.Payload, &call))
		return m, call.ID
	}
	answer := func(m *mycelium.Message, id json.RawMessage, text string) {
		reply, err := json.Marshal(object{"jsonrpc": "2.0", "id": id, "result": object{"success": text}})
		h.must(err)
		h.must(api.Reply(ctx, *m, reply))
	}
	first, id := take()
	answer(first, id, "one")
	until(t, "the first answer is taken", func() bool { return h.job(inTwice, 2001).Status == hero.JobFinished })
	strays := coordinator.metric(`edda_hero_mycelium_messages_total{what="stray"}`)
	answer(first, id, "two")
	until(t, "the second answer is dropped", func() bool {
		return coordinator.metric(`edda_hero_mycelium_messages_total{what="stray"}`) == strays+1
	})
	second, id := take()
	answer(second, id, "three")
	h.finished(inTwice, 33, map[string]string{"2001.output": "one", "2002.output": "three"})
	h.idle(inTwice)
}

// lasting is a script that notes its process and goes on for a minute.
const lasting = `import os, time
with open(os.environ["PID"] + ".new", "w") as f: f.write(str(os.getpid()))
os.rename(os.environ["PID"] + ".new", os.environ["PID"])
time.sleep(60)
`

// cancels has a flow's script run, cancels the flow, and wants the script gone.
func (h *heroWorld) cancels(in uint32, r hero.Runner) {
	h.t.Helper()
	dir := h.t.TempDir()
	h.must(os.Chmod(dir, 0o777))
	pid := filepath.Join(dir, "pid")
	h.place(in, r)
	h.flow(in, 33, step{id: 2001, script: lasting, env: map[string]string{"PID": pid}, retries: 3}, step{id: 2002, script: "print(2)", after: []uint32{2001}})
	var process int
	until(h.t, "the script runs", func() bool {
		text, err := os.ReadFile(pid)
		if err == nil {
			process, err = strconv.Atoi(string(text))
		}
		return err == nil
	})
	var cancelled bool
	if h.call("flow.cancel", object{"context_id": in, "id": 33}, &cancelled); !cancelled {
		h.t.Error("the flow was not cancelled")
	}
	until(h.t, "the script is gone", func() bool { return syscall.Kill(process, 0) != nil })
	if f := h.ended(in, 33); f.Status != hero.FlowError || f.Result["error"] != "cancelled" {
		h.t.Errorf("%s: %v", f.Status, f.Result)
	}
	for _, id := range []uint32{2001, 2002} {
		if j := h.job(in, id); j.Status != hero.JobError || j.Result["error"] != "the flow was cancelled" && j.Result["error"] != "stopped" {
			h.t.Errorf("job %d is %s: %v", id, j.Status, j.Result)
		}
	}
	h.idle(in)
}

// cancelsFar does so where our runner serves the context for our supervisor, which
// the router reaches over HTTP.
func cancelsFar(h *heroWorld, url string) {
	h.place(inCancelFar, hero.Runner{ID: ourRunner, Local: true, Address: url, Secret: heroSecret})
	h.cancels(inCancelFar, hero.Runner{ID: ourRunner, Local: true, Address: url, Secret: heroSecret})
}

// cancelledOnItsWay cancels a flow whose supervisor is down: once that is back, it
// is not given the job.
func cancelledOnItsWay(h *heroWorld, t *testing.T) {
	addr := freeAddr(t)
	h.place(inUndelivered, hero.Runner{ID: theirRunner, Address: "http://" + addr, Secret: heroSecret})
	h.flow(inUndelivered, 33, step{id: 2001, script: "print(1)"})
	until(t, "the router has the message", func() bool { return len(h.left(inUndelivered)) == 1 })
	var cancelled bool
	h.call("flow.cancel", object{"context_id": inUndelivered, "id": 33}, &cancelled)
	h.ended(inUndelivered, 33)
	l, err := net.Listen("tcp", addr)
	h.must(err)
	site := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&call) // an empty method is an error, too
		t.Errorf("the supervisor is called for a job that was cancelled: %s", call.Method)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"success":"1"}}`, call.ID)
	})}}
	site.Start()
	defer site.Close()
	h.idle(inUndelivered)
}

// TestRedisHangsRestartsAndIsAReplica has Redis hang, start again and be read-only
// while flows run: health says so, and nothing is lost or run twice.
func TestRedisHangsRestartsAndIsAReplica(t *testing.T) {
	h := newHeroWorld(t, realservers.RedisOptions{AppendOnly: true})
	c := h.launched([]string{"EDDA_HERO_MYCELIUM_ENABLED=false"}, h.coordinatorArgs()...)
	c.says(`"msg":"started"`)
	h.place(7, hero.Runner{ID: ourRunner, Local: true}) // before the runner, which looks for new contexts now and then
	r := h.runner([]string{"EDDA_HERO_MYCELIUM_ENABLED=false"})
	runs := t.TempDir()
	h.must(os.Chmod(runs, 0o777))
	for i, fault := range []struct {
		name      string
		begin, up func()
	}{
		// First, since a failure that was told lately is not told again.
		{"is a replica", func() { h.must(h.client(0).Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err()) }, func() {
			r.says(`"msg":"do what a job needs"`) // the end of a run was refused
			h.must(h.client(0).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
		}},
		{"hangs", func() { h.must(h.redis.Pause()) }, func() { <-time.After(pausedFor); h.must(h.redis.Resume()) }},
		{"restarts", func() { h.must(h.redis.Kill()) }, func() { h.must(h.redis.Restart()) }},
	} {
		flow := uint32(100 * (i + 1))
		var steps []step
		for n := range uint32(6) {
			s := step{id: flow + n, script: counted, retries: 9, env: map[string]string{"RUNS": runs, "NODE": fmt.Sprint(flow + n), "FAILS": "0", "TAKES": "0.3"}}
			if n > 2 {
				s.after = []uint32{flow + n - 3, flow + (n-2)%3}
			}
			steps = append(steps, s)
		}
		h.flow(7, flow, steps...)
		until(t, "a job has run", func() bool {
			_, err := os.Stat(filepath.Join(runs, fmt.Sprintf("%d-%d", flow, flow)))
			return err == nil
		})
		fault.begin()
		until(t, "redis is down where it "+fault.name, func() bool { return c.component("redis") == "down" })
		fault.up()
		until(t, "redis is up again", func() bool { return c.component("redis") == "up" })
		up := time.Now()
		f := h.ended(7, flow)
		t.Logf("redis %s: the flow ended %v after it was up", fault.name, time.Since(up).Round(time.Millisecond))
		crash := heroCrash{heroWorld: h, runs: runs}
		for _, s := range steps {
			notes := crash.notes(flow, s.id)
			if len(notes) != 2 || f.Result[fmt.Sprint(s.id, ".token")] == "" {
				t.Errorf("redis %s: job %d: notes %v, the flow is %s: %v", fault.name, s.id, notes, f.Status, f.Result)
			}
		}
	}
	h.settled(c)
	h.idle(7)
}

// component is what health says of a part.
func (c *child) component(name string) string {
	c.t.Helper()
	var r server.ProcessStatus
	body, _ := c.fetch("/health")
	if err := json.Unmarshal(body, &r); err != nil {
		c.t.Fatalf("%v in %s", err, body)
	}
	return string(r.Components[name].State)
}

// TestASagaRunsHeroJobsAndTellsAnActor runs the example manifest, whole, and with a
// script that fails, on a real Redis.
func TestASagaRunsHeroJobsAndTellsAnActor(t *testing.T) {
	h := newHeroWorld(t, realservers.RedisOptions{})
	dir := t.TempDir()
	for _, name := range []string{"report.yaml", "count.py"} {
		text, err := os.ReadFile(filepath.Join("..", "manifests", "hero", name))
		h.must(err)
		write(t, dir, name, strings.Replace(string(text), "import os\n", "import os\nassert 'sick' not in os.environ['PAGE']\n", 1))
	}
	// before the runner, which looks for new contexts now and then
	h.must(h.db.PutContext(t.Context(), hero.Context{ID: 7, Admins: []uint32{heroActor}}))
	h.must(h.db.PutRunner(t.Context(), 7, hero.Runner{ID: 1, Local: true}))
	_, http, _ := net.SplitHostPort(h.api)
	_, ws, _ := net.SplitHostPort(h.ws)
	c := devWith(t, []string{"EDDA_HERO_RUNNER_ID=1"}, t.TempDir(), freeAddr(t), freeAddr(t), "--hero", "--redis-addr", h.redis.Address(),
		"--api-http-port", http, "--api-ws-port", ws, "--mycelium-port", h.mesh(1)[0].port(), dir)
	var ignored any
	for _, id := range []int{heroActor, 13} {
		h.call("actor.create", object{"actor": object{"id": id, "pubkey": "", "address": []string{}}}, &ignored)
	}
	for report, text := range map[string]string{"R1": "one two. three. four five six", "R2": "well. sick"} {
		if out, code := c.cli("send", "Report.Requested", "--id", report, "--data", `{"report":"`+report+`","text":"`+text+`"}`); code != 0 {
			t.Fatal(out)
		}
	}
	ends := func(key string, want edda.Status) server.InstanceView {
		untilIn(t, heroEnds, "the report "+key+" ends", func() bool {
			_, code := c.fetch("/v1/instances/report/" + key)
			return code == 200 && c.describe("report", key).Instance.Status.Finished()
		})
		v := c.describe("report", key)
		if v.Instance.Status != want {
			t.Errorf("%s is %s: %s", key, v.Instance.Status, v.Instance.Reason)
		}
		return v
	}
	if v := ends("R1", edda.StatusDone); string(v.Instance.Result) != `{"words":6}` {
		t.Errorf("%s", v.Instance.Result)
	}
	ends("R2", edda.StatusUndone)
	// the results of the jobs arrive there, too
	var chats []map[string]string
	until(t, "the actor is told", func() bool {
		chats = nil
		for _, key := range h.client(7).LRange(context.Background(), hero.MsgIn, 0, -1).Val() {
			if m := h.client(7).HGetAll(context.Background(), key).Val(); m["message_type"] == "chat" {
				chats = append(chats, m)
			}
		}
		return len(chats) > 0
	})
	if m := chats[0]; len(chats) != 1 || m["message"] != "Your report R1 has 6 words." || m["to"] != "13" {
		t.Errorf("%v", chats)
	}
	h.idle(7)
}
