package standby

import (
	"context"
	"errors"
	"testing"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/store"
)

// unsure makes a an owner whose last commit the log has not acknowledged: the log answers nothing. stored says
// that the log has it all the same. The machine is closed.
func unsure(t *testing.T, a *machine, log *memory, stored bool) {
	t.Helper()
	a.log = log
	a.open()
	at, err := Find(t.Context(), log, a.replica, true)
	testkit.Must(t, err)
	at, err = cluster.Take(t.Context(), log, at, a.name, 1, applyTo(a.replica))
	testkit.Must(t, err)
	testkit.Must(t, a.replica.Close())
	lost := errors.New("lost")
	owning, lose := context.WithCancelCause(t.Context())
	var s *Shipper
	if stored {
		s = NewShipper(owning, mute{log}, at, a.name, 1)
	} else {
		s = NewShipper(owning, silent{log}, at, a.name, 1)
	}
	db, stop := testkit.OpenStore(t, a.dir, store.Options{Ship: s.Ship})
	lose(lost)
	if err := commit(db, "unsure"); err == nil {
		t.Fatal("a commit that nobody acknowledges is answered")
	}
	stop()
	a.open()
	if a.replica.LSN() != at.LSN+1 {
		t.Fatalf("the folder is at transaction %d, and the log was at %d", a.replica.LSN(), at.LSN)
	}
}

// mute is a log whose server stores and does not answer.
type mute struct{ *memory }

func (l mute) Append(ctx context.Context, after cluster.Mark, r cluster.Record) (cluster.Mark, error) {
	if _, err := l.memory.Append(ctx, after, r); err != nil {
		return cluster.Mark{}, err
	}
	<-ctx.Done()
	return cluster.Mark{}, context.Cause(ctx)
}

// TestAnUnsureTransactionIsGivenUp: if the log ends before it, or has another one there, and if the log
// agrees on the one before.
func TestAnUnsureTransactionIsGivenUp(t *testing.T) {
	for _, followed := range []bool{false, true} {
		log := newMemory()
		a, b := newMachine(t, "A", log), newMachine(t, "B", log)
		a.adopt()
		b.copyOf(a)
		b.follow()
		a.commits("one", "two")
		b.catchUp(a)
		b.stop()
		a.stop()
		unsure(t, a, log, false)
		was := a.replica.Point()
		if followed {
			b.open()
			b.promote()
			b.commits("three", "four")
		}
		a.follow()
		if a.replica.LSN() < was.Transaction-1 {
			t.Errorf("it is at %+v, and was at %+v", a.replica.Point(), was)
		}
		if !followed {
			a.stop()
			a.open()
			a.promote()
			a.commits("five")
			b.open()
			b.follow()
			a, b = b, a
		}
		a.catchUp(b)
		if testkit.Cell(t, b.db, edda.Key{Tenant: "t", Saga: "s", Correlation: "unsure"}).Instance != nil {
			t.Error("what the log has not is there")
		}
		a.stop()
		b.stop()
	}
}

// TestATransactionOfTheLogIsNotGivenUp, although its owner never heard of it.
func TestATransactionOfTheLogIsNotGivenUp(t *testing.T) {
	log := newMemory()
	a := newMachine(t, "A", log)
	a.adopt()
	a.stop()
	unsure(t, a, log, true)
	was := a.replica.Point()
	at, err := Find(t.Context(), log, a.replica, true)
	if err != nil || a.replica.Point() != was || at.LSN != was.Transaction {
		t.Errorf("%+v: %v, it is at %+v and was at %+v", at, err, a.replica.Point(), was)
	}
	a.promote()
	if testkit.Cell(t, a.db, edda.Key{Tenant: "t", Saga: "s", Correlation: "unsure"}).Instance == nil {
		t.Error("what the log has is lost")
	}
	a.stop()
}

