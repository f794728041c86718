//go:build !race

package systemtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/hero"
	"edda/internal/realservers"
)

// The size of the crash rounds of flows: EDDA_CRASH_KILLS makes them longer.
const (
	heroKills     = 8
	heroFlows     = 16
	heroKillsOver = 12 * time.Second // that many kills take about as long
	// crashEnds bounds the end of all flows once the last kill is over: the
	// heartbeat of a runner that died is heard for six seconds, and a job that died
	// with it is tried again by its flow.
	crashEnds = 90 * time.Second
)

// The contexts of the crash rounds.
const (
	inCrash     uint32 = 7 // jobs of our runners
	inCrashHTTP uint32 = 8 // jobs of a supervisor of others
)

// counted is a script that notes its runs in a file: begin, and end or fail.
const counted = `import json, os, sys, time
path = os.path.join(os.environ["RUNS"], os.environ["FLOW"] + "-" + os.environ["NODE"])
token = os.urandom(8).hex()
def note(what):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, ("%s %s %d\n" % (what, token, time.time_ns())).encode())
    os.close(fd)
note("begin")
time.sleep(float(os.environ["TAKES"]))
if open(path).read().count("fail ") < int(os.environ["FAILS"]):
    note("fail")
    sys.exit("no")
note("end")
print(json.dumps({"token": token}))
`

// roomToDie is how often a job may be tried again because a runner died.
const roomToDie = 16

// outlasts is the timeout of jobs, in seconds, beyond the end of the test: a message
// that is lost is not to be made good by the next attempt.
const outlasts = 600

// dies is more failures than a job has tries.
const dies = 1000

// shape is a kind of flow: its jobs, counted from 1, and how it ends.
type shape struct {
	name   string
	in     uint32
	jobs   []step // ids from 1; retries say how often it fails by itself
	failed uint32
	waits  bool // for "paid"
}

func shapes() []shape {
	fan := []step{{id: 1}}
	last := step{id: 8}
	for i := uint32(2); i < 8; i++ {
		fan, last.after = append(fan, step{id: i, after: []uint32{1}}), append(last.after, i)
	}
	four := []step{{id: 1}, {id: 2, after: []uint32{1}}, {id: 3, after: []uint32{1}}, {id: 4, after: []uint32{2, 3}}}
	flaky := []step{{id: 1}, {id: 2, after: []uint32{1}, retries: 2}, {id: 3, after: []uint32{2}}}
	lost := []step{{id: 1}, {id: 2, after: []uint32{1}, retries: dies}, {id: 3, after: []uint32{2}}}
	waits := []step{{id: 1}, {id: 2, awaits: []string{"paid"}}, {id: 3, after: []uint32{1, 2}}}
	return []shape{
		{name: "diamond", in: inCrash, jobs: four},
		{name: "fan-out", in: inCrash, jobs: append(fan, last)},
		{name: "flaky", in: inCrash, jobs: flaky},
		{name: "failing", in: inCrash, jobs: lost, failed: 2},
		{name: "prerequisite", in: inCrash, jobs: waits, waits: true},
		{name: "diamond over HTTP", in: inCrashHTTP, jobs: four},
		{name: "fan-out over HTTP", in: inCrashHTTP, jobs: append(fan, last)},
	}
}

// TestFlowsEndAsUndisturbedThoughEveryPartIsKilled kills the coordinator, with the
// router in it, two runners and Redis at random while flows run.
func TestFlowsEndAsUndisturbedThoughEveryPartIsKilled(t *testing.T) {
	begin := time.Now()
	c := newHeroCrash(t)
	var starter sync.WaitGroup
	starter.Go(func() { c.startFlows(rand.New(rand.NewPCG(c.seed, 2))) })
	c.killAll(rand.New(rand.NewPCG(c.seed, 1)))
	starter.Wait()
	t.Logf("every flow was started and every kill done after %v", time.Since(begin).Round(time.Millisecond))
	c.settle()
	runs, again := c.books()
	t.Logf("%d flows, %d kills, %d runs of jobs, %d of them again, %v", c.flows, c.kills, runs, again, time.Since(begin).Round(time.Millisecond))
}

// heroCrash is one round.
type heroCrash struct {
	*heroWorld
	seed        uint64
	kills       int
	runs        string // folder of the scripts' notes
	victims     map[string]*victim
	coordinator *victim
	flows       int
}

// victim is a process that is killed and started again.
type victim struct {
	now   *child
	start func() *child
}

func (v *victim) begin() {
	v.now = v.start()
	v.now.says(`"msg":"started"`)
}

