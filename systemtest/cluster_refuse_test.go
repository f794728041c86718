//go:build !race

package systemtest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/server"
	"edda/store"
	"edda/stream/clusternodes"
	"edda/stream/kv"
)

// TestAClusterRefusesWhatDoesNotFit: in one line that says why, and what to do. The cluster goes on.
func TestAClusterRefusesWhatDoesNotFit(t *testing.T) {
	beside(t)
	dir := t.TempDir()
	servers := natscluster.Start(t)
	js := servers.Connect(servers.URLs())
	manifest := write(t, dir, "small.yaml", smallSaga)
	quiet := write(t, dir, "edda.yaml", "log: {level: error}\n")
	node := func(nats, name, data string, more ...string) []string {
		return append([]string{"run", "--config", quiet, "--role", "saga,effect", "--cluster", "shop", "--node", name,
			"--nats-url", nats, "--addr", freeAddr(t), "--data", data}, more...)
	}

	alone := testkit.Value[*kv.Embedded](t)(kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0"}))
	defer alone.Close()
	refused(t, []string{"join cluster shop", "three NATS servers"}, node(alone.URL(), "n1", t.TempDir(), manifest)...)

	few := jetstream.StreamConfig{Name: "AGGREGATE_EVENTS", Subjects: []string{"tenant.*.aggregate.>"}, Replicas: 1}
	testkit.Value[jetstream.Stream](t)(js.CreateStream(t.Context(), few))
	refused(t, []string{"AGGREGATE_EVENTS has 1 of the 3 replicas", "nats stream edit AGGREGATE_EVENTS --replicas=3"},
		node(servers.URLs(), "n1", t.TempDir(), manifest)...)
	clearCluster(t, js)

	first := launchNode(t, servers, dir, "n1", manifest)
	until(t, "n1 owns the store", func() bool {
		var s server.ClusterStatus
		return first.reads("/cluster", &s) && s.Owner == "n1"
	})
	refused(t, []string{"another process runs as node n1 of cluster shop", "--node"}, node(servers.URLs(), "n1", t.TempDir())...)

	other := t.TempDir()
	db, stop := testkit.OpenStore(t, filepath.Join(other, "store"), store.Options{})
	testkit.Commit(t, db, store.Change{Checkpoints: []edda.Checkpoint{{Stream: "AGGREGATE_EVENTS", Seq: 7}}}) // it was in use
	stop()
	refused(t, []string{"cluster shop keeps store", "name another --data"}, node(servers.URLs(), "n2", other)...)

	nodes := testkit.Value[*clusternodes.Nodes](t)(clusternodes.Open(t.Context(), js, clusternodes.Options{Cluster: "shop", ID: "test"}))
	testkit.Must(t, nodes.Raise(t.Context(), cluster.Level+1))
	refused(t, []string{"cluster shop has the level", "upgrade this node"}, node(servers.URLs(), "n3", t.TempDir())...)

	if body, status := first.fetch("/ready"); status != 200 {
		t.Errorf("the owner suffered: %d %s", status, body)
	}
}

// clearCluster removes what a node that was refused has begun, for another one with an empty folder.
func clearCluster(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	names := js.StreamNames(context.Background())
	for name := range names.Name() {
		testkit.Must(t, js.DeleteStream(t.Context(), name))
	}
	testkit.Must(t, names.Err())
}
