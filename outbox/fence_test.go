package outbox

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"edda"
)

// TestNothingIsDeliveredWhileTheFenceIsClosed: and everything after it opens.
func TestNothingIsDeliveredWhileTheFenceIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		var shut atomic.Bool
		fence := func(context.Context) error {
			if shut.Load() {
				return edda.Classify(edda.Temporary, "shut")
			}
			return nil
		}
		start(t, db, Options{Routes: []Route{h.route("nats", facts...)}, Fence: fence})
		db.put(fact("a", "1"))
		wantIDs(t, h, "a")
		shut.Store(true)
		db.put(fact("b", "1"), fact("c", "2"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := h.tries(); n != 1 {
			t.Errorf("the destination was asked %d times behind the fence", n-1)
		}
		shut.Store(false)
		time.Sleep(2 * lastBackoff)
		synctest.Wait()
		if got := h.ids(); len(got) != 3 || db.size() != 0 {
			t.Errorf("accepted %v, %d rows left", got, db.size())
		}
	})
}

// TestStopDoesNotWaitForTheFence: ctx ends a delivery that waits in the fence.
func TestStopDoesNotWaitForTheFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, h := newMemStore(), newFakeDestination(t)
		fence := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		r, err := newRelay(db, Options{Routes: []Route{h.route("nats", facts...)}, Fence: fence})
		if err != nil {
			t.Fatal(err)
		}
		db.put(fact("a", "1"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || h.tries() != 0 || db.size() != 1 {
			t.Errorf("%d tries, %d rows", h.tries(), db.size())
		}
	})
}
