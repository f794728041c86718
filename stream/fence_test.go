package stream

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

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
