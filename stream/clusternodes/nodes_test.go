package clusternodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
)

func TestMain(m *testing.M) { natscluster.Main(m) }

// within bounds what a test waits for. An election of NATS takes 4 to 9 s.
const within = 40 * time.Second

const testCluster = "shop"

// TestNodes shares one cluster among its tests, because the start takes an election.
func TestNodes(t *testing.T) {
	c := natscluster.Start(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *natscluster.Cluster)
	}{
		{"a node stops to beat", testDeath},
		{"a node leaves", testLeave},
		{"the fence", testFence},
		{"what is agreed on", testAgreed},
		{"where the shards begin", testBegin},
		{"two processes of one name", testUnique},
		{"two processes of one name that start at once", testReplaced},
		{"a fence that cannot be opened", testOutage},
		{"unfit", testUnfit},
		{"the leader of the bucket is frozen", testFrozenLeader},
		{"the leader of the bucket is killed", testKilledLeader},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

// member is a node that beats.
type member struct {
	*Nodes
	t    *testing.T
	id   string
	js   jetstream.JetStream
	logs *observer.ObservedLogs
	left atomic.Pointer[Agreed] // what it has heard of the end of the cluster
	stop func()

	ended chan struct{} // closed after Run
	why   error         // of its end; read it then
}

// join starts a node that is connected to some servers.
func join(t *testing.T, c *natscluster.Cluster, urls, id string) *member {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	m := &member{t: t, id: id, js: c.Connect(urls), logs: logs}
	var err error
	testkit.Until(t, within, "the bucket is open", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		beat := func() cluster.Beat { return cluster.Beat{Run: "of " + id} }
		m.Nodes, err = Open(ctx, m.js, Options{Cluster: testCluster, ID: id, Log: zap.New(core), Beat: beat, Left: func(a Agreed) { m.left.Store(&a) }})
		return err == nil
	})
	m.run()
	return m
}

// run beats until stop is called, or the test ends.
func (m *member) run() {
	ctx, cancel := context.WithCancel(m.t.Context())
	m.ended = make(chan struct{})
	go func() {
		defer close(m.ended)
		m.why = m.Run(ctx)
	}()
	m.stop = func() { cancel(); <-m.ended }
	m.t.Cleanup(m.stop)
}

// convictions are how often the node has convicted another one.
func (m *member) convictions() int { return m.logs.FilterMessage("a node is dead").Len() }

// of returns what the node knows of another one.
func (m *member) of(id string) cluster.Member {
	for _, n := range m.Others() {
		if n.ID == id {
			return n
		}
	}
	return cluster.Member{}
}

// members starts some nodes, and returns when each has heard the others.
func members(t *testing.T, c *natscluster.Cluster, urls string, ids ...string) (all []*member) {
	t.Helper()
	for _, id := range ids {
		all = append(all, join(t, c, urls, id))
	}
	heard(t, all)
	return all
}

// heard waits until each node hears a beat of each other one that is sent from now on.
func heard(t *testing.T, all []*member) {
	t.Helper()
	since := map[string]uint64{}
	for _, m := range all {
		for _, o := range all {
			since[o.id] = max(since[o.id], m.of(o.id).Revision)
		}
	}
	for _, m := range all {
		for _, o := range all {
			if m != o {
				testkit.Until(t, within, m.id+" hears "+o.id, func() bool { return m.of(o.id).Revision > since[o.id] })
			}
		}
	}
}

// leave ends the nodes of a test, so that the next one has none of them.
func leave(t *testing.T, all []*member) {
	t.Helper()
	for _, m := range all {
		m.stop()
		testkit.Must(t, m.Leave(t.Context()))
	}
}

func testDeath(t *testing.T, c *natscluster.Cluster) {
	all := members(t, c, c.URLs(), "a", "b", "c")
	if value := all[1].of("a").Beat.Run; value != "of a" {
		t.Errorf("the value of a is %q", value)
	}
	all[0].stop()
	died := time.Now()
	for _, m := range all[1:] {
		testkit.Until(t, within, m.id+" convicts a", func() bool { return m.of("a").Dead })
		if took := time.Since(died); took < cluster.LapseAfter-cluster.BeatEvery || took > 3500*time.Millisecond {
			t.Errorf("%s convicts after %s", m.id, took)
		}
	}
	heard(t, all[1:])
	all[0].run()
	for _, m := range all[1:] {
		testkit.Until(t, within, "a is back", func() bool { return !m.of("a").Dead })
		if n := m.convictions(); n != 1 {
			t.Errorf("%s has convicted %d nodes", m.id, n)
		}
	}
	leave(t, all)
}

