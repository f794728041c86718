package node

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/store"
)

// knownLog is a log with a given last message. It has no record of this node's copy.
type knownLog struct {
	cluster.Log
	last cluster.Last
}

func (l knownLog) End(context.Context) (cluster.Last, error) { return l.last, nil }

func (l knownLog) Find(_ context.Context, lsn uint64) (cluster.Mark, error) {
	if l.last.Seq == 0 {
		return cluster.Mark{LSN: lsn}, nil
	}
	return cluster.Mark{}, cluster.ErrAbsent
}

func (l knownLog) Append(_ context.Context, after cluster.Mark, r cluster.Record) (cluster.Mark, error) {
	after.Seq, after.LSN, after.Epoch = after.Seq+1, r.LSN, r.Epoch
	return after, nil
}

// stayWith is a stay of the founder n1 in cluster shop, which was founded at a time. Its folder has a store that ends at
// transaction 1, with a mark of the cluster that began at marked; without one for zero.
func stayWith(t *testing.T, founded, marked time.Time, last cluster.Last) *stay {
	t.Helper()
	st := &stay{log: zap.NewNop(), node: "n1", shipped: knownLog{last: last}}
	st.settings.Data, st.settings.Cluster.Name = t.TempDir(), "shop"
	db, stop := testkit.OpenStore(t, st.dir(), store.Options{})
	st.agreed.Store, st.agreed.Founder, st.agreed.Created = db.ID(), "n1", founded
	testkit.Commit(t, db, store.Change{Checkpoints: []edda.Checkpoint{{Stream: "S", Seq: 1}}})
	stop()
	if !marked.IsZero() {
		testkit.Must(t, membership{"shop", marked, true}.write(st.dir()))
	}
	return st
}

// TestAStoreThatMayHaveMoreIsNotReplaced: one with another history that was no copy of this log has perhaps what was
// answered and what the log lacks. A copy of this log that has parted from it is replaced.
func TestAStoreThatMayHaveMoreIsNotReplaced(t *testing.T) {
	now, before := time.Unix(200, 0), time.Unix(100, 0)
	other := cluster.Last{Seq: 9, Message: cluster.Message{Record: cluster.Record{LSN: 7}}}
	for name, tt := range map[string]struct {
		marked time.Time
		says   string // empty: a copy may take its place
	}{
		"a store of its own":     {time.Time{}, "was no copy of it before"},
		"of the log before":      {before, "has more than the copy with which the log was begun again"},
		"of this log, but apart": {now, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := stayWith(t, now, tt.marked, other)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, _, err := st.replica(ctx)
				problem := st.beat().Problem
				if tt.says != "" {
					testkit.WantError(t, err, edda.Permanent, tt.says, "no copy may take its place")
				} else if testkit.WantError(t, err, context.DeadlineExceeded); !strings.Contains(problem, "no node owns the store now") {
					t.Errorf("it waits for something else than an owner to copy: %q", problem)
				}
			})
		})
	}
}

// TestACopyWithoutABucketSaysWhereItEnds at once, also where this node could not begin a cluster: an operator compares the
// copies of all nodes. After some time it believes the loss.
func TestACopyWithoutABucketSaysWhereItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := stayWith(t, time.Time{}, time.Unix(100, 0), cluster.Last{})
		testkit.WantError(t, st.noCopy(), errLooksLost, "the bucket of cluster shop, whose copy here ends at transaction 1")
		time.Sleep(lostWithin) // virtual
		testkit.WantError(t, st.noCopy(), edda.Permanent, "cluster shop has lost its bucket", "ends at transaction 1", "edda cluster relog")
		st.settings.Cluster.Name = "other"
		testkit.WantError(t, st.noCopy(), edda.Permanent, "a copy of the store of cluster shop, and there is no cluster other yet")
	})
	testkit.Must(t, stayWith(t, time.Time{}, time.Time{}, cluster.Last{}).noCopy())
}

// TestAnOwnerThatCannotRunItsManifestsGoesOnAsAStandby: a revision that came right before the end of the former owner may
// need a secret that this node lacks. It hands over, and its process does not end.
func TestAnOwnerThatCannotRunItsManifestsGoesOnAsAStandby(t *testing.T) {
	st := stayWith(t, time.Unix(200, 0), time.Time{}, cluster.Last{})
	st.metrics, st.revision = newClusterMetrics(0), revision{unfit: "secret TELL_KEY is missing"}
	r, at, err := st.replica(t.Context())
	testkit.Must(t, err)
	st.copy, st.owned = r, at
	testkit.WantError(t, st.own(t.Context(), quiet(), newSystemd(zap.NewNop())), errStays, "secret TELL_KEY is missing")
	if !st.over() {
		t.Error("it has not handed the log over")
	}
}

// TestALogThatBeginsAgainHasLaterEpochs than the one before it, whose owner may still run.
func TestALogThatBeginsAgainHasLaterEpochs(t *testing.T) {
	epoch := func(founded time.Time) uint64 {
		st := stayWith(t, founded, time.Time{}, cluster.Last{})
		r, at, err := st.replica(t.Context())
		testkit.Must(t, err)
		testkit.Must(t, r.Close())
		return at.Epoch
	}
	const takeovers = 1000 // fewer than one a second
	first := epoch(time.Unix(1000, 0))
	if again := epoch(time.Unix(1000+takeovers, 0)); first == 0 || again < first+takeovers {
		t.Errorf("the logs begin behind the epochs %d and %d", first, again)
	}
}
