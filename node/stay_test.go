package node

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

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
		testkit.Must(t, membership{"shop", marked, true, true}.write(st.dir()))
	}
	return st
}

// TestAStoreThatMayHaveMoreIsNotReplaced: one that is no part of the log has perhaps what was answered and what the log
// lacks. If it is a copy of this log, the log has lost that.
func TestAStoreThatMayHaveMoreIsNotReplaced(t *testing.T) {
	now, before := time.Unix(200, 0), time.Unix(100, 0)
	const empty = math.MaxUint64
	for name, tt := range map[string]struct {
		marked time.Time
		ends   uint64 // the log, which has no record of this store
		says   string
	}{
		"a store of its own":                    {time.Time{}, 7, "was no copy of it before"},
		"of the log before":                     {before, 7, "has more than the copy with which the log was begun again"},
		"of the log before, and this ends here": {before, 0, "has more than the copy with which the log was begun again"},
		"of this log":                           {now, 7, "cluster shop has lost its records"},
		"of this log, which ends before":        {now, 0, "cluster shop has lost its records"},
		"of this log, which has nothing":        {now, empty, "cluster shop has lost its log"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				last := cluster.Last{Seq: 9, Message: cluster.Message{Record: cluster.Record{LSN: tt.ends}}}
				if tt.ends == empty {
					last = cluster.Last{}
				}
				st := stayWith(t, now, tt.marked, last)
				testkit.Must(t, st.tellCopy())
				_, _, err := st.replica(t.Context())
				testkit.WantError(t, err, edda.Permanent, "transaction 1", tt.says)
				if b := st.beat(); !tt.marked.IsZero() && (b.LSN != 1 || b.Epoch != epochBefore(tt.marked)) || st.more.Load() != tt.marked.Equal(now) {
					t.Errorf("it beats %+v, and its beat stays: %t", b, st.more.Load())
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
		time.Sleep(cluster.LostWithin) // virtual
		testkit.WantError(t, st.noCopy(), edda.Permanent, "cluster shop has lost its bucket", "ends at transaction 1", "edda cluster relog")
		st.settings.Cluster.Name = "other"
		testkit.WantError(t, st.noCopy(), edda.Permanent, "a copy of the store of cluster shop, and there is no cluster other yet")
	})
	testkit.Must(t, stayWith(t, time.Time{}, time.Time{}, cluster.Last{}).noCopy())
}

// TestAnOwnerThatCannotRunItsManifestsGoesOnAsAStandby: a revision that came right before the end of the former owner may
// need a secret that this node lacks. It hands over, and its process does not end. While the log has not taken the end, the
// last beat of this node stays.
func TestAnOwnerThatCannotRunItsManifestsGoesOnAsAStandby(t *testing.T) {
	for name, deaf := range map[string]bool{"handed over": false, "the log does not answer": true} {
		t.Run(name, func(t *testing.T) {
			st := stayWith(t, time.Unix(200, 0), time.Time{}, cluster.Last{})
			st.metrics, st.revision = newClusterMetrics(0), revision{unfit: "secret TELL_KEY is missing"}
			core, logs := observer.New(zap.InfoLevel)
			st.log = zap.New(core)
			r, at, err := st.replica(t.Context())
			testkit.Must(t, err)
			if st.copy, st.owned = r, at; deaf {
				st.shipped = deafLog{}
			}
			testkit.WantError(t, st.own(t.Context(), quiet(), newSystemd(zap.NewNop())), errStays, "secret TELL_KEY is missing")
			if !st.over() || st.more.Load() != deaf {
				t.Errorf("its ownership has ended: %t, and its beat stays: %t", st.over(), st.more.Load())
			}
			if handed := logs.FilterMessage("handed the store over").All(); !deaf && (len(handed) != 1 || len(handed[0].ContextMap()) > 0) {
				t.Errorf("to no other node: %+v", handed)
			}
			if m, err := membershipOf(st.dir()); err != nil || m.Follows {
				t.Errorf("after an ownership the copy may have a transaction that the log never took: %+v, %v", m, err)
			}
		})
	}
}

// deafLog takes nothing.
type deafLog struct{ cluster.Log }

func (deafLog) Append(context.Context, cluster.Mark, cluster.Record) (cluster.Mark, error) {
	return cluster.Mark{}, errShippingEnded
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

// TestALogIsComparedWithACopy that ends at transaction 1, before that copy takes its place.
func TestALogIsComparedWithACopy(t *testing.T) {
	now := time.Unix(200, 0)
	for name, tt := range map[string]struct {
		marked  time.Time
		follows bool
		ends    uint64 // the log, at message 9; 0 with empty: it has none
		empty   bool
		found   error // nil: it has the copy's transaction, with the checksum
		sum     uint32
		whole   bool
		more    string
	}{
		"it is empty":                         {marked: now, follows: true, empty: true},
		"it ends alike":                       {marked: now, follows: true, ends: 1, whole: true},
		"it ends later":                       {marked: now, follows: true, ends: 5, whole: true, more: "the log has, up to transaction 5"},
		"it begins later":                     {marked: now, follows: true, ends: 5, found: cluster.ErrTrimmed, whole: true, more: "the log has, up to transaction 5"},
		"it ends earlier":                     {marked: now, follows: true, ends: 0, found: cluster.ErrAbsent},
		"the copy was an owner's, one ahead":  {marked: now, ends: 0, found: cluster.ErrAbsent, whole: true},
		"it has another transaction":          {marked: now, follows: true, ends: 1, sum: 1, more: "the log has, up to transaction 1"},
		"it was begun again, and ends alike":  {marked: time.Unix(100, 0), follows: true, ends: 1, more: "the log has, up to transaction 1"},
		"it was begun again, and ends before": {marked: time.Unix(100, 0), follows: true, ends: 0, found: cluster.ErrAbsent, more: "the log has, up to transaction 0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := stayWith(t, now, tt.marked, cluster.Last{})
				r, err := st.openCopy()
				testkit.Must(t, err)
				defer func() { testkit.Must(t, r.Close()) }()
				log := comparedLog{found: tt.found, at: cluster.Mark{Seq: 9, LSN: 1, State: r.Point().Sum + tt.sum}}
				if !tt.empty {
					log.last = cluster.Last{Seq: 9, Message: cluster.Message{Record: cluster.Record{LSN: tt.ends}}}
				}
				st.shipped = log
				began := time.Now()
				c, err := st.compare(t.Context(), r, &membership{Created: tt.marked, Follows: tt.follows}, now)
				testkit.Must(t, err)
				if took := time.Since(began); c.whole != tt.whole || c.more != tt.more || !c.whole && took < cluster.LostWithin {
					t.Errorf("after %s: %+v", took, c)
				}
			})
		})
	}
}