// testLeave: a node that has left is nobody's concern, unless the log still names it as its owner. Then nobody would ever
// take the log over if it was not dead.
func testLeave(t *testing.T, c *natscluster.Cluster) {
	all := members(t, c, c.URLs(), "a", "b")
	leave(t, all[:1])
	testkit.Until(t, time.Second, "a is gone", func() bool { return all[1].of("a").ID == "" })
	all[1].Expect("a")
	testkit.Until(t, within, "an owner that has left is dead", func() bool { return all[1].of("a").Dead })
	if all[1].Expect(""); all[1].of("a").ID != "" {
		t.Error("a node that has left is still there when another one owns the log")
	}
	leave(t, all[1:])
}

// testFence: it opens by a proof, stays open by beats, and closes without them before anybody convicts the node.
func testFence(t *testing.T, c *natscluster.Cluster) {
	other := join(t, c, c.URLs(), "other")
	owner := join(t, c, c.URLs(), "owner")
	if err := owner.Fence().Pass(t.Context()); !errors.Is(err, ErrNotOwner) {
		t.Errorf("a node that owns nothing passes: %v", err)
	}
	var proofs atomic.Int32
	refused := errors.New("another one has it")
	var refuse atomic.Bool
	owner.o.Confirm = func(context.Context) error {
		proofs.Add(1)
		if refuse.Load() {
			return refused
		}
		return nil
	}
	testkit.Must(t, owner.Fence().Pass(t.Context()))
	for began := time.Now(); time.Since(began) < 2*cluster.LapseAfter; {
		heard(t, []*member{other, owner})
		if !owner.Fence().Open() {
			t.Fatal("the fence closes although the node beats")
		}
	}
	owner.stop()
	stopped := time.Now()
	testkit.Until(t, within, "the fence closes", func() bool { return !owner.Fence().Open() })
	if took := time.Since(stopped); took >= cluster.DeadAfter || other.of("owner").Dead {
		t.Errorf("the fence closes after %s; the other node has convicted: %v", took, other.of("owner").Dead)
	}
	if n := proofs.Load(); n != 1 {
		t.Errorf("%d proofs, want one", n)
	}
	owner.run()
	heard(t, []*member{other, owner})
	if owner.Fence().Open() {
		t.Error("a beat alone opens the fence after a lapse")
	}
	refuse.Store(true)
	if err := owner.Fence().Pass(t.Context()); !errors.Is(err, refused) {
		t.Errorf("it passes after another one has taken over: %v", err)
	}
	refuse.Store(false)
	testkit.Must(t, owner.Fence().Pass(t.Context()))
	leave(t, []*member{other, owner})
	if owner.Fence().Open() {
		t.Error("the fence of a node that has left is open")
	}
}

func testUnfit(t *testing.T, c *natscluster.Cluster) {
	js := c.Connect(c.URLs())
	_, err := Open(t.Context(), js, Options{Cluster: testCluster, ID: "a.b"})
	testkit.WantError(t, err, edda.Permanent, `node "a.b"`)
	_, err = Open(t.Context(), js, Options{Cluster: testCluster, ID: "a", Replicas: 5})
	testkit.WantError(t, err, edda.Permanent, "3 of the 5 replicas", "--replicas=5")
}

// testFrozenLeader: the nodes are connected to the other servers. Nobody's beats are stored during the election.
func testFrozenLeader(t *testing.T, c *natscluster.Cluster) {
	leader := c.Leader(c.Connect(c.URLs()), "KV_"+bucketOf+testCluster)
	all := members(t, c, c.Others(leader), "a", "b", "c")
	c.Freeze(leader)
	defer c.Thaw(leader)
	survives(t, all)
	c.Thaw(leader)
	survives(t, all)
	leave(t, all)
}

func testKilledLeader(t *testing.T, c *natscluster.Cluster) {
	leader := c.Leader(c.Connect(c.URLs()), "KV_"+bucketOf+testCluster)
	all := members(t, c, c.URLs(), "a", "b", "c")
	c.Kill(leader)
	survives(t, all)
	c.Restart(leader)
	survives(t, all)
	leave(t, all)
}

