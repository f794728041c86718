//go:build !race

package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/cluster"
	"edda/internal/harness"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/saga"
	"edda/server"
	"edda/stream/clusterlog"
)

const (
	// clusterRound is the time of a round of lots. Its messages are spread over it, so that a pause in the log is one of
	// the cluster.
	clusterRound     = time.Second
	messagesOfARound = 50
	// clusterWithin bounds what comes after a fault: elections of several streams take 4 to 9 s each, a conviction
	// 3 s, and a machine that is busy with seven processes and other tests its time.
	clusterWithin = 90 * time.Second
	// spreadCalm is longer than a node waits between two looks at whether the shards are spread.
	spreadCalm = 12 * time.Second
	// downMost is how long a killed process stays away.
	downMost = 6 * time.Second
)

// TestClusterLosesAndDoublesNothing runs a cluster of three nodes under load while its nodes and its NATS servers are
// killed, frozen and stopped. Then it compares the records, the copies and the log.
func TestClusterLosesAndDoublesNothing(t *testing.T) {
	begin := time.Now()
	c := newClusterRun(t)
	t.Logf("the cluster works after %v", time.Since(begin).Round(time.Millisecond))
	kills := envInt(t, "EDDA_CRASH_KILLS", 0)
	plan := clusterPlan(c.seed, kills, os.Getenv("EDDA_CRASH_FAULT"))
	if len(plan) == 0 {
		t.Fatal("no fault has that name")
	}
	for i, f := range plan {
		c.strike(f)
		if i%10 == 9 {
			t.Logf("%d faults in %v", i+1, time.Since(begin).Round(time.Second))
		}
	}
	c.settleAndJudgeAll()
	c.reportCluster(begin)
}

// clusterRun is one run: three NATS servers, three nodes, and orders that flow.
type clusterRun struct {
	*torture
	servers *natscluster.Cluster
	flow    jetstream.JetStream // on a connection that goes to the next server
	shards  []*clusterShard
	at      *clusterShard // the one that is looked at, or is to lose its owner
	rnd     *rand.Rand
	nodes   []*clusterNode
	load    *producer
	calmed  chan struct{} // closed when no more orders are to flow
	flowed  chan struct{} // closed when the last was released
	struck  []strike
	wiped   int
}

// clusterShard is a shard of the cluster "shop".
type clusterShard struct {
	index  int
	stream string          // of its log
	beats  string          // the bucket of its nodes
	folder string          // of its store, in that of a node
	log    *clusterlog.Log // nil before its first owner
	heads  []logged        // of the log's messages, once the cluster has stopped
}

// clusterShards are the shards of the cluster; one has all keys.
func clusterShards(n int) (all []*clusterShard) {
	for i := range n {
		s := &clusterShard{index: i, stream: "EDDA_LOG_shop_" + strconv.Itoa(i), beats: "EDDA_CLUSTER_shop", folder: "store"}
		if n > 1 {
			s.folder = filepath.Join("shard-"+strconv.Itoa(i), "store")
		}
		if i > 0 {
			s.beats = fmt.Sprintf("EDDA_SHARD_%d_shop", i)
		}
		all = append(all, s)
	}
	return all
}

// each looks at each shard in turn, and then at the one before again.
func (c *clusterRun) each(look func() bool) bool {
	before := c.at
	defer func() { c.at = before }()
	for _, c.at = range c.shards {
		if !look() {
			return false
		}
	}
	return true
}

// clusterNode is one node: its folder, and the process if there is one.
type clusterNode struct {
	*child
	name, data string
	up, frozen bool
	due        time.Time // when it is started again
	started    time.Time
}

