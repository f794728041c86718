package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/internal/testkit"
	"edda/store"
)

// TestWorkThatMayHaveBeenSentStaysWhereItIs: the streams of a store with such work are not copied, because the new
// server would take the work a second time.
func TestWorkThatMayHaveBeenSentStaysWhereItIs(t *testing.T) {
	s := Settings{Config: Config{Data: t.TempDir(), Role: "saga"}, Env: func(string) string { return "" }}
	if err := s.withStore(t.Context(), func(db *store.DB) error {
		from := edda.Key{Tenant: "default", Saga: "order", Correlation: "O1"}
		return db.Commit(t.Context(), store.Change{Work: []edda.Work{
			{ID: "c1", Kind: edda.WorkFact, From: from, Name: "Placed", Time: time.Now()}, {ID: "c2", Kind: edda.WorkEffect, From: from, Name: "charge", Time: time.Now()},
		}})
	}); err != nil {
		t.Fatal(err)
	}
	err := s.betweenServers(t.Context(), zap.NewNop(), true)
	if !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "the outbox has 1 rows of work") {
		t.Errorf("%v", err)
	}
}

// TestAClusterBeganWithHalfAFolderOfDev: a cluster began without the streams of its store, or with results that a mock
// had invented.
func TestAClusterBeganWithHalfAFolderOfDev(t *testing.T) {
	s := Settings{Config: Defaults()}
	s.Data, s.Cluster.Name = t.TempDir(), "shop"
	testkit.Must(t, os.Mkdir(s.devStreams(), 0o700))
	_, err := InitCluster(t.Context(), s, zap.NewNop())
	testkit.WantError(t, err, edda.Permanent, "add --from-dev")
	testkit.Must(t, os.WriteFile(filepath.Join(s.Data, MockedMark), nil, 0o600))
	for _, begin := range []func(context.Context, Settings, *zap.Logger) (ClusterBegun, error){InitCluster, InitClusterFromDev} {
		_, err := begin(t.Context(), s, zap.NewNop())
		testkit.WantError(t, err, edda.Permanent, "were answered by edda dev --mock")
	}
}

func TestTheStreamsOfAStoreAreRecognisedByTheirNewTimes(t *testing.T) {
	s := Settings{Config: Config{Data: t.TempDir(), Role: "saga"}}
	before, after := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	if err := s.withStore(t.Context(), func(db *store.DB) error {
		if err := db.Commit(t.Context(), store.Change{
			Checkpoints: []edda.Checkpoint{{Stream: "A", Seq: 7, Created: before}, {Stream: "B", Seq: 8, Created: before}},
			Positions:   []store.SagaPosition{{Tenant: "*", Saga: "late", Checkpoint: edda.Checkpoint{Stream: "A", Seq: 3, Created: before}}},
		}); err != nil {
			return err
		}
		if err := adoptStreams(t.Context(), db, map[string]time.Time{"A": after, "C": after}); err != nil {
			return err
		}
		held, err := db.Checkpoints()
		if err != nil {
			return err
		}
		own, err := db.Positions()
		if err != nil {
			return err
		}
		if len(held) != 2 || !held[0].Created.Equal(after) || held[0].Seq != 7 || !held[1].Created.Equal(before) || len(own) != 1 || !own[0].Created.Equal(after) || own[0].Seq != 3 {
			t.Errorf("%+v, %+v", held, own)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
