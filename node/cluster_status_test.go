package node

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"edda/cluster"
	"edda/internal/testkit"
	"edda/server"
	"edda/stream/clusternodes"
	"edda/stream/kv"
)

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
	const within = 20 * time.Second
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
