package stream

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"edda"
	"edda/stream/wire"
)

// TestAReaderBehindTheFenceLeavesTheConsumerAlone: another process with a copy of the store reads with a consumer
// of the same name. A process that was frozen meanwhile must not replace it.
func TestAReaderBehindTheFenceLeavesTheConsumerAlone(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		var shut atomic.Bool
		fence := func(context.Context) error {
			if shut.Load() {
				return errors.New("the lease was taken over")
			}
			return nil
		}
		before, stopBefore := w.open(ctx, nil, SourceOptions{Name: "store", Fence: fence})
		defer stopBefore()
		w.send("acme", "O1", 0)
		fetch(ctx, t, before, 1)

		shut.Store(true)
		after, stopAfter := w.open(ctx, nil, SourceOptions{Name: "store"})
		defer stopAfter()
		fetch(ctx, t, after, 1)
		created := func() time.Time {
			consumer, err := w.JS.Consumer(ctx, wire.AggregateEvents, wire.ConsumerName("saga", "", "store"))
			w.Must(err)
			return consumer.CachedInfo().Created
		}
		was := created()
		before.Recheck() // as after a lost connection
		for i := range 20 {
			time.Sleep(retryMost)
			w.send("acme", "O1", 1+i)
			fetch(ctx, t, after, 1)
		}
		if now := created(); !now.Equal(was) {
			t.Errorf("the consumer of %v was replaced at %v", was, now)
		}
		if err := before.Failing(); err == nil {
			t.Error("the former process reads, or does not say why not")
		}
		shut.Store(false)
		stopAfter()
		fetch(ctx, t, before, 20)
	})
}

// TestDeliverPassesTheFenceBeforeEachWindow: a process may be frozen between two of them.
func TestDeliverPassesTheFenceBeforeEachWindow(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p := NewPublisher(w.JS, w.codec)
		taken, passes := errors.New("the lease was taken over"), 0
		p.Fence(func(context.Context) error {
			if passes++; passes > 1 {
				return taken
			}
			return nil
		})
		errs := p.Deliver(ctx, facts(publishWindow+10))
		for i, err := range errs {
			if want := i >= publishWindow; errors.Is(err, taken) != want {
				t.Fatalf("fact %d: %v", i, err)
			}
		}
		if stored := w.messages(ctx, wire.WorkflowEvents); stored != publishWindow {
			t.Errorf("%d facts are stored, want %d", stored, publishWindow)
		}
	})
}

// TestNothingWaitsInTheClientForAConnection: it would be sent later, behind the fence.
func TestNothingWaitsInTheClientForAConnection(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p := NewPublisher(w.JS, w.codec)
		p.Deliver(ctx, facts(1))
		w.Restart(func() {
			time.Sleep(time.Second)
			for _, err := range p.Deliver(ctx, facts(10)[1:]) {
				if !errors.Is(err, edda.Temporary) {
					t.Errorf("without a connection: %v", err)
				}
			}
		})
		time.Sleep(time.Minute)
		if stored := w.messages(ctx, wire.WorkflowEvents); stored != 1 {
			t.Errorf("%d facts are stored, want 1", stored)
		}
	})
}

func (w *world) messages(ctx context.Context, stream string) int {
	w.T.Helper()
	s, err := w.JS.Stream(ctx, stream)
	w.Must(err)
	return int(s.CachedInfo().State.Msgs)
}
