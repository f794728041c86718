package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"edda/internal/harness"
)

const (
	// benchShards are the shards of W8.
	benchShards = 4
	// nodeCores is what a node of W8 may use unless Options.Cores says it, so that four of them, the NATS servers
	// and the client leave the machine idle for a part of the time. Then the rates are those of the nodes.
	nodeCores = 0.2
	// spreadWithin bounds the wait until each node owns its shards.
	spreadWithin = time.Minute
)

// sharded is W8. It measures a cluster of four shards on one, two and four nodes, each on NATS servers of its own.
func (r *run) sharded() error {
	first := 0.0
	for _, nodes := range []int{1, 2, 4} {
		rate, err := r.shardsOn(nodes, first)
		if err != nil {
			return err
		}
		if first == 0 {
			first = rate
		}
	}
	return nil
}

func (r *run) shardsOn(nodes int, first float64) (rate float64, err error) {
	c := &clusterRun{orderRun: orderRun{run: r, name: "W8"}, shards: benchShards, cores: cmp.Or(r.Cores, nodeCores)}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.openCluster(nodes); err != nil {
		return 0, err
	}
	if err := c.spread(); err != nil {
		return 0, err
	}
	limited, err := c.limit()
	if err != nil {
		return 0, err
	}
	what := fmt.Sprintf("%d nodes", nodes)
	if nodes == 1 {
		what = "1 node"
	}
	n := r.Instances // as many in all phases: what a store costs for an order grows until it flushes steadily
	if _, err := c.shardLoad(what+" warm", max(n/10, 10)); err != nil {
		return 0, err
	}
	res, err := c.shardLoad(what, n)
	if err != nil {
		return 0, err
	}
	if first > 0 {
		res.Notes = append(res.Notes, fmt.Sprintf("%.2f times the rate of one node", res.Rate/first))
	}
	if limited {
		res.Notes = append(res.Notes, fmt.Sprintf("each Edda had %g cores", c.cores))
	} else {
		res.Notes = append(res.Notes, fmt.Sprintf("the nodes were not limited to %g cores: this user may make no cgroup of CPU", c.cores))
	}
	r.add(res)
	return res.Rate, nil
}

// spread waits until the shards are spread evenly over the nodes.
func (c *clusterRun) spread() error {
	ctx, cancel := context.WithTimeout(c.ctx, spreadWithin)
	defer cancel()
	return harness.Poll(ctx, "the shards to be spread over the nodes", func() error {
		var s struct {
			Shards []struct {
				Owner string `json:"owner"`
			} `json:"shards"`
		}
		if err := harness.GetJSON(ctx, c.nodes[0].api+"/cluster", &s); err != nil {
			return err
		}
		owned := map[string]int{}
		for _, shard := range s.Shards {
			owned[shard.Owner]++
		}
		if len(s.Shards) != c.shards || len(owned) != len(c.nodes) || owned[""] > 0 {
			return fmt.Errorf("the nodes own %v", owned)
		}
		for _, n := range owned {
			if n != c.shards/len(c.nodes) {
				return fmt.Errorf("the nodes own %v", owned)
			}
		}
		return nil
	})
}

// limit gives each node its cores. It returns false where this user may make no cgroup, and an error if Options.Cores asks
// for one.
func (c *clusterRun) limit() (bool, error) {
	const period = 100_000
	quota := strconv.Itoa(int(c.cores * period))
	for _, n := range c.nodes {
		root, file, text := "/sys/fs/cgroup", "cpu.max", quota+" "+strconv.Itoa(period)
		if _, err := os.Stat("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); err == nil {
			root, file, text = "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota
		}
		dir := filepath.Join(root, fmt.Sprintf("edda-bench-%d-%s", os.Getpid(), n.name))
		if err := os.Mkdir(dir, 0o755); err != nil {
			if c.Cores > 0 {
				return false, errors.New("this user may make no cgroup of CPU: run without --cores")
			}
			return false, nil // a user without the right
		}
		c.Add(func() error { return os.Remove(dir) })
		if err := errors.Join(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644),
			os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(n.PID())), 0o644)); err != nil {
			return false, fmt.Errorf("limit a node to %g cores: %w", c.cores, err)
		}
		// The process leaves the group before it is removed.
		c.Add(func() error {
			return os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(n.PID())), 0o644)
		})
	}
	return true, nil
}

// shardLoad sends n orders in a closed loop.
func (c *clusterRun) shardLoad(phase string, n int) (*Result, error) {
	cpu := func() (nodes []float64, nats float64) {
		for _, node := range c.nodes {
			nodes = append(nodes, usageOf(node.PID()).cpu.Seconds())
		}
		for name := range c.servers.Addrs() {
			nats += usageOf(c.servers.Process(name).PID()).cpu.Seconds()
		}
		return nodes, nats
	}
	nodesBefore, natsBefore := cpu()
	machine := machineTime()
	l := c.client.Listen(atOnce)
	began := time.Now()
	prefix := c.name + strings.ReplaceAll(phase, " ", "")
	if _, err := c.send(l, prefix, n, 0, began); err != nil {
		return nil, err
	}
	if err := errors.Join(l.Await(c.ctx, n, nil), c.client.Stored(c.ctx), c.check(prefix, n)); err != nil {
		return nil, err
	}
	nodesAfter, natsAfter := cpu()
	idle := idleCores(began, machine)
	took, _, last := l.Took()
	var each []string
	sum := 0.0
	for i := range nodesAfter {
		used := (nodesAfter[i] - nodesBefore[i]) * 1000 / float64(n)
		sum += used
		each = append(each, fmt.Sprintf("%.2f", used))
	}
	return &Result{Workload: c.name, Phase: phase, Unit: "instances", Count: n, Concurrency: atOnce, Rate: perSecond(n, last.Sub(began)),
		Latency: summarize(slices.Collect(maps.Values(took))), Costs: &Costs{Engine: sum, NATS: (natsAfter - natsBefore) * 1000 / float64(n)},
		Notes: []string{fmt.Sprintf("each node took of the CPU-s for 1,000: %s; %.1f cores of the machine were idle, and with less than %.1f the rate is that of the machine",
			strings.Join(each, ", "), idle, leastIdle)},
	}, nil
}
