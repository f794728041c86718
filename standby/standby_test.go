package standby

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/store"
	"edda/store/wal"
	"edda/stream/clusterlog"
)

func TestMain(m *testing.M) { natscluster.Main(m) }

// within bounds what a test waits for. An election of NATS takes 4 to 9 s.
const within = 40 * time.Second

// machine is a machine with a folder, which has a replica or the store.
type machine struct {
	t    *testing.T
	name string
	dir  string
	log  cluster.Log

	replica *store.Replica
	db      *store.DB
	stop    func() // ends what runs on the folder
}

func newMachine(t *testing.T, name string, log cluster.Log) *machine {
	return &machine{t: t, name: name, dir: filepath.Join(t.TempDir(), name), log: log, stop: func() {}}
}

// adopt makes the first machine the owner of a new log, with a store that had a life before.
func (m *machine) adopt() {
	m.t.Helper()
	db, stop := testkit.OpenStore(m.t, m.dir, store.Options{})
	testkit.Must(m.t, commit(db, "before"))
	stop()
	m.open()
	m.promote()
}

// copyOf makes the folder a copy of another machine's.
func (m *machine) copyOf(other *machine) {
	m.t.Helper()
	s, err := other.db.Snapshot()
	testkit.Must(m.t, err)
	defer s.Close()
	backup := filepath.Join(m.t.TempDir(), "backup")
	f, err := os.Create(backup)
	testkit.Must(m.t, err)
	testkit.Must(m.t, errors.Join(s.WriteTo(m.t.Context(), f), f.Close()))
	_, err = store.RestoreReplica(m.t.Context(), backup, m.dir, other.db.ID(), store.ReplaceAside)
	testkit.Must(m.t, err)
	m.open()
}

func (m *machine) open() {
	m.t.Helper()
	var err error
	m.replica, err = store.OpenReplica(m.dir, store.Options{})
	testkit.Must(m.t, err)
	m.stop = func() { testkit.Must(m.t, m.replica.Close()) }
}

// follow follows the log until stop.
func (m *machine) follow() {
	m.t.Helper()
	at, err := Find(m.t.Context(), m.log, m.replica, true)
	testkit.Must(m.t, err)
	end := testkit.Run(m.t, func(ctx context.Context) error {
		if err := Follow(ctx, m.log, m.replica, at, ignore); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s follows: %w", m.name, err)
		}
		return nil
	})
	m.stop = func() { end(); testkit.Must(m.t, m.replica.Close()) }
}

func ignore(cluster.Mark, cluster.Record) {}

// promote takes the log over and opens the store.
func (m *machine) promote() {
	m.t.Helper()
	at, err := Find(m.t.Context(), m.log, m.replica, true)
	testkit.Must(m.t, err)
	at, err = cluster.Take(m.t.Context(), m.log, at, m.name, 1, applyTo(m.replica))
	testkit.Must(m.t, err)
	testkit.Must(m.t, m.replica.Close())
	owning, lose := context.WithCancel(context.Background())
	m.t.Cleanup(lose)
	var stop func()
	m.db, stop = testkit.OpenStore(m.t, m.dir, store.Options{Ship: NewShipper(owning, m.log, at, m.name, 1).Ship})
	m.stop = func() { lose(); stop() }
}

// commit writes an instance.
func commit(db *store.DB, id string) error {
	k := edda.Key{Tenant: "t", Saga: "s", Correlation: id}
	return db.Commit(context.Background(), store.Change{Transitions: []edda.Transition{{
		Key: k, Fate: edda.FateHandled, Event: edda.Event{ID: id, Time: time.Unix(1, 0).UTC()},
		Instance: &edda.Instance{Key: k, Version: 1, Status: edda.StatusRunning, State: []byte(`{"text":"` + strings.Repeat(id, 500) + `"}`)},
	}}})
}

func (m *machine) commits(ids ...string) {
	m.t.Helper()
	for _, id := range ids {
		testkit.Must(m.t, commit(m.db, id))
	}
}

func ids(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

// catchUp waits until a standby has what the owner has, and compares all rows.
func (m *machine) catchUp(owner *machine) {
	m.t.Helper()
	testkit.Until(m.t, within, "the standby has all transactions", func() bool { return m.replica.Point() == owner.db.Point() })
	_, want, err := owner.db.Hash(m.t.Context())
	testkit.Must(m.t, err)
	_, got, err := m.replica.Hash(m.t.Context())
	testkit.Must(m.t, err)
	if got != want {
		m.t.Errorf("the rows of %s are not those of %s", m.name, owner.name)
	}
}

// TestAStandbyTakesOver: what was committed on the machine that is lost is on the next one, and the first
// cannot commit any more.
func TestAStandbyTakesOver(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		log := newMemory()
		takesOver(t, func() cluster.Log { return log }, func() {})
	})
	t.Run("NATS", func(t *testing.T) {
		c := natscluster.Start(t)
		js := c.Connect(c.URLs())
		takesOver(t, func() cluster.Log {
			log, err := clusterlog.Open(t.Context(), js, clusterlog.Options{Shard: "0"})
			testkit.Must(t, err)
			return log
		}, func() {
			c.Kill(c.Leader(js, "EDDA_LOG_0"))
		})
	})
}

