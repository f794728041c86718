//go:build !race

package systemtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/hero"
	"edda/hero/flow"
	"edda/hero/flowsaga"
	"edda/hero/jsonrpc"
	"edda/hero/redisdb"
	"edda/internal/realservers"
	"edda/stream/kv"
)

// heroEnds bounds the end of a flow of small scripts on a busy machine.
const heroEnds = 60 * time.Second

// The people and runners of a Hero world.
const (
	heroActor  = 12
	heroSecret = "s3cret"
	// ourRunner is the id of the binary's runner, theirs of those in Python.
	ourRunner, theirRunner = 20, 21
)

// heroWorld is the Hero systems as processes: the binary's and others, one Redis
// and one NATS.
type heroWorld struct {
	t     *testing.T
	redis *realservers.Server
	db    *redisdb.DB // the test's own look into Redis
	nats  *kv.Embedded

	api, ws string // addresses of the coordinator
	data    string
	rpc     *jsonrpc.Client
	python  string // what runs clients and scripts
}

func newHeroWorld(t *testing.T, o realservers.RedisOptions) *heroWorld {
	t.Helper()
	h := &heroWorld{t: t, api: freeAddr(t), ws: freeAddr(t), data: t.TempDir()}
	var err error
	h.python, err = exec.LookPath("python3")
	h.must(err)
	h.redis, err = realservers.Redis(o)
	h.must(err)
	t.Cleanup(func() { _ = h.redis.Stop() })
	h.db, err = redisdb.Open(redisdb.Options{Addr: h.redis.Address()})
	h.must(err)
	t.Cleanup(func() { _ = h.db.Close() })
	h.nats, err = kv.StartEmbedded(context.Background(), kv.EmbeddedOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0"})
	h.must(err)
	t.Cleanup(h.nats.Close)
	h.rpc = jsonrpc.NewClient("http://"+h.api, jsonrpc.ClientOptions{Timeout: soon})
	return h
}

func (h *heroWorld) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// coordinator starts the role; more are flags.
func (h *heroWorld) coordinator(more ...string) *child {
	h.t.Helper()
	c := h.launched(h.coordinatorEnv(), h.coordinatorArgs(more...)...)
	c.says(`"msg":"started"`)
	return c
}

func (h *heroWorld) coordinatorEnv() []string { return nil }

func (h *heroWorld) coordinatorArgs(more ...string) []string {
	_, http, _ := net.SplitHostPort(h.api)
	_, ws, _ := net.SplitHostPort(h.ws)
	return append([]string{"run", "--role", "coordinator", "--nats-url", h.nats.URL(), "--data", filepath.Join(h.data, "coordinator"),
		"--redis-addr", h.redis.Address(), "--api-http-port", http, "--api-ws-port", ws}, more...)
}

// runner starts the role; its jobs are run by python3.
func (h *heroWorld) runner(env []string, more ...string) *child {
	h.t.Helper()
	c := h.launched(h.runnerEnv(env), h.runnerArgs(more...)...)
	c.says(`"msg":"started"`)
	return c
}

func (h *heroWorld) runnerEnv(more []string) []string {
	return append([]string{fmt.Sprintf("EDDA_HERO_RUNNER_ID=%d", ourRunner)}, more...)
}

func (h *heroWorld) runnerArgs(more ...string) []string {
	return append([]string{"run", "--role", "runner", "--data", filepath.Join(h.data, "runner"), "--redis-addr", h.redis.Address()}, more...)
}

func (h *heroWorld) launched(env []string, args ...string) *child {
	h.t.Helper()
	addr := freeAddr(h.t)
	c := launchWith(h.t, env, append(args, "--addr", addr)...)
	c.addr, c.nats, c.tenant = addr, h.nats.URL(), "hero"
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("%s:\n%s", strings.Join(c.Cmd.Args[1:], " "), tail(c.err.String(), 6000))
		}
	})
	return c
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// meshNode is a node of the stand-in for Mycelium.
type meshNode struct{ key, ip, rpc, rest string }

func (n meshNode) port() string {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(n.rpc, "http://"))
	return port
}

var meshLine = regexp.MustCompile(`key (\S+)  ip (\S+)  rpc (\S+)  rest (\S+)`)

// meshTries bounds how often the ports of the stand-in may be taken by another
// between the look and the start.
const meshTries = 5

