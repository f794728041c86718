//go:build !race

package systemtest

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"edda/cluster"
	"edda/internal/testkit"
	"edda/server"
)

// clusterFault is something that happens to a cluster under load.
type clusterFault struct {
	name  string
	short bool // also in the short round
	do    func(*clusterRun, *strike)
}

// clusterFaults are dealt like cards: each once before one comes again.
var clusterFaults = []clusterFault{
	{"the owner is killed", false, func(c *clusterRun, s *strike) { c.killNodes(s, c.owner()) }},
	{"the owner is killed again", false, func(c *clusterRun, s *strike) { c.killNodes(s, c.owner()) }},
	{"a standby is killed", false, func(c *clusterRun, s *strike) { c.killNodes(s, c.standby()) }},
	{"the owner and a standby are killed", true, (*clusterRun).killTwo},
	{"the standbys are killed", false, func(c *clusterRun, s *strike) { c.killNodes(s, c.standbys(c.owner())...) }},
	{"the owner is killed and loses its disk", true, (*clusterRun).killAndWipe},
	{"a standby is killed and loses its disk", false, func(c *clusterRun, s *strike) {
		n := c.standby()
		c.killNodes(s, n)
		c.wipe(n)
	}},
	{"the owner is frozen for 1 s", false, func(c *clusterRun, s *strike) { c.freezeOwner(s, time.Second) }},
	{"the owner is frozen for 4 s", true, func(c *clusterRun, s *strike) { c.freezeOwner(s, 4*time.Second) }},
	{"the owner is frozen for 20 s", false, func(c *clusterRun, s *strike) { c.freezeOwner(s, 20*time.Second) }},
	{"the owner is stopped in order", true, (*clusterRun).stopOwner},
	{"the owner moves the store to another node", true, (*clusterRun).moveStore},
	{"the NATS server that leads the log is killed", true, func(c *clusterRun, s *strike) { c.killServer(s, c.leader()) }},
	{"the NATS server that leads the log is frozen", false, func(c *clusterRun, s *strike) { c.freezeServer(s, c.leader()) }},
	{"a NATS server is killed", false, func(c *clusterRun, s *strike) { c.killServer(s, c.anyServer()) }},
	{"a NATS server is frozen", false, func(c *clusterRun, s *strike) { c.freezeServer(s, c.anyServer()) }},
}

// clusterPlan is the same for the same seed. Without a number it is that of the short round.
func clusterPlan(seed uint64, n int, only string) (plan []clusterFault) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	deck := slices.DeleteFunc(slices.Clone(clusterFaults), func(f clusterFault) bool { return !strings.Contains(f.name, only) })
	if n == 0 {
		deck = slices.DeleteFunc(deck, func(f clusterFault) bool { return !f.short })
		n = len(deck)
	}
	for len(deck) > 0 && len(plan) < n {
		rnd.Shuffle(len(deck), func(a, b int) { deck[a], deck[b] = deck[b], deck[a] })
		plan = append(plan, deck...)
	}
	return plan[:min(n, len(plan))]
}

// The kinds of strikes, by what they do to ownership.
const (
	struckDown    = "killed"
	struckFrozen  = "frozen"
	struckStopped = "stopped"
	struckNATS    = "NATS"
)

// strike is a fault as it happened.
type strike struct {
	name     string
	kind     string
	shard    *clusterShard // whose owner or log was looked for
	nodes    []string
	owned    bool          // one of the nodes was the owner
	heirs    int           // other nodes that could take over
	from, to time.Time     // from its beginning to its end
	over     time.Time     // then the cluster had committed again
	back     time.Duration // from a thaw until the node had its place again
}

// explains tells whether the strike may take a node its ownership.
func (s strike) explains(node string) bool {
	return slices.Contains(s.nodes, node) && !(s.kind == struckFrozen && s.to.Sub(s.from) < cluster.LapseAfter)
}

// clusterCalm is how long orders flow between a fault's end and the next fault.
const clusterCalm = 1500 * time.Millisecond

// strike lets a fault happen, and waits until the cluster commits again.
func (c *clusterRun) strike(f clusterFault) {
	c.t.Helper()
	c.at = c.shards[c.rnd.IntN(len(c.shards))]
	s := strike{name: f.name, shard: c.at}
	f.do(c, &s)
	if s.to.IsZero() {
		s.to = time.Now()
	}
	from := map[*clusterShard]uint64{}
	c.each(func() bool {
		last, _ := c.last()
		from[c.at] = last.Seq
		return true
	})
	c.wait("each shard commits after "+f.name, func() bool {
		return c.each(func() bool {
			last, ok := c.last()
			return ok && last.Seq > from[c.at] && last.Message.Kind == cluster.Entry && c.lookForOwner() != nil
		})
	})
	s.over = time.Now()
	c.struck = append(c.struck, s)
	c.t.Logf("%s (%v, shard %d): it commits again after %v", s.name, s.nodes, s.shard.index, s.over.Sub(s.from).Round(time.Millisecond))
	c.pass(clusterCalm)
}

