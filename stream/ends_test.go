package stream

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"edda"
	"edda/engine"
	"edda/stream/wire"
)

func ends(ctx context.Context, t *testing.T, src *Source, stream string) engine.End {
	t.Helper()
	all, err := src.Ends(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range all {
		if end.Stream == stream {
			return end
		}
	}
	t.Fatalf("no end of %s", stream)
	return engine.End{}
}

// command publishes a message that is no input.
func (w *world) command(n int) {
	w.T.Helper()
	if _, err := w.JS.Publish(w.T.Context(), fmt.Sprintf("tenant.acme.effect.charge.c-%d", n), []byte("{}")); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) signal(tenant string, n int) uint64 {
	w.T.Helper()
	at, err := NewPublisher(w.JS, w.codec).Send(w.T.Context(), edda.Event{
		Kind: edda.KindSignal, ID: fmt.Sprintf("%s-signal-%d", tenant, n), Type: "hurry", Tenant: tenant,
		Key: edda.Key{Tenant: tenant, Saga: "order", Correlation: "O1"},
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return at.Seq
}

func wantEnd(t *testing.T, end engine.End, need, last uint64) {
	t.Helper()
	if end.Need != need || end.Last.Seq != last {
		t.Errorf("the end is %d of %d, want %d of %d", end.Need, end.Last.Seq, need, last)
	}
}

func TestEndsOfAnIdleStream(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		wantEnd(t, ends(ctx, t, src, wire.AggregateEvents), 0, 0)
		w.send("acme", "O1", 1)
		cp := w.checkpointAt(ctx, 1)
		end := ends(ctx, t, src, wire.AggregateEvents)
		wantEnd(t, end, 1, 1)
		if !end.Last.Time.Equal(cp.Time) || !end.Last.Created.Equal(cp.Created) || end.Last.Stream != wire.AggregateEvents {
			t.Errorf("the last message is %+v, want %+v", end.Last, cp)
		}
	})
}

func TestEndsSkipMessagesThatAreNoInputs(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		w.command(1)
		w.command(2)
		wantEnd(t, ends(ctx, t, src, wire.WorkflowCommands), 0, 2)
		w.signal("acme", 1)
		w.command(3)
		wantEnd(t, ends(ctx, t, src, wire.WorkflowCommands), 3, 4)
		wantEnd(t, ends(ctx, t, src, wire.WorkflowCommands), 3, 4)
		w.signal("acme", 2)
		wantEnd(t, ends(ctx, t, src, wire.WorkflowCommands), 5, 5)
	})
}

func TestEndsBeforeRun(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, err := OpenSource(ctx, w.JS, nil, SourceOptions{From: FromAll}) // it does not run
		if err != nil {
			t.Fatal(err)
		}
		w.signal("acme", 1)
		w.signal("acme", 2)
		w.command(1)
		w.send("acme", "O1", 1)
		wantEnd(t, ends(ctx, t, src, wire.WorkflowCommands), 2, 3)
		wantEnd(t, ends(ctx, t, src, wire.AggregateEvents), 1, 1)
	})
}

// TestEndsSkipDeletedMessages, because a Need that nothing can reach would stop every timer.
func TestEndsSkipDeletedMessages(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, err := OpenSource(ctx, w.JS, nil, SourceOptions{From: FromAll})
		if err != nil {
			t.Fatal(err)
		}
		w.send("acme", "O1", 1)
		w.send("acme", "O1", 2)
		s := w.Stream(ctx, wire.AggregateEvents)
		if err := s.DeleteMsg(ctx, 2); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, ends(ctx, t, src, wire.AggregateEvents), 1, 2)
		if err := s.Purge(ctx); err != nil {
			t.Fatal(err)
		}
		if end := ends(ctx, t, src, wire.AggregateEvents); end.Need != 0 {
			t.Errorf("the purged stream needs %d", end.Need)
		}
	})
}

func TestEndsSkipOtherTenants(t *testing.T) {
	for name, tenants := range map[string]wire.Tenants{"names": {"acme"}, "patterns": {"ac*"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				src, stop := w.open(ctx, nil, SourceOptions{Tenants: tenants})
				defer stop()
				w.signal("acme", 1)
				w.signal("beta", 1)
				wantEnd(t, ends(ctx, t, src, wire.WorkflowCommands), 1, 2)
				w.command(1)
				w.signal("beta", 2)
				wantEnd(t, ends(ctx, t, src, wire.WorkflowCommands), 1, 4)
			})
		})
	}
}

func TestEndsDoNotWaitForAReaderThatDoesNotRun(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, err := OpenSource(ctx, w.JS, nil, SourceOptions{From: FromAll, Tenants: wire.Tenants{"ac*"}})
		if err != nil {
			t.Fatal(err)
		}
		w.signal("beta", 1)
		wantEnd(t, ends(ctx, t, src, wire.WorkflowCommands), 1, 1) // too far, but never too near
	})
}

func TestEndsFailWithoutAServer(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		synctest.Wait()
		w.Restart(func() {
			if _, err := src.Ends(ctx); err == nil {
				t.Error("there are ends without a server")
			}
		})
		wantEnd(t, ends(ctx, t, src, wire.AggregateEvents), 0, 0)
	})
}