// mesh starts the stand-in as a process.
func (h *heroWorld) mesh(nodes int) []meshNode {
	h.t.Helper()
	for range meshTries {
		if out := h.meshAt(freePorts(h.t, nodes), nodes); out != nil {
			return out
		}
	}
	h.t.Fatal("the stand-in found its ports taken each time")
	return nil
}

// meshAt is nil where the stand-in ended: its ports were taken meanwhile.
func (h *heroWorld) meshAt(port, nodes int) (out []meshNode) {
	h.t.Helper()
	c := launch(h.t, "hero", "mycelium", "--nodes", strconv.Itoa(nodes), "--port", strconv.Itoa(port))
	until(h.t, "the stand-in for mycelium tells its nodes, or ends", func() bool {
		out = nil
		for _, m := range meshLine.FindAllStringSubmatch(c.out.String(), -1) {
			out = append(out, meshNode{m[1], m[2], m[3], m[4]})
		}
		select {
		case <-c.Ended():
			h.t.Logf("the stand-in ended: %s", c.err)
			out = nil
			return true
		default:
			return len(out) == nodes
		}
	})
	return out
}

// freePorts finds the first of n ports, which has free ones a hundred above. It
// looks at random: tests of other processes look, too.
func freePorts(t testing.TB, n int) int {
	t.Helper()
	const first, last, step = 20000, 30000, 10
	for range (last - first) / step {
		port := first + step*rand.IntN((last-first)/step)
		if allFree(port, n) && allFree(port+100, n) {
			return port
		}
	}
	t.Fatal("no free ports for the stand-in")
	return 0
}