func newHeroCrash(t *testing.T) *heroCrash {
	h := newHeroWorld(t, realservers.RedisOptions{AppendOnly: true})
	c := &heroCrash{heroWorld: h, seed: crashSeed(t), kills: heroKills, runs: t.TempDir()}
	h.must(os.Chmod(c.runs, 0o777))
	if text := os.Getenv("EDDA_CRASH_KILLS"); text != "" {
		var err error
		c.kills, err = strconv.Atoi(text)
		h.must(err)
	}
	c.flows = heroFlows * c.kills / heroKills
	args := h.coordinatorArgs()
	c.coordinator = &victim{start: func() *child { return h.launched([]string{"EDDA_HERO_MYCELIUM_ENABLED=false"}, args...) }}
	c.victims = map[string]*victim{"coordinator": c.coordinator}
	c.coordinator.begin()
	h.place(inCrash, hero.Runner{ID: ourRunner, Local: true}, hero.Runner{ID: ourRunner + 1, Local: true}) // before the runners, which look for new contexts now and then
	for id := ourRunner; id < ourRunner+2; id++ {
		env := []string{fmt.Sprintf("EDDA_HERO_RUNNER_ID=%d", id), "EDDA_HERO_RUNNER_CONCURRENCY=4", "EDDA_HERO_MYCELIUM_ENABLED=false"}
		args := h.runnerArgs("--data", filepath.Join(h.data, fmt.Sprint("runner", id)))
		v := &victim{start: func() *child { return h.launched(env, args...) }}
		c.victims[fmt.Sprint("runner", id)] = v
		v.begin()
	}
	address := h.starts(by("router", "supervisor.py"), heroSecret).line()
	h.place(inCrashHTTP, hero.Runner{ID: theirRunner, Address: address, Secret: heroSecret})
	return c
}

// killAll kills in a random order, so that each has its turn, and starts what it
// killed at once.
func (c *heroCrash) killAll(rnd *rand.Rand) {
	names := []string{"coordinator", fmt.Sprint("runner", ourRunner), "redis", "coordinator", fmt.Sprint("runner", ourRunner+1), "redis", "coordinator", fmt.Sprint("runner", ourRunner)}
	for i := range c.kills {
		if i%len(names) == 0 {
			rnd.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
		}
		<-time.After(heroKillsOver/heroKills/2 + time.Duration(rnd.Int64N(int64(heroKillsOver/heroKills))))
		name := names[i%len(names)]
		begin := time.Now()
		c.kill(name)
		c.t.Logf("kill %d: %s, there again after %v", i+1, name, time.Since(begin).Round(time.Millisecond))
	}
}

func (c *heroCrash) kill(name string) {
	c.t.Helper()
	if name == "redis" {
		c.must(c.redis.Kill())
		c.must(c.redis.Restart())
		return
	}
	v := c.victims[name]
	v.now.kill()
	v.begin()
}

