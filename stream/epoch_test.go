package stream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/engine"
	"edda/stream/wire"
)

// consumers returns the names of a stream's consumers.
func (w *world) consumers(ctx context.Context, stream string) (names []string) {
	w.T.Helper()
	list := w.Stream(ctx, stream).ConsumerNames(ctx)
	for name := range list.Name() {
		names = append(names, name)
	}
	w.Must(list.Err())
	slices.Sort(names)
	return names
}

// TestAnOwnerRemovesTheConsumersOfFormerOnes: and no others. A former owner that passes its
// fence too late does not disturb it.
func TestAnOwnerRemovesTheConsumersOfFormerOnes(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		name := wire.ConsumerName("saga", "", "store")
		strangers := []string{
			name + "-e9", name + "-e07", name + "-e-1", name + "-e", name + "-x1", name + "x-e1", "orders", // -e9: of a higher epoch
			wire.ConsumerName("saga", "", "other"), wire.ConsumerName("saga", "", "other") + "-e1",
		}
		for _, consumer := range append([]string{name, name + "-e3"}, strangers...) {
			_, err := w.JS.CreateConsumer(ctx, wire.AggregateEvents, jetstream.ConsumerConfig{Durable: consumer})
			w.Must(err)
		}
		var shut atomic.Bool
		fence := func(context.Context) error {
			if shut.Load() {
				return errors.New("the lease was taken over")
			}
			return nil
		}
		former, stopFormer := w.open(ctx, nil, SourceOptions{Name: "store", Epoch: 7, Fence: fence})
		defer stopFormer()
		w.send("acme", "O1", 0)
		fetch(ctx, t, former, 1)
		synctest.Wait()
		want := func(own ...string) {
			t.Helper()
			all := append(own, strangers...)
			slices.Sort(all)
			diff(t, w.consumers(ctx, wire.AggregateEvents), all)
		}
		want(name + "-e7")

		shut.Store(true)
		owner, stop := w.open(ctx, nil, SourceOptions{Name: "store", Epoch: 8})
		defer stop()
		fetch(ctx, t, owner, 1)
		synctest.Wait()
		want(name + "-e8")

		created := func() time.Time {
			consumer, err := w.JS.Consumer(ctx, wire.AggregateEvents, name+"-e8")
			w.Must(err)
			return consumer.CachedInfo().Created
		}
		was := created()
		shut.Store(false)
		for i := range 3 {
			former.Recheck() // as after a lost connection
			w.send("acme", "O1", 1+i)
			fetch(ctx, t, former, 1)
			fetch(ctx, t, owner, 1)
		}
		want(name+"-e7", name+"-e8")
		if now := created(); !now.Equal(was) {
			t.Errorf("the owner's consumer of %v was replaced at %v", was, now)
		}
	})
}

// TestAProcessWithoutAClusterLeavesTheConsumersOfEpochsAlone: it does not know whether their owner
// reads.
func TestAProcessWithoutAClusterLeavesTheConsumersOfEpochsAlone(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		owner, stopOwner := w.open(ctx, nil, SourceOptions{Name: "store", Epoch: 7})
		defer stopOwner()
		w.send("acme", "O1", 0)
		fetch(ctx, t, owner, 1)
		single, stop := w.open(ctx, nil, SourceOptions{Name: "store"})
		defer stop()
		fetch(ctx, t, single, 1)
		synctest.Wait()
		name := wire.ConsumerName("saga", "", "store")
		diff(t, w.consumers(ctx, wire.AggregateEvents), []string{name, name + "-e7"})
	})
}

// TestACatchUpOfANewOwnerRemovesThatOfTheFormerOne: of the same saga and tenant.
func TestACatchUpOfANewOwnerRemovesThatOfTheFormerOne(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.send("acme", "O1", 0)
		open := func(epoch uint64, tenant string) *CatchUp {
			p := engine.SagaTenant{Tenant: tenant, Saga: "late"}
			past, err := OpenCatchUp(ctx, w.JS, p, nil, SourceOptions{Name: "store", Epoch: epoch})
			w.Must(err)
			if got, _ := read(ctx, t, past); len(got) != 1 {
				t.Errorf("epoch %d read %v", epoch, got)
			}
			return past
		}
		former, other := open(7, "acme"), open(7, engine.AllTenants)
		former.cancel() // as if its process had ended
		<-former.ended
		past := open(8, "acme")
		acme, all := wire.ConsumerName("catchup", "late", "store\x00acme"), wire.ConsumerName("catchup", "late", "store\x00"+engine.AllTenants)
		want := []string{acme + "-e8", all + "-e7"}
		slices.Sort(want)
		diff(t, w.consumers(ctx, wire.AggregateEvents), want)
		past.Close()
		other.Close()
		diff(t, w.consumers(ctx, wire.AggregateEvents), nil)
	})
}

// TestAnOwnerReadsWhileFormerConsumersCannotBeRemoved: and removes them with its next consumer.
func TestAnOwnerReadsWhileFormerConsumersCannotBeRemoved(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		name := wire.ConsumerName("saga", "", "store")
		_, err := w.JS.CreateConsumer(ctx, wire.AggregateEvents, jetstream.ConsumerConfig{Durable: name + "-e6"})
		w.Must(err)
		var refused atomic.Bool
		refused.Store(true)
		src, err := OpenSource(ctx, mayNotRemove{w.JS, name + "-e6", &refused}, nil, SourceOptions{Name: "store", Epoch: 7, From: FromAll})
		w.Must(err)
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(ctx)
		go func() { ended <- src.Run(ctx) }()
		w.send("acme", "O1", 0)
		fetch(ctx, t, src, 1)
		synctest.Wait()
		diff(t, w.consumers(ctx, wire.AggregateEvents), []string{name + "-e6", name + "-e7"})
		refused.Store(false)
		src.Recheck()
		synctest.Wait()
		diff(t, w.consumers(ctx, wire.AggregateEvents), []string{name + "-e7"})
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// mayNotRemove is a connection without the right to remove a consumer.
type mayNotRemove struct {
	jetstream.JetStream
	consumer string
	refused  *atomic.Bool
}

func (m mayNotRemove) DeleteConsumer(ctx context.Context, stream, consumer string) error {
	if m.refused.Load() && consumer == m.consumer {
		return edda.Classify(edda.Temporary, "permissions violation")
	}
	return m.JetStream.DeleteConsumer(ctx, stream, consumer)
}
