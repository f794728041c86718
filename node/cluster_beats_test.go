package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/server"
	"edda/store"
)

// TestLastBeat: a node that stops in order takes its last beat with it, unless the log may lack what that says.
func TestLastBeat(t *testing.T) {
	c := natscluster.Start(t)
	for name, test := range map[string]func(*testing.T, Settings){
		"owner":    testBeatOfAnOwnerThatStops,
		"replaced": testBeatOfAnOwnerThatLearnsAtItsEndOfAnother,
		"moved":    testBeatOfANodeThatStopsBetweenTwoStays,
		"shard":    testBeatOfALossWhereAnotherShardEnds,
		"command":  testBeatBesideACommand,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, clustered(t, c, name))
		})
	}
}

// beatOf is the last beat of node n1; false if it has none.
func beatOf(t *testing.T, st *stay) (b cluster.Beat, known bool) {
	t.Helper()
	values := testkit.Value[jetstream.KeyValue](t)(st.js.KeyValue(t.Context(), "EDDA_CLUSTER_"+st.settings.Cluster.Name))
	e, err := values.Get(t.Context(), "node.n1")
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return b, false
	}
	testkit.Must(t, err)
	testkit.Must(t, json.Unmarshal(e.Value(), &b))
	return b, true
}

// asOther is a node beside n1.
func asOther(s Settings) Settings {
	s.Cluster.Node = "n2"
	return s
}

func testBeatOfAnOwnerThatStops(t *testing.T, s Settings) {
	h := quiet()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	h.Ready = func(Running) { stop() }
	testkit.Must(t, Run(ctx, s, h))
	inCluster(t, asOther(s), func(st *stay) {
		last := testkit.Value[cluster.Last](t)(st.shipped.End(t.Context()))
		if b, known := beatOf(t, st); known || last.Message.Kind != cluster.Seal {
			t.Errorf("the log ends with %s, and there is a beat: %t, %+v", last.Message.Kind, known, b)
		}
	})
}

// testBeatOfAnOwnerThatLearnsAtItsEndOfAnother: it was paused, another node has taken over, and only the seal finds that.
func testBeatOfAnOwnerThatLearnsAtItsEndOfAnother(t *testing.T, s Settings) {
	h := quiet()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var seen *stay
	h.Ready = func(r Running) {
		seen = r.p.stay
		at := seen.shipper.Load().Mark()
		testkit.Value[cluster.Mark](t)(cluster.Take(t.Context(), seen.shipped, at, "n2.1", seen.level(), func(cluster.Mark, cluster.Record) error { return nil }))
		stop()
	}
	testkit.Must(t, Run(ctx, s, h))
	inCluster(t, asOther(s), func(st *stay) {
		if b, known := beatOf(t, st); known {
			t.Errorf("its beat has stayed: %+v", b)
		}
	})
	if err := seen.shipper.Load().Err(); !errors.Is(err, cluster.ErrFenced) {
		t.Errorf("the seal found %v", err)
	}
}

// testBeatOfANodeThatStopsBetweenTwoStays: right after the store has moved to another node.
func testBeatOfANodeThatStopsBetweenTwoStays(t *testing.T, s Settings) {
	h := quiet()
	ready := make(chan Running, 1)
	h.Ready = func(r Running) { ready <- r }
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	h.Log = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zap.WarnLevel), zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == "this node goes on as a standby" {
			stop()
		}
		return nil
	}))
	all, end := context.WithCancel(t.Context())
	var nodes sync.WaitGroup
	defer nodes.Wait()
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, s, h) }()
	owner := <-ready
	other := asOther(s)
	other.Data = t.TempDir()
	nodes.Go(func() { testkit.Must(t, Run(all, other, quiet())) })
	st := owner.p.stay
	testkit.Until(t, time.Minute, "the other node follows", func() bool { return st.bestCopy() == "n2" })
	testkit.Value[server.ClusterMove](t)(st.Move(t.Context(), "n2", server.Operator{}))
	testkit.Must(t, <-ended)
	s.Cluster.Node = "n3"
	inCluster(t, s, func(st *stay) {
		if b, known := beatOf(t, st); known {
			t.Errorf("its beat has stayed: %+v", b)
		}
	})
}

// testBeatOfALossWhereAnotherShardEnds: the error of another shard ends this one before it believes in its loss.
func testBeatOfALossWhereAnotherShardEnds(t *testing.T, s Settings) {
	emptyStore(t, s)
	begun(t, s, 0)
	ahead(t, s)
	ctx, end := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- newClusterNode(s, quiet(), newSystemd(zap.NewNop())).run(ctx) }()
	inCluster(t, asOther(s), func(st *stay) {
		testkit.Until(t, time.Minute, "it says that something looks lost", func() bool {
			b, _ := beatOf(t, st)
			return b.Problem != ""
		})
		end(edda.Classify(edda.Permanent, "shard 1 has lost its records"))
		testkit.WantError(t, <-ended, edda.Permanent, "shard 1 has lost its records")
		if b, known := beatOf(t, st); !known || b.LSN == 0 {
			t.Errorf("there is a beat: %t, %+v", known, b)
		}
	})
}

// ahead puts transactions into the copy that the log does not have.
func ahead(t *testing.T, s Settings) {
	t.Helper()
	testkit.Must(t, s.withStore(t.Context(), func(db *store.DB) error {
		return db.Commit(t.Context(), store.Change{Checkpoints: []edda.Checkpoint{{Stream: "S", Seq: 2}}})
	}))
}

// testBeatBesideACommand: a command beats for its node meanwhile, and leaves a beat where there was one.
func testBeatBesideACommand(t *testing.T, s Settings) {
	emptyStore(t, s)
	begun(t, s, 0)
	ahead(t, s)
	for _, had := range []bool{false, true} {
		inCluster(t, asOther(s), func(st *stay) {
			if had {
				values := testkit.Value[jetstream.KeyValue](t)(st.js.KeyValue(t.Context(), "EDDA_CLUSTER_command"))
				testkit.Value[uint64](t)(values.PutString(t.Context(), "node.n1", `{"run":"n1.0","level":2,"epoch":9999999999,"lsn":1}`))
			}
			_, err := LeaveCluster(t.Context(), s, zap.NewNop(), LeaveOptions{})
			testkit.WantError(t, err, edda.Permanent, "does not fit the log", "start")
			if b, known := beatOf(t, st); known != had || known && b.LSN != 1 {
				t.Errorf("there was a beat: %t, there is one: %t, %+v", had, known, b)
			}
		})
	}
}