// takesOver runs two machines: b takes the log over while a still believes that it is the owner. It calls
// disturb between two commits of a.
func takesOver(t *testing.T, open func() cluster.Log, disturb func()) {
	a, b := newMachine(t, "A", open()), newMachine(t, "B", open())
	a.adopt()
	a.commits(ids("first", 20)...)
	b.copyOf(a)
	b.follow()
	a.commits(ids("second", 10)...)
	disturb()
	a.commits(ids("third", 20)...)
	b.catchUp(a)

	b.stop()
	b.open()
	b.promote()
	b.commits(ids("fourth", 10)...)
	if err := commit(a.db, "late"); !errors.Is(err, cluster.ErrFenced) {
		t.Errorf("an owner that was replaced commits: %v", err)
	}
	if err := commit(a.db, "later"); err == nil {
		t.Error("and goes on")
	}
	a.stop()
	a.open()
	if at, err := b.log.Find(t.Context(), a.replica.LSN()); err != nil || at.State == a.replica.Point().Sum {
		t.Errorf("its folder has no transaction that the log has not: %+v, %v", at, err)
	}
	a.follow()
	b.commits(ids("fifth", 10)...)
	a.catchUp(b)
	for _, id := range append([]string{"before"}, append(ids("third", 20), ids("fifth", 10)...)...) {
		if testkit.Cell(t, b.db, edda.Key{Tenant: "t", Saga: "s", Correlation: id}).Instance == nil {
			t.Errorf("%s is lost", id)
		}
	}
	if testkit.Cell(t, b.db, edda.Key{Tenant: "t", Saga: "s", Correlation: "late"}).Instance != nil {
		t.Error("what the log refused is there")
	}

	b.stop() // in order: the next owner has nothing to copy, and neither has the last one
	a.stop()
	a.open()
	a.promote()
	b.open()
	b.follow()
	a.commits(ids("sixth", 5)...)
	b.catchUp(a)
	b.stop()
	a.stop()
}

// silent is a log whose server stores nothing and says nothing.
type silent struct{ *memory }

func (silent) Append(ctx context.Context, _ cluster.Mark, _ cluster.Record) (cluster.Mark, error) {
	<-ctx.Done()
	return cluster.Mark{}, context.Cause(ctx)
}

// TestACommitWaitsForTheLog: it is not answered before the log has its record, and fails with the ownership.
func TestACommitWaitsForTheLog(t *testing.T) {
	owning, lose := context.WithCancelCause(t.Context())
	o := NewShipper(owning, silent{}, cluster.Mark{LSN: 4}, "A", 1)
	wait := o.Ship(5, make([]byte, 16))
	answered := make(chan error, 1)
	go func() { answered <- wait() }()
	select {
	case err := <-answered:
		t.Fatalf("a record that no server has is answered: %v", err)
	default:
	}
	lost := errors.New("lost")
	lose(lost)
	if err := <-answered; !errors.Is(err, lost) || o.Mark().LSN != 4 {
		t.Errorf("answered with %v at %+v", err, o.Mark())
	}
	if err := o.Err(); !errors.Is(err, lost) {
		t.Errorf("nothing can be appended any more, because of %v", err)
	}
	o = NewShipper(t.Context(), newMemory(), cluster.Mark{}, "A", 1)
	if err := o.Ship(7, make([]byte, 16))(); !errors.Is(err, edda.Permanent) {
		t.Errorf("a transaction that is not the next one: %v", err)
	}
}

// TestAStandbyStops: it goes on behind no record that leaves it with other rows than the owner has, and not
// without its disk.
func TestAStandbyStops(t *testing.T) {
	log := newMemory()
	a, b := newMachine(t, "A", log), newMachine(t, "B", log)
	a.adopt()
	b.copyOf(a)
	following := func(at cluster.Mark) chan error {
		ended := make(chan error, 1)
		go func() { ended <- Follow(t.Context(), log, b.replica, at, ignore) }()
		return ended
	}
	at, err := Find(t.Context(), log, b.replica, true)
	testkit.Must(t, err)
	told := make(chan cluster.Mark, 1)
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- Follow(ctx, log, b.replica, at, func(m cluster.Mark, _ cluster.Record) { told <- m }) }()
	a.commits("one")
	at = <-told
	cancel()
	if err := <-end; !errors.Is(err, context.Canceled) || at.LSN != a.db.Point().Transaction {
		t.Errorf("ended at %+v with %v", at, err)
	}

	ended := following(at)
	testkit.Must(t, b.replica.Close())
	if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("without its file: %v", err)
	}
	b.open()
	a.stop()
	entry := log.messages[len(log.messages)-1].Entry
	c := newMachine(t, "C", lying{log})
	c.dir = a.dir
	c.open()
	c.promote()
	c.commits("two")
	if err := <-following(at); !errors.Is(err, ErrDiverged) || !errors.Is(err, edda.Permanent) {
		t.Errorf("another state: %v", err)
	}
	_, err = c.log.Append(t.Context(), at, at.Next(cluster.Entry, "A", 1, entry))
	if !errors.Is(err, cluster.ErrFenced) {
		t.Errorf("an append of an older owner: %v", err)
	}
	apply := applyTo(b.replica)
	rec := cluster.Record{Kind: cluster.Entry, LSN: b.replica.LSN() + 1, Entry: entry}
	if err := apply(cluster.Mark{}, rec); !errors.Is(err, edda.Permanent) || !errors.Is(err, wal.ErrDamaged) {
		t.Errorf("the entry of another transaction: %v", err)
	}
	b.stop()
	c.stop()
}

// lying is the log of an owner whose store has other rows than it ships.
type lying struct{ *memory }

func (l lying) Append(ctx context.Context, after cluster.Mark, r cluster.Record) (cluster.Mark, error) {
	if r.Kind == cluster.Entry {
		r.State++
	}
	return l.memory.Append(ctx, after, r)
}
