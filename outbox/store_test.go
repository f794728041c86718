package outbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/internal/testkit"
	"edda/store"
)

// openStore opens a real store until the test ends.
func openStore(t *testing.T) *store.DB { return openCounted(t, nil) }

// openCounted opens a real store that counts its commits.
func openCounted(t *testing.T, commits *atomic.Int64) *store.DB {
	t.Helper()
	var o store.Options
	if commits != nil {
		o.Observe = func(int, int, time.Duration) { commits.Add(1) }
	}
	db, _ := testkit.OpenStore(t, t.TempDir(), o)
	return db
}

// emit commits one transition of an instance.
func emit(t *testing.T, db *store.DB, instance string, settled []string, w ...edda.Work) {
	t.Helper()
	key := edda.Key{Tenant: "t", Saga: "s", Correlation: instance}
	tr := edda.Transition{Key: key, Fate: edda.FateHandled, Event: edda.Event{ID: "e" + w[0].ID, Time: time.Now().UTC()},
		Instance: &edda.Instance{Key: key, Status: edda.StatusRunning}, Work: w, Settled: settled}
	testkit.Commit(t, db, store.Change{Transitions: []edda.Transition{tr}})
}

func TestRelayOverTheRealStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := openStore(t), newFakeDestination(t)
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		emit(t, db, "a", nil, fact("f1", "a"), effect("e1", "a"), fact("f2", "a"))
		emit(t, db, "b", nil, fact("g1", "b"))
		waitRemoved()
		if n, _ := db.OutboxSize(); n != 1 || len(h.ids()) != 4 {
			t.Fatalf("%d rows left of %v, want the effect's", n, h.ids())
		}
		emit(t, db, "a", []string{"e1"}, fact("f3", "a"))
		waitRemoved()
		if n, _ := db.OutboxSize(); n != 0 {
			t.Errorf("%d rows left after the effect's result", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(h.ids()); n != 5 {
			t.Errorf("%v accepted, want five", h.ids())
		}
	})
}

// After a restart the relay delivers rows that were not removed again, under the same ids.
func TestRelayAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := openStore(t), newFakeDestination(t)
		for i := range 50 {
			emit(t, db, fmt.Sprint(i), nil, effect(fmt.Sprintf("e%d", i), fmt.Sprint(i)), fact(fmt.Sprintf("f%d", i), fmt.Sprint(i)))
		}
		run := func(ctx context.Context) {
			r, err := New(db, Options{Routes: []Route{h.route("nats", facts...)}})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			run(ctx)
			cancel()
		}
		times := map[string]int{}
		for _, id := range h.ids() {
			times[id]++
		}
		for i := range 50 {
			if e, f := times[fmt.Sprintf("e%d", i)], times[fmt.Sprintf("f%d", i)]; e != 2 || f != 1 {
				t.Errorf("effect %d went out %d times, its fact %d, want 2 and 1", i, e, f)
			}
		}
	})
}

// TestDeliveredRowsAreRemovedByTheNextCommit: without a commit of their own.
func TestDeliveredRowsAreRemovedByTheNextCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var commits atomic.Int64
		db, h := openCounted(t, &commits), newFakeDestination(t)
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		const n = 50
		for i := range n {
			emit(t, db, "a", nil, fact(fmt.Sprint("f", i), "a"))
			synctest.Wait() // until the row is delivered
			time.Sleep(removeWithin / 2)
			if rows, _ := db.OutboxSize(); rows != 1 {
				t.Fatalf("%d rows after %d commits, want that of the last", rows, i+1)
			}
		}
		if commits.Load() != n {
			t.Errorf("%d commits of %d", commits.Load(), n)
		}
		waitRemoved()
		if rows, _ := db.OutboxSize(); rows != 0 || commits.Load() != n+1 {
			t.Errorf("%d rows, %d commits", rows, commits.Load())
		}
	})
}

// TestStopLogsNoError: the relay logged an error when ctx ended while delivered rows waited to join
// a commit.
func TestStopLogsNoError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := openStore(t), newFakeDestination(t)
		core, logged := observer.New(zap.ErrorLevel)
		r, err := newRelay(db, Options{Routes: []Route{h.route("nats", facts...)}, Log: zap.New(core), Jitter: half})
		if err != nil {
			t.Fatal(err)
		}
		stop := testkit.Run(t, r.Run)
		emit(t, db, "a", nil, fact("f1", "a"))
		synctest.Wait() // until the row is delivered; it is not removed yet
		stop()
		if rows, _ := db.OutboxSize(); rows != 0 || logged.Len() != 0 {
			t.Errorf("%d rows are left; logged: %v", rows, logged.All())
		}
	})
}

// TestQueuedRowsOfADownDestinationBlockNothing: the command was never offered, and the fact of its
// instance is delivered as soon as the gateway counts as down.
func TestQueuedRowsOfADownDestinationBlockNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, nats, gateway := newMemStore(), newFakeDestination(t), newFakeDestination(t)
		gateway.refusing(alwaysNo)
		l := gateway.route("gateway", edda.WorkCommand)
		l.Batch = 1
		for _, id := range names("c", downAfter) {
			db.put(command(id, id))
		}
		db.put(command("queued", "a"), fact("f", "a"))
		start(t, db, Options{Routes: []Route{nats.route("nats", facts...), l}})
		wantIDs(t, nats, "f")
	})
}

// TestFlushWaitsForRetries: a row that failed once is not undeliverable.
func TestFlushWaitsForRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		failed := false
		h.refusing(func(edda.Work) error {
			if failed {
				return nil
			}
			failed = true
			return errDown
		})
		r := start(t, db, Options{Routes: []Route{h.route("nats", facts...)}})
		db.put(fact("f", "a"))
		if err := r.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		wantIDs(t, h, "f")
	})
}