// TestOnlyAFormerOwnerGivesATransactionUp that the log does not have.
func TestOnlyAFormerOwnerGivesATransactionUp(t *testing.T) {
	for name, follows := range map[string]bool{"a standby": true, "a former owner": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Unix(200, 0)
				st := stayWith(t, now, now, cluster.Last{Seq: 9, Message: cluster.Message{Record: cluster.Record{LSN: 1}}})
				db, stop := testkit.OpenStore(t, st.dir(), store.Options{Ship: func(uint64, []byte) func() error {
					return func() error { return context.Canceled }
				}})
				first := db.Point()
				if err := db.Commit(t.Context(), store.Change{Checkpoints: []edda.Checkpoint{{Stream: "S", Seq: 2}}}); err == nil {
					t.Error("it is committed without the log")
				}
				stop()
				testkit.Must(t, membership{"shop", now, true, follows}.write(st.dir()))
				st.shipped = endedLog{st.shipped, cluster.Mark{Seq: 9, LSN: first.Transaction, State: first.Sum}}
				r, at, err := st.replica(t.Context())
				if follows {
					testkit.WantError(t, err, edda.Permanent, "cluster shop has lost its records", "ends at transaction 2")
					return
				}
				testkit.Must(t, err)
				m, err := membershipOf(st.dir())
				if testkit.Must(t, err); r.LSN() != 1 || at.LSN != 1 || !m.Follows {
					t.Errorf("it ends at %d, reads on from %+v, and its mark is %+v", r.LSN(), at, m)
				}
				testkit.Must(t, r.Close())
			})
		})
	}
}