// begin notes whom a fault hits.
func (c *clusterRun) begin(s *strike, kind string, nodes ...*clusterNode) {
	o := c.owner()
	s.kind, s.owned = kind, slices.Contains(nodes, o)
	for _, n := range c.following() {
		s.heirs += b2i(n != o && !slices.Contains(nodes, n))
	}
	for _, n := range nodes {
		s.nodes = append(s.nodes, n.name)
	}
	s.from = time.Now()
}

// killNodes kills nodes at once.
func (c *clusterRun) killNodes(s *strike, nodes ...*clusterNode) {
	c.t.Helper()
	c.begin(s, struckDown, nodes...)
	for _, n := range nodes {
		c.signalNode(n, syscall.SIGKILL)
	}
	for _, n := range nodes {
		n.Kill() // waits for the end
		c.downNode(n)
	}
}

func (c *clusterRun) killTwo(s *strike) {
	c.t.Helper()
	n := c.standby()
	c.killNodes(s, c.owner(), n)
}

// killAndWipe kills the owner and takes its disk away. All that was acknowledged is in the log, but the log begins
// behind the first store of its founder, so a copy must be there.
func (c *clusterRun) killAndWipe(s *strike) {
	c.t.Helper()
	o := c.ownerWithHeir()
	if len(c.shards) > 1 { // it loses its copy of each
		c.wait("every node follows", c.allFollow)
		o = c.owner()
	}
	c.killNodes(s, o)
	c.wipe(o)
}

func (c *clusterRun) freezeOwner(s *strike, d time.Duration) {
	c.t.Helper()
	o := c.ownerWithHeir()
	c.begin(s, struckFrozen, o)
	c.signalNode(o, syscall.SIGSTOP)
	o.frozen = true
	c.pass(d)
	c.signalNode(o, syscall.SIGCONT)
	o.frozen, s.to = false, time.Now()
	c.wait("the frozen owner owns the store or follows the log", func() bool { return slices.Contains(c.following(), o) })
	s.back = time.Since(s.to)
}

// stopOwner asks the owner to stop: it must hand over, and end well.
func (c *clusterRun) stopOwner(s *strike) {
	c.t.Helper()
	o := c.ownerWithHeir()
	c.begin(s, struckStopped, o)
	c.signalNode(o, syscall.SIGTERM)
	o.up, o.due = false, time.Now().Add(time.Hour)
	c.wait("the owner stops", func() bool { return testkit.Closed(o.Ended()) })
	if code := o.Cmd.ProcessState.ExitCode(); code != 0 {
		c.t.Errorf("%s was asked to stop and ended with %d: %s", o.name, code, o.Tail())
	}
	c.downNode(o)
}

// moveStore has the owner hand over and go on as a standby, by a call to any node.
func (c *clusterRun) moveStore(s *strike) {
	c.t.Helper()
	c.wait("every node follows", c.allFollow)
	o := c.owner()
	c.begin(s, struckStopped, o)
	n := c.nodes[c.rnd.IntN(len(c.nodes))]
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://"+n.addr+"/cluster/move", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("x-edda-by", "the torture")
	req.Header.Set("x-edda-why", "torture")
	if len(c.shards) > 1 {
		req.Header.Set(server.ShardHeader, strconv.Itoa(c.at.index))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s does not move the store of %s: %s", n.name, o.name, resp.Status)
	}
	c.wait("another node owns the store", func() bool {
		next := c.lookForOwner()
		return next != nil && next != o
	})
}

func (c *clusterRun) leader() string { return c.servers.Leader(c.flow, c.at.stream) }

func (c *clusterRun) anyServer() string {
	return []string{"n1", "n2", "n3"}[c.rnd.IntN(3)]
}

func (c *clusterRun) killServer(s *strike, name string) {
	c.t.Helper()
	c.begin(s, struckNATS)
	c.servers.Kill(name)
	c.pass(c.upTo(2 * downMost))
	c.servers.Restart(name)
	c.serversAgree()
}

func (c *clusterRun) freezeServer(s *strike, name string) {
	c.t.Helper()
	c.begin(s, struckNATS)
	c.servers.Freeze(name)
	c.pass(c.upTo(2 * downMost))
	c.servers.Thaw(name)
	c.serversAgree()
}

// serversAgree waits until every stream has all its replicas: only then may another server be lost.
func (c *clusterRun) serversAgree() {
	c.t.Helper()
	var names []string
	c.wait("the streams are listed", func() bool {
		list := c.flow.StreamNames(c.t.Context())
		names = nil
		for name := range list.Name() {
			names = append(names, name)
		}
		return list.Err() == nil
	})
	for _, name := range names {
		c.servers.AwaitReplicas(c.flow, name)
	}
}
