package node

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/standby"
	"edda/store"
	"edda/stream/clusterlog"
	"edda/stream/clusternodes"
)

func TestMain(m *testing.M) { natscluster.Main(m) }

// TestLeave shares three NATS servers among its tests, because the start takes an election.
func TestLeave(t *testing.T) {
	c := natscluster.Start(t)
	for cluster, test := range map[string]func(*testing.T, Settings){
		"behind": testCopyBehindItsLog,
		"cut":    testLeaveCutOff,
		"unsent": testLeaveWithUnsentWork,
		"starts": testStartWhileLeaving,
		"ends":   testEnd,
	} {
		t.Run(cluster, func(t *testing.T) {
			test(t, clustered(t, c, cluster))
		})
	}
}

// clustered are the settings of node n1 of a cluster, which may begin with a store.
func clustered(t *testing.T, c *natscluster.Cluster, name string) Settings {
	t.Helper()
	s := devSettings(t, loanSaga)
	s.Dev, s.NATSAddr, s.NATS.URL, s.Tenancy.Enabled = false, "", c.URLs(), false
	s.Cluster.Name, s.Cluster.Node, s.AdoptEmpty = name, "n1", true
	return s
}

// inCluster does something as a node of the cluster that does not beat.
func inCluster(t *testing.T, s Settings, do func(*stay)) {
	t.Helper()
	testkit.Must(t, withStay(t.Context(), s, zap.NewNop(), func(st *stay) error { do(st); return nil }))
}

// leftBy is the node that has taken the store out of the cluster.
func leftBy(t *testing.T, s Settings) (node string) {
	t.Helper()
	inCluster(t, s, func(st *stay) {
		a, known, err := st.nodes.Load().Agreed(t.Context())
		if err != nil || !known {
			t.Fatal(known, err)
		}
		node = a.Left
	})
	return node
}

// begun makes the store in the folder of the settings that of the cluster. Its log has as many transactions more.
func begun(t *testing.T, s Settings, more int) {
	t.Helper()
	inCluster(t, s, func(st *stay) {
		a := testkit.Value[clusternodes.Agreed](t)(st.begin(t.Context()))
		testkit.Must(t, membership{s.Cluster.Name, a.Created, true, true}.write(st.dir()))
		r := testkit.Value[*store.Replica](t)(st.openCopy())
		at := testkit.Value[cluster.Mark](t)(standby.Find(t.Context(), st.shipped, r, false))
		testkit.Must(t, r.Close())
		at = testkit.Value[cluster.Mark](t)(cluster.Take(t.Context(), st.shipped, at, "n2.1", a.Level, func(cluster.Mark, cluster.Record) error { return nil }))
		owner := standby.NewShipper(t.Context(), st.shipped, at, "n2.1", a.Level)
		for range more {
			testkit.Must(t, owner.Ship(owner.Mark().LSN+1, []byte("a transaction"))())
		}
	})
}

// testCopyBehindItsLog: the copy of the second shard lacks a transaction. Its node must start again to follow, so the first
// shard has not left either.
func testCopyBehindItsLog(t *testing.T, s Settings) {
	one := s
	one.Data = filepath.Join(t.TempDir(), "one")
	emptyStore(t, one)
	s.Data = filepath.Join(t.TempDir(), "two")
	testkit.Value[ClusterSplit](t)(SplitCluster(t.Context(), one, zap.NewNop(), s.Data))
	var shards []Settings
	for i := range 2 {
		shards = append(shards, s.ofShard(edda.Shard{Index: i, Of: 2}))
		begun(t, shards[i], i)
	}
	_, err := LeaveCluster(t.Context(), s, zap.NewNop(), LeaveOptions{})
	testkit.WantError(t, err, edda.Permanent, "shard 1", "take the node that owned the store last")
	for i, shard := range shards {
		m, err := membershipOf(shard.storeDir())
		if by := leftBy(t, shard); m == nil || err != nil || by != "" {
			t.Errorf("shard %d has left by %q: %v, %v", i, by, m, err)
		}
	}
}

