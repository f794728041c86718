package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/node/operator"
	"edda/retention"
	"edda/server"
	"edda/standby"
	"edda/store"
	"edda/stream/clusterlog"
	"edda/stream/clusternodes"
	"edda/stream/kv"
)

// within bounds what a test waits for.
const within = 20 * time.Second

// joined is the stay of a node that beats until the end of the test.
func joined(t *testing.T, nats *kv.Embedded, node string) *stay {
	t.Helper()
	s := Settings{Config: Defaults()}
	s.Cluster.Name, s.Cluster.Node = "shop", node
	st := testkit.Value[*stay](t)(newStay(s, zap.NewNop(), nil))
	var err error
	st.conn, st.js, err = kv.Connect(kv.Connection{Server: nats.Server()})
	testkit.Must(t, err)
	t.Cleanup(st.close)
	o := clusternodes.Options{Cluster: "shop", ID: node, Beat: st.beat, Replicas: 1}
	st.nodes.Store(testkit.Value[*clusternodes.Nodes](t)(clusternodes.Open(t.Context(), st.js, o)))
	st.startBeats(t.Context())
	t.Cleanup(func() { st.endBeats(false) })
	return st
}

// TestARaisedLevelIsShownAtOnce: by the node that raises it, and by another one, without another stay of either.
func TestARaisedLevelIsShownAtOnce(t *testing.T) {
	nats := testkit.Value[*kv.Embedded](t)(kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: t.TempDir()}))
	t.Cleanup(nats.Close)
	owner, other := joined(t, nats, "n1"), joined(t, nats, "n2")
	shows := func(st *stay, level int) func() bool {
		return func() bool { return st.Status(t.Context()).Level == level }
	}
	founded := testkit.Value[clusternodes.Agreed](t)(owner.nodes.Load().Found(t.Context(), clusternodes.Agreed{Store: "S", Founder: "n1", Level: 1}))
	owner.agreed, other.agreed = founded, founded
	if !shows(owner, 1)() {
		t.Error("the founder does not show the first level")
	}
	testkit.Until(t, within, "the other node shows the first level", shows(other, 1))
	testkit.Until(t, within, "the owner knows what level the other node knows", func() bool {
		return len(owner.others()) == 1 && owner.others()[0].Beat.Level == cluster.Level
	})
	level, err := owner.Finalize(t.Context(), server.Operator{By: "ann", Why: "all are new"})
	if err != nil || level != cluster.Level {
		t.Fatalf("%d, %v", level, err)
	}
	if !shows(owner, level)() {
		t.Errorf("the node that has raised the level to %d shows another one", level)
	}
	testkit.Until(t, within, "the other node shows the raised level", shows(other, level))
}

// TestAMoveToANodeWithoutACopySaysWhy: the refusal ended with a colon.
func TestAMoveToANodeWithoutACopySaysWhy(t *testing.T) {
	nats := testkit.Value[*kv.Embedded](t)(kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: t.TempDir()}))
	t.Cleanup(nats.Close)
	owner, heir, spare := joined(t, nats, "n1"), joined(t, nats, "n2"), joined(t, nats, "n4")
	joined(t, nats, "n3")
	heir.say(func(b *cluster.Beat) { b.Following = true })
	spare.say(func(b *cluster.Beat) { b.Spare = true })
	testkit.Until(t, within, "the owner hears the others", func() bool {
		all := owner.others()
		return len(owner.copies()) == 1 && len(all) == 3 && slices.ContainsFunc(all, func(m cluster.Member) bool { return m.Beat.Spare })
	})
	testkit.WantError(t, owner.mayTake("n4"), edda.Permanent, `node n4 is a spare, which has no copy of the store: nodes with a copy are ["n2"]`)
	testkit.WantError(t, owner.mayTake("n3"), edda.Permanent, "wait until edda cluster status shows it as a standby")
}

