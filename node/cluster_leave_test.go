package node

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
)

func TestMain(m *testing.M) { natscluster.Main(m) }

// TestLeave shares three NATS servers among its tests, because the start takes an election.
func TestLeave(t *testing.T) {
	c := natscluster.Start(t)
	for cluster, test := range map[string]func(*testing.T, Settings){
		"starts": testStartWhileLeaving,
	} {
		t.Run(cluster, func(t *testing.T) {
			s := devSettings(t, loanSaga)
			s.Dev, s.NATSAddr, s.NATS.URL, s.Tenancy.Enabled = false, "", c.URLs(), false
			s.Cluster.Name, s.Cluster.Node = cluster, "n1"
			test(t, s)
		})
	}
}

// inCluster does something as a node of the cluster that does not beat.
func inCluster(t *testing.T, s Settings, do func(*stay)) {
	t.Helper()
	testkit.Must(t, withStay(t.Context(), s, zap.NewNop(), func(st *stay) error { do(st); return nil }))
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