func newClusterRun(t *testing.T) *clusterRun {
	beside(t)
	c := &clusterRun{torture: prepareTorture(t, crashSeed(t), &tortured, tortureManifest), calmed: make(chan struct{}), flowed: make(chan struct{})}
	c.rnd = rand.New(rand.NewPCG(c.seed, 4))
	c.shards = clusterShards(envInt(t, "EDDA_CRASH_SHARDS", 1))
	if c.at = c.shards[0]; len(c.shards) > 1 {
		c.of = len(c.shards)
	}
	c.servers = natscluster.Start(t)
	c.natsURL, c.streams = c.servers.URLs(), c.servers.URLs()
	c.flow = c.servers.Connect(c.servers.URLs())
	_, err := c.flow.CreateStream(t.Context(), jetstream.StreamConfig{Name: shopStream, Subjects: shopSubjects, Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.nodes = append(c.nodes, c.node(fmt.Sprintf("n%d", i+1)))
	}
	for _, n := range c.nodes {
		c.startNode(n)
	}
	c.wait("each shard has an owner", func() bool { return c.each(func() bool { return c.lookForOwner() != nil }) })
	ctx, cancel := context.WithTimeout(t.Context(), clusterWithin)
	defer cancel()
	for _, s := range c.shards {
		if s.log, err = clusterlog.Open(ctx, c.flow, clusterlog.Options{Shard: strings.TrimPrefix(s.stream, "EDDA_LOG_")}); err != nil {
			t.Fatal(err)
		}
	}
	c.wait("every node follows", c.allFollow)
	c.load = produceTo(t, c.flow, rand.New(rand.NewPCG(c.seed, 2)), clusterRound/messagesOfARound, clusterWithin)
	go c.pump()
	return c
}

// pump releases rounds of orders until they are calmed.
func (c *clusterRun) pump() {
	defer close(c.flowed)
	tick := time.NewTicker(clusterRound)
	defer tick.Stop()
	for {
		select {
		case c.load.released <- ordersPerKill:
		case <-c.calmed:
			return
		}
		select {
		case <-tick.C:
		case <-c.calmed:
			return
		}
	}
}

// node prepares a node. Its log file outlives its processes.
func (c *clusterRun) node(name string) *clusterNode {
	n := &clusterNode{name: name, data: filepath.Join(c.dir, name)}
	addr := freeAddr(c.t)
	n.child = &child{t: c.t, out: &screen{}, err: &screen{}, addr: addr, nats: c.streams, tenant: "default"}
	n.Process = harness.New(name, filepath.Join(c.dir, name+".log"), func() *exec.Cmd {
		cmd := exec.Command(c.build.get(c.t), "run", "--config", c.config, "--role", "saga,effect", "--cluster", "shop", "--node", name,
			"--nats-url", c.natsURL, "--addr", addr, "--data", n.data, "--shards", strconv.Itoa(len(c.shards)), c.manifest)
		cmd.Env = harness.Environ("EDDA_LOG_LEVEL=info")
		return cmd
	})
	c.t.Cleanup(func() {
		n.Kill()
		if c.t.Failed() {
			c.t.Logf("%s said at the end: %s", name, n.Tail())
		}
	})
	return n
}

func (c *clusterRun) startNode(n *clusterNode) {
	c.t.Helper()
	n.started = time.Now()
	if err := n.Start(); err != nil {
		c.t.Fatal(err)
	}
	n.up, n.due = true, time.Time{}
}

// downNode notes that a node has no process, and when it gets the next one.
func (c *clusterRun) downNode(n *clusterNode) {
	n.up, n.frozen = false, false
	n.due = time.Now().Add(c.upTo(downMost))
}

func (c *clusterRun) upTo(most time.Duration) time.Duration {
	return time.Duration(c.rnd.Int64N(int64(most)))
}

// tick starts the nodes that are due. A node that ends by itself is a failure.
func (c *clusterRun) tick() {
	c.t.Helper()
	for _, n := range c.nodes {
		if !n.up {
			if time.Now().After(n.due) {
				c.startNode(n)
			}
			continue
		}
		if testkit.Closed(n.Ended()) {
			c.t.Fatalf("%s ended by itself: %v\n%s", n.name, n.Cmd.ProcessState, n.Tail())
		}
	}
}

// wait looks until it holds, and lets nodes come back meanwhile.
func (c *clusterRun) wait(what string, holds func() bool) {
	c.t.Helper()
	untilIn(c.t, clusterWithin, what, func() bool {
		c.tick()
		return holds()
	})
}

// pass lets time pass.
func (c *clusterRun) pass(d time.Duration) {
	c.t.Helper()
	end := time.Now().Add(d)
	c.wait("time passes", func() bool { return time.Now().After(end) })
}

// last is the last message of the shard's log; false where nobody answers.
func (c *clusterRun) last() (cluster.Last, bool) {
	if c.at.log == nil {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		s, err := c.flow.Stream(ctx, c.at.stream)
		if err != nil {
			return cluster.Last{}, false
		}
		m, err := s.GetLastMsgForSubject(ctx, ">")
		if err != nil {
			return cluster.Last{}, false
		}
		return cluster.Last{Seq: m.Sequence, Message: cluster.Message{Record: cluster.Record{
			Kind: cluster.Kind(m.Header.Get("Edda-Kind")), Node: m.Header.Get("Edda-Node")}}}, true
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	last, err := c.at.log.End(ctx)
	return last, err == nil
}

// lookForOwner is the node whose record is the last of the log, if it lives.
func (c *clusterRun) lookForOwner() *clusterNode {
	last, ok := c.last()
	if !ok || last.Seq == 0 || last.Message.Kind == cluster.Seal {
		return nil
	}
	i := slices.IndexFunc(c.nodes, func(n *clusterNode) bool { return n.name == cluster.NodeOf(last.Message.Node) })
	if i < 0 {
		c.t.Fatalf("a stranger writes to the log: %s", last.Message.Node)
	}
	if n := c.nodes[i]; n.up && !n.frozen {
		return n
	}
	return nil
}

// owner waits for one.
func (c *clusterRun) owner() (o *clusterNode) {
	c.t.Helper()
	c.wait("the cluster has an owner", func() bool {
		o = c.lookForOwner()
		return o != nil
	})
	return o
}

// ownerWithHeir waits for an owner and another node that could take over.
func (c *clusterRun) ownerWithHeir() (o *clusterNode) {
	c.t.Helper()
	c.wait("the cluster has an owner and a copy", func() bool {
		o = c.lookForOwner()
		return o != nil && slices.ContainsFunc(c.following(), func(n *clusterNode) bool { return n != o })
	})
	return o
}

// standbys are the other nodes that live.
func (c *clusterRun) standbys(o *clusterNode) (out []*clusterNode) {
	for _, n := range c.nodes {
		if n != o && n.up {
			out = append(out, n)
		}
	}
	return out
}

// standby waits for one, and chooses.
func (c *clusterRun) standby() *clusterNode {
	c.t.Helper()
	var all []*clusterNode
	c.wait("the cluster has a standby", func() bool {
		all = c.standbys(c.owner())
		return len(all) > 0
	})
	return all[c.rnd.IntN(len(all))]
}

// following are the owner and the nodes that have the records of the log, as the beats of their processes say.
func (c *clusterRun) following() (out []*clusterNode) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	beats, err := c.flow.KeyValue(ctx, c.at.beats)
	if err != nil {
		return nil
	}
	o := c.lookForOwner() // a node that was replaced may not know it yet
	for _, n := range c.nodes {
		var b cluster.Beat
		e, err := beats.Get(ctx, "node."+n.name)
		if err == nil && n.up && json.Unmarshal(e.Value(), &b) == nil && b.Since.After(n.started) && (n == o || b.Following) {
			out = append(out, n)
		}
	}
	return out
}

// allFollow tells whether each node has a copy of each shard.
func (c *clusterRun) allFollow() bool {
	return c.each(func() bool { return len(c.following()) == len(c.nodes) })
}

// awaitSpread waits until each shard has had the same owner for some time, so that none moves any more.
func (c *clusterRun) awaitSpread() {
	c.t.Helper()
	if len(c.shards) == 1 {
		return
	}
	owners, since := map[*clusterShard]*clusterNode{}, time.Now()
	c.wait("the shards move no more", func() bool {
		c.each(func() bool {
			if o := c.lookForOwner(); o == nil || owners[c.at] != o {
				owners[c.at], since = o, time.Now()
			}
			return true
		})
		return time.Since(since) > spreadCalm
	})
}

// allAgree compares what the nodes say about the cluster when nothing goes on any more.
func (c *clusterRun) allAgree(o *clusterNode) {
	c.t.Helper()
	for _, n := range c.nodes {
		var said server.ClusterStatus
		c.wait("the nodes agree", func() bool {
			n.get("/cluster", &said)
			of := server.ClusterShard{Owner: said.Owner, Nodes: said.Nodes}
			if len(c.shards) > 1 {
				if len(said.Shards) != len(c.shards) {
					return false
				}
				of = said.Shards[c.at.index]
			}
			behind := slices.ContainsFunc(of.Nodes, func(other server.ClusterNode) bool {
				return other.State != server.NodeAlive || other.Role == server.NodeJoining || other.Lag > 0
			})
			return of.Owner == o.name && len(of.Nodes) == len(c.nodes) && !behind
		})
		if said.Node != n.name || said.Problem != "" {
			c.t.Errorf("%s says of the cluster: %+v", n.name, said)
		}
	}
}

// settleAndJudgeAll lets everything come to its end, stops the cluster, and compares all that it left.
func (c *clusterRun) settleAndJudgeAll() {
	c.t.Helper()
	close(c.calmed)
	<-c.flowed
	c.load.finish()
	begin := time.Now()
	c.wait("every node follows", c.allFollow)
	c.awaitSpread()
	o := c.owner()
	c.child, c.data = o.child, o.data
	c.operators.url = "http://" + c.standbys(o)[0].addr // which forwards to the owner
	c.settle(c.load.sent)
	c.t.Logf("everything had ended %v after the last event was sent", time.Since(begin).Round(time.Millisecond))
	c.wait("no outbox has rows", func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *clusterNode) bool { return n.metric("edda_outbox_items") > 0 })
	})
	c.operators.shards = len(c.shards)
	if longRound() {
		c.atRest()
	}
	c.each(func() bool {
		c.allAgree(c.owner())
		return true
	})
	for _, n := range append(c.standbys(o), o) {
		if code := n.terminate(); code != 0 {
			c.t.Errorf("%s: exit code %d: %s", n.name, code, n.Tail())
		}
		n.up, n.due = false, time.Now().Add(time.Hour)
	}
	var stores []string
	c.each(func() bool {
		c.judgeLog()
		c.judgeCopies()
		stores = append(stores, filepath.Join(c.data, c.at.folder))
		return true
	})
	c.ledger = readBooks(c.t, stores[0], c.streams, stores[1:]...)
	c.ledger.shop = c.shop
	c.ledger.judge(c.t, c.load.sent, false)
	set := sagaSet(c.t, tortureSagas)
	c.ledger.model(c.t, func(edda.Key) *saga.Set { return set })
	c.ledger.same(c.t, c.calm(c.load.sent, c.streams), c.load.sent)
}

// signalNode signals a node's process.
func (c *clusterRun) signalNode(n *clusterNode, s syscall.Signal) {
	c.t.Helper()
	if err := n.Cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// wipe takes a node its folder, which its next process must get from the owner.
func (c *clusterRun) wipe(n *clusterNode) {
	c.t.Helper()
	if err := os.RemoveAll(n.data); err != nil {
		c.t.Fatal(err)
	}
	c.wiped++
}

// asides counts the copies that nodes have set aside, because they had parted from the log.
func (c *clusterRun) asides() (n int) {
	c.each(func() bool {
		for _, node := range c.nodes {
			entries, err := os.ReadDir(filepath.Dir(filepath.Join(node.data, c.at.folder)))
			if err != nil {
				c.t.Fatal(err)
			}
			for _, e := range entries {
				n += b2i(e.IsDir() && strings.HasPrefix(e.Name(), "store") && e.Name() != "store")
			}
		}
		return true
	})
	return n
}