// TestALogThatLooksEmptyAgain for a moment, hours after it has first: that is no loss.
func TestALogThatLooksEmptyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Unix(200, 0)
		st := stayWith(t, now, now, cluster.Last{})
		r, err := st.openCopy()
		testkit.Must(t, err)
		at := cluster.Mark{Seq: 9, LSN: 1, State: r.Point().Sum}
		testkit.Must(t, r.Close())
		for range 2 {
			log := &lateLog{endedLog: endedLog{at: at}, from: time.Now().Add(2 * joinAgain)}
			st.shipped = log
			r, _, err := st.replica(t.Context())
			testkit.Must(t, err)
			testkit.Must(t, r.Close())
			if log.empty == 0 || st.more.Load() {
				t.Errorf("it has looked empty %d times, and the beat of this node stays: %t", log.empty, st.more.Load())
			}
			time.Sleep(time.Hour) // virtual
		}
	})
}

// lateLog looks empty until a time.
type lateLog struct {
	endedLog
	from  time.Time
	empty int // how often it was
}

func (l *lateLog) End(context.Context) (cluster.Last, error) {
	if time.Now().Before(l.from) {
		l.empty++
		return cluster.Last{}, nil
	}
	return cluster.Last{Seq: l.at.Seq, Message: cluster.Message{Record: cluster.Record{LSN: l.at.LSN}}}, nil
}

// TestACopyWhosePlaceIsTrimmedIsMadeAnew: another owner wrote a transaction with the number of the last one of this copy, and
// the log begins with that.
func TestACopyWhosePlaceIsTrimmedIsMadeAnew(t *testing.T) {
	now := time.Unix(200, 0)
	st := stayWith(t, now, now, cluster.Last{Seq: 99, Message: cluster.Message{Record: cluster.Record{LSN: 50}}})
	testkit.Must(t, membership{"shop", now, true, false}.write(st.dir()))
	st.shipped = begunLog{st.shipped, cluster.Mark{Seq: 9, LSN: 1, State: 12345}}
	_, _, err := st.openReplica(t.Context())
	testkit.WantError(t, err, cluster.ErrTrimmed, "give up transaction 1")
}

// begunLog begins with the record before a mark.
type begunLog struct {
	cluster.Log
	at cluster.Mark
}

func (l begunLog) Find(_ context.Context, lsn uint64) (cluster.Mark, error) {
	if lsn < l.at.LSN {
		return cluster.Mark{}, cluster.ErrTrimmed
	}
	return l.at, nil
}

// endedLog ends at a mark.
type endedLog struct {
	cluster.Log
	at cluster.Mark
}

func (l endedLog) Find(_ context.Context, lsn uint64) (cluster.Mark, error) {
	if lsn > l.at.LSN {
		return cluster.Mark{}, cluster.ErrAbsent
	}
	return l.at, nil
}

// comparedLog is a log that answers about one transaction.
type comparedLog struct {
	knownLog
	at    cluster.Mark
	found error
}

func (l comparedLog) Find(ctx context.Context, lsn uint64) (cluster.Mark, error) {
	if l.last.Seq == 0 {
		return l.knownLog.Find(ctx, lsn)
	}
	return l.at, l.found
}

// TestAStandbyNamesEachOwnerOnce: its log told the death of an owner, and never the next one.
func TestAStandbyNamesEachOwnerOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	st := &stay{log: zap.New(core), node: "n1"}
	for _, o := range []cluster.Ownership{
		{Run: "n2.1", Epoch: 7}, {Run: "n2.1", Epoch: 7}, // at the start, and with a record
		{Run: "n3.1", Epoch: 5}, // an earlier record, while it catches up
		{Run: "n2.1", Epoch: 7}, {Run: "n2.1", Epoch: 7, Sealed: true}, {Run: "n3.1", Epoch: 8}, {Run: "n1.1", Epoch: 9},
	} {
		st.tell(cluster.Mark{}, o)
	}
	var named []any
	for _, e := range logs.FilterMessage("the log has another owner").All() {
		named = append(named, e.ContextMap()["owner"], e.ContextMap()["epoch"])
	}
	if fmt.Sprint(named) != "[n2 7 n3 8]" {
		t.Errorf("it names %v", named)
	}
}