// survives waits until all have heard all for longer than a death takes, and nobody has been convicted.
func survives(t *testing.T, all []*member) {
	t.Helper()
	for began := time.Now(); time.Since(began) < cluster.DeadAfter+2*time.Second; {
		heard(t, all)
	}
	for _, m := range all {
		if n := m.convictions(); n > 0 {
			t.Errorf("%s has convicted %d living nodes: %+v", m.id, n, m.logs.FilterMessage("a node is dead").All())
		}
	}
}

// testAgreed: of two nodes that found a cluster one does, and both know what it said.
func testAgreed(t *testing.T, c *natscluster.Cluster) {
	all := members(t, c, c.URLs(), "f", "g")
	if _, known, err := all[0].Agreed(t.Context()); known || err != nil {
		t.Fatalf("a cluster that nobody has founded: known %v, %v", known, err)
	}
	said := make(chan Agreed, len(all))
	for _, m := range all {
		go func() {
			a, err := m.Found(t.Context(), Agreed{Store: "store of " + m.id, Founder: m.id, Level: 1})
			if err != nil {
				t.Error(err)
			}
			said <- a
		}()
	}
	first, second := <-said, <-said
	if first != second || first.Founder == "" {
		t.Fatalf("two nodes agree on %+v and %+v", first, second)
	}
	testkit.Must(t, all[0].Raise(t.Context(), 2))
	testkit.Must(t, all[1].Raise(t.Context(), 1)) // a level does not fall
	if a, known, err := all[1].Agreed(t.Context()); !known || err != nil || a.Level != 2 || a.Store != first.Store {
		t.Errorf("agreed on %+v, %v, %v", a, known, err)
	}
	late := join(t, c, c.URLs(), "h")
	all = append(all, late)
	testkit.Until(t, within, "a node that did not ask hears the level", func() bool { return late.Level() == 2 })
	first.Left = "f"
	testkit.Must(t, all[0].FoundAgain(t.Context(), first))
	all = append(all, join(t, c, c.URLs(), "i"))
	for _, m := range all {
		testkit.Until(t, within, m.id+" hears that f has taken the store out", func() bool { a := m.left.Load(); return a != nil && *a == first })
	}
	for _, m := range all {
		m.stop()
		testkit.Must(t, m.Leave(t.Context()))
	}
}

// testBegin: all shards begin to read a stream where the first of them did, whatever its name.
func testBegin(t *testing.T, c *natscluster.Cluster) {
	js := c.Connect(c.URLs())
	at := edda.Checkpoint{Stream: "SHOP=ÄPFEL", Seq: 7, Time: time.Unix(8, 9).UTC(), Created: time.Unix(2, 3).UTC()}
	later, other := at, at
	later.Seq, other.Stream = 12, "SHOP"
	for _, test := range []struct{ asks, want edda.Checkpoint }{{at, at}, {later, at}, {other, other}} {
		if got, err := Begin(t.Context(), js, testCluster, test.asks); err != nil || got != test.want {
			t.Errorf("asked with %+v: %+v, %v", test.asks, got, err)
		}
	}
	if m, known, err := BegunManifests(t.Context(), js, testCluster); err != nil || known {
		t.Errorf("manifests that no shard has said: %+v, %t, %v", m, known, err)
	}
	first := FirstManifests{Hash: "a", Time: time.Unix(8, 9).UTC()}
	for _, asks := range []FirstManifests{first, {Hash: "b", Time: time.Unix(10, 0).UTC()}} {
		if got, err := BeginManifests(t.Context(), js, testCluster, asks); err != nil || got != first {
			t.Errorf("asked with %+v: %+v, %v", asks, got, err)
		}
	}
	if got, known, err := BegunManifests(t.Context(), js, testCluster); err != nil || !known || got != first {
		t.Errorf("read %+v, %t, %v", got, known, err)
	}
	if _, err := Begin(t.Context(), js, "nowhere", at); err == nil || !strings.Contains(err.Error(), "where cluster nowhere begins to read stream") {
		t.Errorf("without a cluster: %v", err)
	}
}

// lagging is a bucket whose replica answers for ever what it has answered first.
type lagging struct {
	jetstream.KeyValue
	get func() (jetstream.KeyValueEntry, error)
}

func (l lagging) Get(context.Context, string) (jetstream.KeyValueEntry, error) { return l.get() }