// testLeaveCutOff: after the streams were copied, which is noted in the store and not in the log, and before the store is
// no copy any more.
func testLeaveCutOff(t *testing.T, s Settings) {
	emptyStore(t, s)
	begun(t, s, 0)
	testkit.Must(t, leaveLogs(t.Context(), []Settings{s}, zap.NewNop(), true))
	testkit.Must(t, s.betweenServers(t.Context(), zap.NewNop(), false))
	if by := leftBy(t, s); by != "n1" {
		t.Fatalf("%q has taken the store out", by)
	}
	left, err := LeaveCluster(t.Context(), s, zap.NewNop(), LeaveOptions{ToDev: true})
	if err != nil || left != s.Cluster.Name {
		t.Errorf("called again: %q, %v", left, err)
	}
	testkit.Must(t, ownStore(s.storeDir()))
}

// testLeaveWithUnsentWork: the node must start again to send it, so the store does not leave.
func testLeaveWithUnsentWork(t *testing.T, s Settings) {
	testkit.Must(t, s.withStore(t.Context(), func(db *store.DB) error {
		from := edda.Key{Tenant: "default", Saga: "order", Correlation: "O1"}
		return db.Commit(t.Context(), store.Change{Work: []edda.Work{{ID: "c1", Kind: edda.WorkFact, From: from, Name: "Placed", Time: time.Now()}}})
	}))
	begun(t, s, 0)
	_, err := LeaveCluster(t.Context(), s, zap.NewNop(), LeaveOptions{ToDev: true})
	testkit.WantError(t, err, edda.Permanent, "the outbox has 1 rows of work")
	if by := leftBy(t, s); by != "" {
		t.Errorf("%s has taken the store out", by)
	}
}

// testStartWhileLeaving: a node that has joined before another one has left the cluster ends.
func testStartWhileLeaving(t *testing.T, s Settings) {
	h := quiet()
	ready := make(chan struct{})
	h.Ready = func(Running) { close(ready) }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, s, h) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	other := s
	other.Cluster.Node = "n2"
	inCluster(t, other, func(st *stay) {
		a, _, err := st.nodes.Load().Agreed(t.Context())
		testkit.Must(t, err)
		a.Left = "n2"
		testkit.Must(t, st.nodes.Load().FoundAgain(t.Context(), a))
	})
	testkit.WantError(t, <-ended, edda.Permanent, "node n2 has taken the store out of cluster "+s.Cluster.Name)
}

// testEnd: edda cluster end says that there was no cluster, if there was none. An end that was cut off can be repeated. A
// cluster that has lost its bucket can be ended.
func testEnd(t *testing.T, s Settings) {
	emptyStore(t, s)
	begun(t, s, 1)
	inCluster(t, s, func(st *stay) { testkit.Must(t, clusternodes.Remove(t.Context(), st.js, s.Cluster.Name, 0)) })
	for _, want := range []bool{true, false} {
		if was, err := EndCluster(t.Context(), s, zap.NewNop()); was != want || err != nil {
			t.Errorf("there was a cluster: %t, %v; want %t", was, err, want)
		}
	}
	begun(t, s, 0)
	inCluster(t, s, func(st *stay) { testkit.Must(t, clusterlog.Remove(t.Context(), st.js, s.logName())) })
	if was, err := EndCluster(t.Context(), s, zap.NewNop()); !was || err != nil {
		t.Errorf("a cut-off end: %t, %v", was, err)
	}
	begun(t, s, 0) // and its store leaves it, and runs alone
	testkit.Must(t, store.UnmarkReplicated(s.storeDir()))
	testkit.Must(t, s.withStore(t.Context(), func(*store.DB) error {
		_, err := EndCluster(t.Context(), s, zap.NewNop())
		return err
	}))
}