func allFree(port, n int) bool {
	for i := range n {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+i)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// call calls the coordinator, and tries again while nobody answers there.
func (h *heroWorld) call(method string, params any, into any) {
	h.t.Helper()
	h.must(h.rpc.Call(context.Background(), method, params, into))
}

// object is a JSON object.
type object = map[string]any

// place makes a context with its actor, and runners.
func (h *heroWorld) place(id uint32, runners ...hero.Runner) {
	h.t.Helper()
	var ignored json.RawMessage
	h.call("actor.create", object{"actor": object{"id": heroActor, "pubkey": "", "address": []string{}}}, &ignored)
	h.call("context.create", object{"caller_id": heroActor, "context": object{"id": id, "admins": []int{heroActor}, "readers": []int{}, "executors": []int{}}}, &ignored)
	for _, r := range runners {
		h.call("runner.create", object{"context_id": id, "caller_id": heroActor, "runner": r}, &ignored)
	}
}

// step is a job of a flow.
type step struct {
	id      uint32
	script  string
	after   []uint32
	awaits  []string
	retries int
	timeout int
	queued  int // its queue_timeout; a day unless said
	env     map[string]string
}

// flow makes a flow of python jobs and starts it.
func (h *heroWorld) flow(in, id uint32, steps ...step) {
	h.t.Helper()
	h.define(in, id, steps...)
	h.begin(in, id)
}

func (h *heroWorld) define(in, id uint32, steps ...step) {
	h.t.Helper()
	var ignored json.RawMessage
	jobs := []uint32{}
	for _, s := range steps {
		jobs = append(jobs, s.id)
		if s.timeout == 0 {
			s.timeout = 60
		}
		h.call("job.create", object{"context_id": in, "job": object{
			"id": s.id, "caller_id": heroActor, "script": s.script, "script_type": "python", "timeout": s.timeout, "queue_timeout": s.queued, "retries": s.retries,
			"env_vars": some(s.env), "prerequisites": append([]string{}, s.awaits...), "dependends": append([]uint32{}, s.after...),
		}}, &ignored)
	}
	h.call("flow.create", object{"context_id": in, "flow": object{"id": id, "caller_id": heroActor, "jobs": jobs, "env_vars": object{"FLOW": strconv.Itoa(int(id))}}}, &ignored)
}

func some(env map[string]string) map[string]string {
	if env == nil {
		return map[string]string{}
	}
	return env
}

func (h *heroWorld) begin(in, id uint32) {
	h.t.Helper()
	var started bool
	if h.call("flow.start", object{"context_id": in, "id": id}, &started); !started {
		h.t.Fatalf("flow %d was running", id)
	}
}

// ended waits for a flow's end.
func (h *heroWorld) ended(in, id uint32) hero.Flow {
	h.t.Helper()
	var f hero.Flow
	untilIn(h.t, heroEnds, fmt.Sprintf("flow %d of context %d ends", id, in), func() bool {
		var err error
		f, err = h.db.Flow(context.Background(), in, id)
		return err == nil && f.Status.Ended()
	})
	return f
}

// finished waits for a flow's end and wants its results.
func (h *heroWorld) finished(in, id uint32, want map[string]string) {
	h.t.Helper()
	f := h.ended(in, id)
	if f.Status != hero.FlowFinished {
		h.t.Errorf("flow %d is %s: %v", id, f.Status, f.Result)
	}
	for key, value := range want {
		if got := strings.TrimSpace(f.Result[key]); got != value {
			h.t.Errorf("flow %d: %s is %q, want %q; all: %v", id, key, got, value, f.Result)
		}
	}
}

func (h *heroWorld) dag(in, id uint32) (g flow.Graph) {
	h.t.Helper()
	h.call("flow.dag", object{"context_id": in, "id": id}, &g)
	return g
}

func (h *heroWorld) job(in, id uint32) hero.Job {
	h.t.Helper()
	j, err := h.db.Job(context.Background(), in, heroActor, id)
	h.must(err)
	return j
}

// client is a connection to one context's database.
func (h *heroWorld) client(in uint32) *redis.Client {
	h.t.Helper()
	c, err := h.db.Client(in)
	h.must(err)
	return c
}

// idle waits until nothing lies in a context's lists but what actors are to pop.
func (h *heroWorld) idle(contexts ...uint32) {
	h.t.Helper()
	for _, in := range contexts {
		var left []string
		late := time.Now().Add(soon)
		for left = h.left(in); len(left) > 0 && time.Now().Before(late); left = h.left(in) {
			<-time.After(20 * time.Millisecond)
		}
		if len(left) > 0 {
			h.t.Errorf("context %d: left over: %v", in, left)
		}
	}
}

// left names the lists that are not empty, with what is in them.
func (h *heroWorld) left(in uint32) (out []string) {
	h.t.Helper()
	ctx := context.Background()
	for _, pattern := range []string{"msg_out*", "msg_in_*", "queue:*"} {
		keys, err := h.client(in).Keys(ctx, pattern).Result()
		h.must(err)
		for _, key := range keys {
			values, err := h.client(in).LRange(ctx, key, 0, -1).Result()
			h.must(err)
			if len(values) > 0 {
				out = append(out, fmt.Sprint(key, values))
			}
		}
	}
	return out
}

// settled wants every flow of the coordinator ended and nothing in its outbox.
func (h *heroWorld) settled(c *child) {
	h.t.Helper()
	untilIn(h.t, heroEnds, "every flow has ended", func() bool {
		for _, in := range c.instances(flowsaga.Saga) {
			if in.Status == "running" {
				return false
			}
		}
		return true
	})
	until(h.t, "the outbox is empty", func() bool { return c.metric("edda_outbox_items") == 0 })
}

// foreigner is a program of others, in Python, that runs until the test ends.
type foreigner struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	said  *screen
}

// starts runs a script of a client's folder and leaves it running.
func (h *heroWorld) starts(script string, args ...string) *foreigner {
	h.t.Helper()
	f := &foreigner{cmd: exec.Command(h.python, append([]string{"-u", script}, args...)...), said: &screen{}}
	f.cmd.Stderr = f.said
	out, err := f.cmd.StdoutPipe()
	h.must(err)
	f.lines = bufio.NewScanner(io.TeeReader(out, f.said))
	h.must(f.cmd.Start())
	h.t.Cleanup(func() {
		f.end()
		if h.t.Failed() {
			h.t.Logf("%s: %s", script, f.said)
		}
	})
	return f
}

// line is the next thing that it says.
func (f *foreigner) line() string {
	f.lines.Scan()
	return f.lines.Text()
}

func (f *foreigner) end() {
	_ = f.cmd.Process.Kill() // it may have ended
	_ = f.cmd.Wait()
}

// says runs a script to its end and returns what it says.
func (h *heroWorld) says(script string, args ...string) string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), heroEnds)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.python, append([]string{script}, args...)...)
	var complaint screen
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("%s %s: %v: %s%s", script, strings.Join(args, " "), err, out, complaint.String())
	}
	return strings.TrimSpace(string(out))
}

// by names the test's folder of a part's Python clients.
func by(part, script string) string {
	return filepath.Join("..", "hero", part, "testdata", script)
}
