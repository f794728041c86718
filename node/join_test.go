package node

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/effects"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/store"
	"edda/stream/clusterlog"
	"edda/stream/clusternodes"
	"edda/stream/kv"
	"edda/stream/wire"
)

// TestARefusedStartLeavesNothing in NATS, and its folder as it was.
func TestARefusedStartLeavesNothing(t *testing.T) {
	c := natscluster.Start(t)
	js := c.Connect(c.URLs())
	start := func(name string) Settings {
		s := clustered(t, c, name)
		s.Cluster.Node, s.AdoptEmpty = "n9", false
		return s
	}
	streams := func(of string) (names []string) {
		list := js.StreamNames(t.Context())
		for name := range list.Name() {
			if strings.Contains(name, of) {
				names = append(names, name)
			}
		}
		testkit.Must(t, list.Err())
		return names
	}
	refused := func(s Settings, leaves int, says ...string) {
		t.Helper()
		testkit.WantError(t, Run(t.Context(), s, quiet()), edda.Permanent, says...)
		if left := streams(s.Cluster.Name); len(left) != leaves {
			t.Errorf("NATS has %v", left)
		}
	}

	pair := testkit.Value[*clusternodes.Nodes](t)(clusternodes.Open(t.Context(), js, clusternodes.Options{Cluster: "pair", ID: "n1"}))
	testkit.Value[clusternodes.Agreed](t)(pair.Found(t.Context(), clusternodes.Agreed{Store: "S", Founder: "n1", Level: 1, Shards: 2}))
	testkit.Value[*clusterlog.Log](t)(clusterlog.Open(t.Context(), js, clusterlog.Options{Shard: "pair_0"}))
	s := start("pair")
	s.Cluster.Shards = 4
	refused(s, 2, "cluster pair has 2 shards, and this node was told 4")

	narrow := jetstream.StreamConfig{Name: wire.WorkflowEvents, Subjects: []string{"effect_result.>"}, Replicas: 1}
	testkit.Value[jetstream.Stream](t)(js.CreateStream(t.Context(), narrow))
	s = start("narrow")
	_, stop := testkit.OpenStore(t, s.storeDir(), store.Options{})
	stop()
	refused(s, 0, "WORKFLOW_EVENTS has 1 of the 3 replicas", "nats stream edit WORKFLOW_EVENTS --replicas=3")
	testkit.Must(t, ownStore(s.storeDir()))
	_, err := InitCluster(t.Context(), s, zap.NewNop())
	testkit.WantError(t, err, edda.Permanent, "WORKFLOW_EVENTS has 1 of the 3 replicas")
	testkit.Must(t, js.DeleteStream(t.Context(), narrow.Name))

	ledger := jetstream.StreamConfig{Name: "KV_" + kv.LedgerBucket, Subjects: []string{"ledger.>"}, Replicas: 1} // of effect workers
	testkit.Value[jetstream.Stream](t)(js.CreateStream(t.Context(), ledger))
	inCluster(t, start("local"), func(st *stay) {
		testkit.Must(t, st.replicated(t.Context()))
		st.settings.Effects.Ledger = ledgerShared
		testkit.WantError(t, st.replicated(t.Context()), edda.Permanent, kv.LedgerBucket+" has 1 of the 3 replicas")
	})
	testkit.Must(t, js.DeleteStream(t.Context(), ledger.Name))

	lease := testkit.Value[*kv.Lease](t)(kv.AcquireLease(t.Context(), js, kv.LeaseOptions{Store: "S", Host: "h", Process: "p", Tenants: wire.Tenants{"acme"}, Replicas: leastReplicas}))
	testkit.Must(t, lease.Release(t.Context()))
	s = start("Misspelled")
	refused(s, 0, "store S on host h served", "begin the cluster on the machine that has that store")
	if _, err := os.Stat(s.storeDir()); !os.IsNotExist(err) {
		t.Errorf("there is a store: %v", err)
	}
}

// TestAFolderThatAnotherProcessHoldsIsRefused: the node went on as a spare. A process that stops is waited for.
func TestAFolderThatAnotherProcessHoldsIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		holds   time.Duration
		refused bool
	}{"it stops": {heldWithin / 2, false}, "it goes on": {time.Hour, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := stayWith(t, time.Unix(200, 0), time.Unix(200, 0), cluster.Last{})
				_, release := testkit.OpenStore(t, st.dir(), store.Options{})
				began := time.Now()
				stops := time.AfterFunc(tt.holds, release)
				if tt.refused {
					testkit.WantError(t, st.follow(t.Context(), newSystemd(zap.NewNop())), edda.Permanent, "another process holds "+st.dir(), "choose another --data")
				} else if err := st.unheld(t.Context()); err != nil || time.Since(began) < tt.holds {
					t.Errorf("%v after %s", err, time.Since(began))
				}
				if stops.Stop() {
					release()
				}
				synctest.Wait()
			})
		})
	}
}

// held is a provider whose connection is being made, so that its close waits.
type held struct {
	effects.Provider
	until chan struct{}
}

func (h held) Close() { <-h.until }

// TestAStopDoesNotWaitForAConnectionAttempt longer than its stage may take.
func TestAStopDoesNotWaitForAConnectionAttempt(t *testing.T) {
	for name, longer := range map[string]time.Duration{"it ends": leaveWithin - time.Second, "it goes on": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &process{log: zap.NewNop(), joined: make(chan struct{})}
				h := held{until: make(chan struct{})}
				p.pipeline.Store(&pipeline{providers: map[string]effects.Provider{"nats": h}})
				close(p.joined)
				ctx, stop := context.WithCancel(t.Context())
				stop()
				attempt := time.AfterFunc(longer, func() { close(h.until) })
				began := time.Now()
				testkit.Must(t, p.holdConnection(ctx))
				if took, want := time.Since(began), min(longer, leaveWithin); took != want {
					t.Errorf("it took %s and not %s", took, want)
				}
				if attempt.Stop() {
					close(h.until)
				}
				synctest.Wait()
			})
		})
	}
}