// surely calls until it is answered: what is called may be dead.
func (h *heroWorld) surely(method string, params, into any) {
	for deadline := time.Now().Add(heroEnds); ; {
		err := h.rpc.Call(context.Background(), method, params, into)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			h.t.Errorf("%s: %v", method, err)
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

func (c *heroCrash) shapeOf(flow uint32) shape { all := shapes(); return all[int(flow)%len(all)] }

// startFlows starts them one after another over the time of the kills, and says
// later that what some wait for holds.
func (c *heroCrash) startFlows(rnd *rand.Rand) {
	for flow := range uint32(c.flows) {
		s := c.shapeOf(flow)
		c.startFlow(s, flow+1, rnd)
		if s.waits {
			var ready []uint32
			c.surely("flow.prerequisite_met", object{"context_id": s.in, "id": flow + 1, "name": "paid"}, &ready)
		}
		<-time.After(heroKillsOver / heroFlows)
	}
}

func (c *heroCrash) startFlow(s shape, flow uint32, rnd *rand.Rand) {
	var ignored any
	ids := []uint32{}
	for _, j := range s.jobs {
		id := jobID(flow, j.id)
		ids = append(ids, id)
		after := []uint32{}
		for _, a := range j.after {
			after = append(after, jobID(flow, a))
		}
		c.surely("job.create", object{"context_id": s.in, "job": object{
			"id": id, "caller_id": heroActor, "script": counted, "script_type": "python", "timeout": outlasts, "retries": tries(j),
			"prerequisites": append([]string{}, j.awaits...), "dependends": after,
			"env_vars": object{"RUNS": c.runs, "NODE": fmt.Sprint(id), "FAILS": fmt.Sprint(j.retries), "TAKES": fmt.Sprintf("%.2f", 0.1+0.9*rnd.Float64())},
		}}, &ignored)
	}
	c.surely("flow.create", object{"context_id": s.in, "flow": object{"id": flow, "caller_id": heroActor, "jobs": ids, "env_vars": object{"FLOW": fmt.Sprint(flow)}}}, &ignored)
	c.surely("flow.start", object{"context_id": s.in, "id": flow}, &ignored)
}

func jobID(flow, n uint32) uint32 { return flow*100 + n }

// tries leaves room for runners that die; what fails for good need not be tried
// often.
func tries(j step) int {
	if j.retries == dies {
		return 1
	}
	return j.retries + roomToDie
}

// settle waits until every flow has ended and nothing is left anywhere.
func (c *heroCrash) settle() {
	c.t.Helper()
	late := time.Now().Add(crashEnds)
	for flow := uint32(1); flow <= uint32(c.flows); flow++ {
		s := c.shapeOf(flow - 1)
		untilIn(c.t, time.Until(late), fmt.Sprintf("flow %d, a %s, ends", flow, s.name), func() bool {
			f, err := c.db.Flow(context.Background(), s.in, flow)
			return err == nil && f.Status.Ended()
		})
	}
	c.settled(c.coordinator.now)
	c.idle(inCrash, inCrashHTTP)
}

// books compares every flow with an undisturbed one, and every job's recorded
// result with the notes of its runs.
func (c *heroCrash) books() (runs, again int) {
	c.t.Helper()
	for flow := uint32(1); flow <= uint32(c.flows); flow++ {
		s := c.shapeOf(flow - 1)
		f, err := c.db.Flow(context.Background(), s.in, flow)
		c.must(err)
		g := c.dag(s.in, flow)
		want := hero.FlowFinished
		if s.failed != 0 {
			want = hero.FlowError
			if g.FailedJob == nil || *g.FailedJob != jobID(flow, s.failed) {
				c.t.Errorf("flow %d, a %s: failed_job is %v", flow, s.name, g.FailedJob)
			}
		}
		if f.Status != want {
			c.t.Errorf("flow %d, a %s, is %s: %v", flow, s.name, f.Status, f.Result)
		}
		for _, j := range s.jobs {
			n := c.jobsBook(s, f, flow, j)
			runs += n
			again += max(0, n-1)
		}
	}
	return runs, again
}

// jobsBook returns how often a job was begun.
func (c *heroCrash) jobsBook(s shape, f hero.Flow, flow uint32, j step) int {
	c.t.Helper()
	id := jobID(flow, j.id)
	what := fmt.Sprintf("flow %d, a %s, job %d", flow, s.name, id)
	notes := c.notes(flow, id)
	h := c.job(s.in, id)
	if s.failed != 0 && j.id > s.failed {
		if len(notes) > 0 || h.Status != hero.JobError {
			c.t.Errorf("%s is %s and ran behind the job that failed: %v", what, h.Status, notes)
		}
		return 0
	}
	if j.id == s.failed && s.failed != 0 {
		if h.Status != hero.JobError || h.Result[hero.ResultError] == "" {
			c.t.Errorf("%s is %s: %v", what, h.Status, h.Result)
		}
		return begins(notes)
	}
	token := h.Result["token"]
	if h.Status != hero.JobFinished || token == "" {
		c.t.Errorf("%s is %s: %v", what, h.Status, h.Result)
		return begins(notes)
	}
	if key := fmt.Sprint(id, ".token"); f.Result[key] != token {
		c.t.Errorf("%s has the result of run %s, its flow that of %s", what, token, f.Result[key])
	}
	end := notedAt(notes, "end", token)
	if end < 0 {
		c.t.Errorf("%s has a result of no run: %s, of %v", what, token, notes)
	} else if len(notes) > end+1 {
		c.t.Errorf("%s ran again after the run that is recorded, %s: %v", what, token, notes)
	}
	return begins(notes)
}

// notes are what the runs of a job have noted, in order: "begin <token> <time>".
func (c *heroCrash) notes(flow, id uint32) (out []string) {
	text, err := os.ReadFile(filepath.Join(c.runs, fmt.Sprintf("%d-%d", flow, id)))
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

func notedAt(notes []string, what, token string) int {
	for i, n := range notes {
		if strings.HasPrefix(n, what+" "+token+" ") {
			return i
		}
	}
	return -1
}

func begins(notes []string) (n int) {
	for _, note := range notes {
		if strings.HasPrefix(note, "begin ") {
			n++
		}
	}
	return n
}