// TestAReplicaWithMoreStaysDiverged: Find cuts nothing off if the replica has two transactions more than the log, if the
// transaction is in the buckets, if a backup was taken since, or if the transaction before it differs.
func TestAReplicaWithMoreStaysDiverged(t *testing.T) {
	begin := func() (*memory, *machine) {
		log := newMemory()
		a := newMachine(t, "A", log)
		a.adopt()
		a.commits("one")
		a.stop()
		return log, a
	}
	alone := func(a *machine, ids ...string) { // without the log
		db, stop := testkit.OpenStore(t, a.dir, store.Options{})
		for _, id := range ids {
			testkit.Must(t, commit(db, id))
		}
		stop()
	}
	for what, diverge := range map[string]func(log *memory, a *machine){
		"two":                func(_ *memory, a *machine) { alone(a, "two", "three") },
		"one in the buckets": func(_ *memory, a *machine) { alone(a, "two") },
		"one, and a backup was taken": func(log *memory, a *machine) {
			unsure(t, a, log, false)
			s, err := a.replica.Snapshot()
			testkit.Must(t, err)
			s.Close()
			a.stop()
		},
		"another before": func(log *memory, a *machine) {
			for i := range log.messages {
				if m := &log.messages[i]; m.Kind == cluster.Entry {
					m.State++
				}
			}
			db, stop := testkit.OpenStore(t, a.dir, store.Options{Ship: func(uint64, []byte) func() error { return func() error { return errors.New("away") } }})
			if commit(db, "two") == nil {
				t.Error("it is answered")
			}
			stop()
		},
	} {
		log, a := begin()
		diverge(log, a)
		a.open()
		was := a.replica.Point()
		if _, err := Find(t.Context(), log, a.replica, true); !errors.Is(err, ErrDiverged) || !errors.Is(err, edda.Permanent) {
			t.Errorf("%s: %v", what, err)
		}
		if a.replica.Point() != was {
			t.Errorf("%s: it is at %+v and was at %+v", what, a.replica.Point(), was)
		}
		a.stop()
	}
}

// trimmed is a log that does not have a record any more.
type trimmed struct {
	*memory
	lsn uint64
	err error
}

func (l trimmed) Find(ctx context.Context, lsn uint64) (cluster.Mark, error) {
	if lsn == l.lsn {
		return cluster.Mark{}, l.err
	}
	return l.memory.Find(ctx, lsn)
}

// TestWithoutTheTransactionBeforeNothingIsGivenUp: nobody knows whether the log agrees.
func TestWithoutTheTransactionBeforeNothingIsGivenUp(t *testing.T) {
	away := errors.New("nobody answers")
	for _, err := range []error{cluster.ErrTrimmed, cluster.ErrAbsent, away} {
		log := newMemory()
		a := newMachine(t, "A", log)
		a.adopt()
		a.stop()
		unsure(t, a, log, false)
		was := a.replica.Point()
		_, found := Find(t.Context(), trimmed{log, was.Transaction - 1, err}, a.replica, true)
		if errors.Is(found, ErrDiverged) == (err == away) || err == away && !errors.Is(found, away) {
			t.Errorf("%v: %v", err, found)
		}
		if a.replica.Point() != was {
			t.Errorf("%v: it is at %+v and was at %+v", err, a.replica.Point(), was)
		}
		_, found = Find(t.Context(), log, a.replica, true)
		if found != nil || a.replica.Point() == was || a.replica.LSN() != was.Transaction-1 {
			t.Errorf("with the log: %v, at %+v", found, a.replica.Point())
		}
		a.stop()
	}
}

// TestAReplicaThatOnlyFollowedGivesNothingUp: the log had all of it, so the log has lost its end.
func TestAReplicaThatOnlyFollowedGivesNothingUp(t *testing.T) {
	log := newMemory()
	a := newMachine(t, "A", log)
	a.adopt()
	a.stop()
	unsure(t, a, log, false)
	was := a.replica.Point()
	_, err := Find(t.Context(), log, a.replica, false)
	testkit.WantError(t, err, ErrDiverged, cluster.ErrAbsent.Error())
	if a.replica.Point() != was {
		t.Errorf("it is at %+v and was at %+v", a.replica.Point(), was)
	}
	a.stop()
}
