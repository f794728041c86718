package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"edda/internal/backoff"
	"edda/internal/harness"
	"edda/internal/natsservers"
)

const (
	// atOnce are the orders under way in W7: enough for a full load of one process.
	atOnce = 512
	// moveWithin bounds one hand-over.
	moveWithin = 30 * time.Second
	// gapEvery is how often the ends of orders are counted, to find the longest time without one.
	gapEvery = time.Millisecond
	// betweenMoves is how long orders flow between two hand-overs.
	betweenMoves = 300 * time.Millisecond
	// steadyWithin is a time without an end of an order that is not over yet, and counts for the move.
	steadyWithin = 50 * time.Millisecond
)

// clusterRun is W7: three NATS servers, and one process or the nodes of a cluster over them.
type clusterRun struct {
	orderRun
	servers *natsservers.Servers
	nodes   []*benchNode // the first one owns the store
	shards  int          // 0: one store
	cores   float64      // that each node may use; 0: all
}

// benchNode is an edda run.
type benchNode struct {
	*harness.Process
	name, api string
}

// clustered is W7. It measures one process, and then two nodes, each on NATS servers of its own, with streams of three
// replicas.
func (r *run) clustered() error {
	for _, nodes := range []int{1, 2} {
		if err := r.clusterOf(nodes); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) clusterOf(nodes int) (err error) {
	c := &clusterRun{orderRun: orderRun{run: r, name: "W7"}, cores: r.Cores}
	defer func() {
		if err != nil {
			for _, n := range c.nodes {
				err = fmt.Errorf("%w\n%s says:\n%s", err, n.name, n.Tail())
			}
		}
		err = errors.Join(err, c.Stop())
	}()
	if err := c.openCluster(nodes); err != nil {
		return err
	}
	if c.cores > 0 {
		if _, err := c.limit(); err != nil {
			return err
		}
	}
	what := "one process"
	if nodes > 1 {
		what = fmt.Sprintf("%d nodes", nodes)
	}
	if _, err := c.load(what+" warm", max(r.Instances/10, 10), atOnce); err != nil {
		return err
	}
	full := 0.0 // orders a second
	for _, phase := range []struct {
		name    string
		n, once int
	}{{"full", r.Instances, atOnce}, {"alone", r.Alone, 1}} {
		res, err := c.load(what+" "+phase.name, phase.n, phase.once)
		if err != nil {
			return err
		}
		full = max(full, res.Rate)
		r.add(res)
	}
	if nodes == 1 {
		return nil
	}
	res, err := c.hands(what+" moves", full/4) // a move takes CPU beside the orders
	if err != nil {
		return err
	}
	r.add(res)
	return nil
}

// openCluster starts the servers, the effect server, the nodes and a client.
func (c *clusterRun) openCluster(nodes int) error {
	dir, err := c.folder(fmt.Sprintf("%s-%d", c.name, nodes))
	if err != nil {
		return err
	}
	if c.servers, err = natsservers.Start(c.ctx, filepath.Join(dir, "nats")); err != nil {
		return err
	}
	c.Add(c.servers.Stop)
	if c.effects, err = c.startEffects(); err != nil {
		return err
	}
	c.Add(c.effects.Stop)
	if err := harness.WriteFiles(dir, manifestFiles, "manifests/order.yaml", "EFFECTS", c.effects.url); err != nil {
		return err
	}
	addrs, err := harness.FreeAddrs(nodes)
	if err != nil {
		return err
	}
	for i, addr := range addrs {
		n := c.node(dir, fmt.Sprintf("n%d", i+1), addr, nodes > 1 || c.shards > 0)
		if err := n.Start(); err != nil {
			return err
		}
		c.Add(n.Stop)
		if err := n.Until(c.ctx, startFor, harness.Ready(c.ctx, n.api+"/ready")); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	if c.client, err = harness.Connect(c.servers.URLs()); err != nil {
		return err
	}
	c.Add(c.client.Close)
	return nil
}

func (c *clusterRun) node(dir, name, addr string, clustered bool) *benchNode {
	n := &benchNode{name: name, api: "http://" + addr}
	args := []string{"run", "--role", "saga,effect", "--nats-url", c.servers.URLs(), "--addr", addr, "--data", filepath.Join(dir, name)}
	if clustered {
		args = append(args, "--cluster", "bench", "--node", name)
	}
	var more []string
	if c.shards > 0 {
		args, more = append(args, "--shards", strconv.Itoa(c.shards)), []string{"EDDA_CLUSTER_COPIES=2"}
	}
	n.Process = harness.New(name, filepath.Join(dir, name+".log"), func() *exec.Cmd {
		cmd := exec.Command(c.Edda, append(args, filepath.Join(dir, "order.yaml"))...)
		cmd.Env = harness.Environ("EDDA_EFFECTS_ALLOW=127.0.0.0/8", "EDDA_STREAMS_REPLICAS=3", "EDDA_TENANCY_ENABLED=true", "EDDA_LOG_LEVEL=warn")
		if c.cores > 0 {
			cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
		}
		cmd.Env = append(cmd.Env, more...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this process
		return cmd
	})
	return n
}

// used is what the processes have used so far.
type used struct {
	reading
	nats, standbys usage
	log            uint64 // bytes of the replicated log
}

func (c *clusterRun) read() (u used, err error) {
	u.at, u.machine = time.Now(), machineTime()
	u.server, u.effects, u.client = usageOf(c.nodes[0].PID()), usageOf(c.effects.PID()), usageOf(os.Getpid())
	for name := range c.servers.Addrs() {
		u.nats.cpu += usageOf(c.servers.Process(name).PID()).cpu
	}
	for _, n := range c.nodes[1:] {
		u.standbys.cpu += usageOf(n.PID()).cpu
	}
	if len(c.nodes) > 1 {
		s, err := c.client.JS.Stream(c.ctx, "EDDA_LOG_bench_0")
		if err != nil {
			return u, err
		}
		u.log = s.CachedInfo().State.Bytes
	}
	u.counters, err = harness.Scrape(c.ctx, c.nodes[0].api+"/metrics")
	return u, err
}

// load sends n orders in a closed loop, and holds the effect server's book against what was sent.
func (c *clusterRun) load(phase string, n, concurrency int) (*Result, error) {
	before, err := c.read()
	if err != nil {
		return nil, err
	}
	l := c.client.Listen(concurrency)
	began := time.Now()
	prefix := c.name + strings.ReplaceAll(phase, " ", "")
	if _, err := c.send(l, prefix, n, 0, began); err != nil {
		return nil, err
	}
	if err := errors.Join(l.Await(c.ctx, n, nil), c.client.Stored(c.ctx), c.delivered(), c.check(prefix, n)); err != nil {
		return nil, fmt.Errorf("%s: %w", phase, err)
	}
	after, err := c.read()
	if err != nil {
		return nil, err
	}
	took, _, last := l.Took()
	costs := cost(n, before.reading, after.reading, 0, anonymous(c.nodes[0].PID()), nil)
	costs.NATS = each((after.nats.cpu-before.nats.cpu).Seconds()*1000, n)
	res := &Result{Workload: c.name, Phase: phase, Unit: "instances", Count: n, Concurrency: concurrency,
		Rate: perSecond(n, last.Sub(began)), Latency: summarize(slices.Collect(maps.Values(took))), Costs: costs}
	if c.cores > 0 {
		res.Notes = append(res.Notes, fmt.Sprintf("each Edda had %g cores", c.cores))
	}
	if len(c.nodes) > 1 {
		res.Notes = append(res.Notes, fmt.Sprintf("each standby %.3f CPU-s for 1,000; %.0f bytes of the log for one",
			each((after.standbys.cpu-before.standbys.cpu).Seconds()*1000, n)/float64(len(c.nodes)-1), each(float64(after.log-before.log), n)))
	}
	return res, nil
}

// delivered waits until nothing waits in the owner's outbox.
func (c *clusterRun) delivered() error {
	ctx, cancel := context.WithTimeout(c.ctx, settleFor)
	defer cancel()
	return harness.Poll(ctx, "the outbox to be empty", func() error {
		counters, err := harness.Scrape(ctx, c.nodes[0].api+"/metrics")
		if rows := counters.Sum("edda_outbox_items"); err == nil && rows != 0 {
			err = fmt.Errorf("%d rows wait", rows)
		}
		return err
	})
}

// hands moves the store to and fro while orders flow at a rate, which leaves room for those that came meanwhile. The
// latency is the longest time without an end of an order, of each move.
func (c *clusterRun) hands(phase string, rate float64) (*Result, error) {
	l := c.client.Listen(0)
	l.Repeats = true
	ctx, stop := context.WithCancel(c.ctx)
	defer stop()
	flowing := make(chan error, 1)
	prefix := c.name + strings.ReplaceAll(phase, " ", "")
	go func() {
		var err error
		for n := 0; err == nil && ctx.Err() == nil; n++ {
			key := fmt.Sprintf("%s-%07d", prefix, n)
			if err = l.Begin(ctx, key, time.Now()); err == nil {
				err = c.client.Publish("Order", key, "OrderPlaced", order(key, false))
			}
			_ = backoff.Wait(ctx, time.Duration(float64(time.Second)/rate))
		}
		flowing <- err
	}()
	var gaps []time.Duration
	began, machine := time.Now(), machineTime()
	for range c.Moves {
		gap, err := c.move(ctx, l)
		if err != nil {
			return nil, err
		}
		gaps = append(gaps, gap)
	}
	idle, ended, took := idleCores(began, machine), l.Count(), time.Since(began)
	stop()
	if err := <-flowing; err != nil {
		return nil, err
	}
	return &Result{Workload: c.name, Phase: phase, Unit: "moves", Count: len(gaps), Latency: summarize(gaps), Costs: &Costs{},
		Notes: []string{fmt.Sprintf("the latency is the longest time in which no order ended, of each move; %.0f orders ended a second; %.1f cores of the machine were idle, and with less than %.1f the latency is that of the machine",
			perSecond(ended, took), idle, leastIdle)}}, nil
}

// move has the owner hand over, and returns the longest time without an end of an order until some time later.
func (c *clusterRun) move(ctx context.Context, l *harness.Ends) (longest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	if err := harness.Poll(ctx, "the owner to hand over", func() error {
		resp, err := http.Post(c.nodes[0].api+"/cluster/move", "application/json", nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	c.nodes[0], c.nodes[1] = c.nodes[1], c.nodes[0]
	tick := time.NewTicker(gapEvery)
	defer tick.Stop()
	count, since, calm := l.Count(), time.Now(), time.Time{}
	for calm.IsZero() || time.Since(calm) < betweenMoves || time.Since(since) > steadyWithin {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return longest, fmt.Errorf("no order ended after a move: %w", ctx.Err())
		}
		now := l.Count()
		longest = max(longest, time.Since(since))
		if now == count {
			continue
		}
		if count, since = now, time.Now(); calm.IsZero() && c.owns(ctx) {
			calm = time.Now()
		}
	}
	return longest, nil
}

// owns asks the next owner whether it is.
func (c *clusterRun) owns(ctx context.Context) bool {
	var s struct {
		Owner string `json:"owner"`
	}
	return harness.GetJSON(ctx, c.nodes[0].api+"/cluster", &s) == nil && s.Owner == c.nodes[0].name
}
