package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"edda"
)

func (w *world) await(ctx context.Context, ev edda.Event) (EventResult, error) {
	return w.engine.Await(ctx, ev.Tenant, ev.ID, func(context.Context) error {
		w.streams.publish("A", ev)
		return nil
	})
}

func TestAwaitReturnsTheDurableOutcome(t *testing.T) {
	inWorld(t, func(w *world) {
		w.gate.set(true, nil)
		got := make(chan EventResult, 1)
		go func() {
			o, err := w.await(context.Background(), event("e1", "add", "k"))
			if err != nil {
				t.Error(err)
			}
			got <- o
		}()
		settle()
		if len(got) != 0 {
			t.Fatal("an outcome before the commit")
		}
		if n := w.metric("edda_waiters"); n != 1 {
			t.Errorf("waiters: %v", n)
		}
		w.gate.set(false, nil)
		o := <-got
		if o.Key != key("k") || o.Fate != edda.FateHandled || o.Status != edda.StatusRunning || len(o.Outputs) != 1 {
			t.Errorf("outcome: %+v", o)
		}
		if n := w.metric("edda_waiters"); n != 0 {
			t.Errorf("waiters after: %v", n)
		}
	})
}

func TestAwaitReturnsFatesOfEventsNotApplied(t *testing.T) {
	inWorld(t, func(w *world) {
		for typ, want := range map[string]edda.Fate{"drop": edda.FateIgnored, "nokey": edda.FateDead, "panic": edda.FateDead} {
			o, err := w.await(context.Background(), event("e-"+typ, typ, "k-"+typ))
			if err != nil || o.Fate != want || (o.Dead != nil) != (want == edda.FateDead) {
				t.Errorf("%s: %+v, %v", typ, o, err)
			}
		}
	})
}

func TestAwaitIgnoresEventsOfOtherTenants(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := w.engine.Await(ctx, "other", "e1", func(context.Context) error {
			w.streams.publish("A", event("e1", "add", "k"))
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if len(w.engine.waiters.byKey) != 0 || w.engine.waiters.n != 0 {
			t.Error("the waiter stays")
		}
	})
}

func TestAwaitFailsWithItsPublish(t *testing.T) {
	inWorld(t, func(w *world) {
		refused := errors.New("refused")
		_, err := w.engine.Await(context.Background(), "acme", "e1", func(context.Context) error { return refused })
		if !errors.Is(err, refused) || w.engine.waiters.n != 0 {
			t.Errorf("got %v, %d waiters", err, w.engine.waiters.n)
		}
	})
}

func TestAwaitEndsWithTheEngine(t *testing.T) {
	inWorld(t, func(w *world) {
		got := make(chan error, 1)
		go func() {
			_, err := w.engine.Await(context.Background(), "acme", "never", func(context.Context) error { return nil })
			got <- err
		}()
		synctest.Wait()
		w.stop()
		if err := <-got; !errors.Is(err, ErrStopped) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWaitersAreBounded(t *testing.T) {
	w := newWaiters(newMetrics(nil).waiters)
	for i := range maxWaiters {
		if _, err := w.add(waitKey{"acme", fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.add(waitKey{"acme", "more"}); !errors.Is(err, edda.Temporary) {
		t.Errorf("got %v", err)
	}
}