// TestActsOnAClusterAreAudited: in the store of the owner, and a move before its process is asked to stop.
func TestActsOnAClusterAreAudited(t *testing.T) {
	nats := testkit.Value[*kv.Embedded](t)(kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: t.TempDir()}))
	t.Cleanup(nats.Close)
	owner, heir, dead := joined(t, nats, "n1"), joined(t, nats, "n2"), joined(t, nats, "n3")
	owner.agreed = testkit.Value[clusternodes.Agreed](t)(owner.nodes.Load().Found(t.Context(), clusternodes.Agreed{Store: "S", Founder: "n1", Level: 1}))
	log := testkit.Value[*clusterlog.Log](t)(clusterlog.Open(t.Context(), owner.js, clusterlog.Options{Shard: "shop_0", Replicas: 1}))
	owner.shipper.Store(standby.NewShipper(t.Context(), log, cluster.Mark{}, owner.run, 1))
	heir.say(func(b *cluster.Beat) { b.Following = true })
	testkit.Until(t, within, "the owner hears the others", func() bool {
		return owner.bestCopy() == "n2" && len(owner.others()) == 2
	})
	db, _ := testkit.OpenStore(t, t.TempDir(), store.Options{})
	p := &process{db: db, log: zap.NewNop()}
	p.maintenance = testkit.Value[*operator.Maintenance](t)(operator.NewMaintenance(db, func() (retention.Settings, error) { return retention.Settings{}, nil }, p.log, nil))
	var atStop []string
	acts := func() (all []string) {
		audits := testkit.Value[[]store.Audit](t)(db.Audits(10))
		for _, a := range slices.Backward(audits) {
			all = append(all, a.By+" "+a.Verb+": "+a.Detail+", because "+a.Reason)
		}
		return all
	}
	owner.setProcess(func() { atStop = acts() }, p.audited)
	who := func(why string) server.Operator { return server.Operator{By: "ann", Why: why} }

	testkit.Value[int](t)(owner.Finalize(t.Context(), who("all are new")))
	dead.endBeats(false)
	testkit.Until(t, within, "n3 is dead", func() bool {
		return slices.ContainsFunc(owner.others(), func(m cluster.Member) bool { return m.ID == "n3" && m.Dead })
	})
	testkit.Must(t, owner.Forget(t.Context(), "n3", who("it was returned")))
	if _, err := owner.Move(t.Context(), "n1", who("nowhere")); err == nil { // and there is nothing to audit
		t.Error("the store moves to its owner")
	}
	testkit.Value[server.ClusterMove](t)(owner.Move(t.Context(), "n2", who("a new disk")))
	want := []string{
		fmt.Sprintf("ann finalize: the level of the cluster is %d, because all are new", cluster.Level),
		"ann forget: node n3 is forgotten, because it was returned",
		"ann move: the store moves from n1 to n2, because a new disk",
	}
	if !slices.Equal(atStop, want) {
		t.Errorf("when the process stops the audit has %q, want %q", atStop, want)
	}
}

// TestANodeOfAnotherRoleIsShown: it took over, and effects stopped without a word.
func TestANodeOfAnotherRoleIsShown(t *testing.T) {
	nats := testkit.Value[*kv.Embedded](t)(kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: t.TempDir()}))
	t.Cleanup(nats.Close)
	owner, other := joined(t, nats, "n1"), joined(t, nats, "n2")
	core, logs := observer.New(zap.WarnLevel)
	other.log = zap.New(core)
	owner.say(func(b *cluster.Beat) { b.Owner = true })
	other.say(func(b *cluster.Beat) { b.Following, b.Role = true, roleSaga })
	problem := "its role is saga, and that of the owner is saga,effect"
	for _, st := range []*stay{owner, other} {
		testkit.Until(t, within, "node "+st.node+" shows the problem", func() bool {
			s := st.Status(t.Context())
			return len(s.Nodes) == 2 && s.Nodes[0].Problem == "" && strings.HasPrefix(s.Nodes[1].Problem, problem)
		})
	}
	ctx, stop := context.WithCancelCause(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { other.giveUp(ctx, stop) })
	testkit.Until(t, within, "the node logs it", func() bool {
		return logs.FilterField(zap.String("owner", "n1")).Len() == 1
	})
	stop(nil)
	watch.Wait()
}

// TestWithoutNATSTheOthersAreUnknown: they were shown as alive with the age of their last beat, and the standby as ready.
func TestWithoutNATSTheOthersAreUnknown(t *testing.T) {
	nats := testkit.Value[*kv.Embedded](t)(kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: t.TempDir()}))
	owner, standby := joined(t, nats, "n1"), joined(t, nats, "n2")
	owner.say(func(b *cluster.Beat) { b.Owner = true })
	standby.say(func(b *cluster.Beat) { b.Following = true })
	testkit.Until(t, within, "the standby hears the owner, and is ready", func() bool {
		s := standby.Status(t.Context())
		return s.Owner == "n1" && s.Nodes[0].State == server.NodeAlive && standby.processStatus(t.Context()).NotReady == ""
	})
	nats.Close()
	testkit.Until(t, within, "the standby is not ready", func() bool {
		return strings.HasPrefix(standby.processStatus(t.Context()).NotReady, "the connection to ")
	})
	testkit.Until(t, within, "the standby hears nobody", func() bool {
		s := standby.Status(t.Context())
		n1, n2 := s.Nodes[0], s.Nodes[1]
		return s.Owner == "n1" && n1.State == server.NodeUnknown && n1.BeatAge > cluster.DeadAfter.Milliseconds() &&
			n2.State == server.NodeAlive && strings.HasPrefix(s.Problem, "NATS has taken no beat of node n2 for ")
	})
}