// testUnique: a process that beats keeps its name, also where a replica lags, and one that has ended does not.
func testUnique(t *testing.T, c *natscluster.Cluster) {
	a := members(t, c, c.URLs(), "u")[0]
	again, err := Open(t.Context(), c.Connect(c.URLs()), Options{Cluster: testCluster, ID: "u"})
	testkit.Must(t, err)
	fresh := again.kv
	again.kv = lagging{fresh, sync.OnceValues(func() (jetstream.KeyValueEntry, error) { return fresh.Get(t.Context(), prefix+"u") })}
	if _, err := again.Unique(t.Context()); !errors.Is(err, edda.Permanent) {
		t.Errorf("a second process of the same name: %v", err)
	}
	a.stop()
	if known, err := again.Unique(t.Context()); !known || err != nil {
		t.Errorf("a process has ended, and its beat has stayed: known %t, %v", known, err)
	}
	testkit.Must(t, a.Leave(t.Context()))
	if known, err := again.Unique(t.Context()); known || err != nil {
		t.Errorf("a node has left: known %t, %v", known, err)
	}
	if revision, err := again.own(t.Context()); revision != 0 || err != nil {
		t.Errorf("a node that has left has a beat: revision %d, %v", revision, err)
	}
}

// testReplaced: the older one ends. A beat that the newer one has sent before does not end it.
func testReplaced(t *testing.T, c *natscluster.Cluster) {
	open := func(run string) *member {
		m := &member{t: t, id: "r"}
		var err error
		m.Nodes, err = Open(t.Context(), c.Connect(c.URLs()), Options{
			Cluster: testCluster, ID: "r", Run: run, Beat: func() cluster.Beat { return cluster.Beat{Run: run} },
		})
		testkit.Must(t, err)
		return m
	}
	newer, older := open("r.2"), open("r.1")
	for _, m := range []*member{newer, older} {
		_, err := m.Unique(t.Context())
		testkit.Must(t, err)
	}
	newer.run()
	older.run()
	testkit.Until(t, within, "the older one ends", func() bool { return testkit.Closed(older.ended) })
	testkit.WantError(t, older.why, edda.Permanent, "a newer process runs as node r of cluster shop", "--node")
	if !errors.Is(older.why, ErrReplaced) {
		t.Error(older.why)
	}
	other := join(t, c, c.URLs(), "o")
	for i := range 2 * nameLooks { // beats of the newer one
		seen := other.of("r").Revision
		testkit.Until(t, within, fmt.Sprintf("beat %d", i), func() bool { return other.of("r").Revision > seen })
	}
	newer.stop()
	if !errors.Is(newer.why, context.Canceled) {
		t.Errorf("the newer one has ended: %v", newer.why)
	}
	next := open("r.3") // as after a move
	next.run()
	testkit.Until(t, within, "the next stay is heard", func() bool { return other.of("r").Beat.Run == "r.3" })
	if lives := other.logs.FilterMessage("a node lives").FilterField(zap.String("other", "r")).Len(); lives > 1+other.convictions() {
		t.Errorf("%d times a node lives that has died %d times", lives, other.convictions())
	}
	leave(t, []*member{next, other})
}

// testOutage: callers of a closed fence share one attempt, and none waits longer than it or its own ctx. A fence that
// is shut stays closed.
func testOutage(t *testing.T, c *natscluster.Cluster) {
	owner := members(t, c, c.URLs(), "owner")[0]
	away := make(chan struct{})
	var proofs atomic.Int32
	owner.o.Confirm = func(ctx context.Context) error {
		proofs.Add(1)
		select {
		case <-away:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	began := time.Now()
	impatient, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller has gone"))
	if err := owner.Fence().Pass(impatient); !errors.Is(err, edda.Temporary) || !strings.Contains(err.Error(), "the caller has gone") {
		t.Errorf("a caller that does not wait: %v", err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := owner.Fence().Pass(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the fence without a proof: %v", err)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took >= 2*confirmWithin || proofs.Load() > 2 {
		t.Errorf("twenty callers waited %s for %d proofs", took, proofs.Load())
	}
	close(away)
	testkit.Must(t, owner.Fence().Pass(t.Context()))
	owner.Fence().Shut()
	other := join(t, c, c.URLs(), "other")
	heard(t, []*member{owner, other}) // accepted beats extend an open fence
	testkit.WantError(t, owner.Fence().Pass(t.Context()), edda.Temporary)
	if owner.Fence().Open() {
		t.Error("a fence that is shut was opened")
	}
	leave(t, []*member{owner, other})
}
