package stream

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// arrived is a message as the client hands it on.
type arrived struct {
	jetstream.Msg
	seq uint64
}

func (a arrived) Subject() string      { return "tenant.acme.aggregate.Order.O1" }
func (a arrived) Headers() nats.Header { return nil }
func (a arrived) Data() []byte         { return []byte(`{"event_id":"e","event_type":"X"}`) }
func (a arrived) Reply() string        { return "" }
func (a arrived) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: a.seq, Consumer: a.seq}, Timestamp: noon}, nil
}

// TestDrainWaitsForTheMessageInProgress: the next consumer would read it, too. No message is
// accepted afterwards.
func TestDrainWaitsForTheMessageInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{buffer: newBuffer(), wake: make(chan struct{}, 1), tenants: &atomic.Pointer[wire.Tenants]{}}
		r.tenants.Store(&wire.Tenants{})
		for range bufferEvents {
			if !r.buffer.tryPut([]edda.Event{{}}) {
				t.Fatal("no room")
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		f := &feed{reader: r, end: cancel, busy: make(chan struct{}, 1)}
		var over atomic.Bool
		go f.message(ctx, arrived{seq: 1})
		synctest.Wait()
		go func() {
			f.drain()
			over.Store(true)
		}()
		synctest.Wait()
		if over.Load() || r.position() != 0 {
			t.Error("a message is still being taken in")
		}
		r.buffer.take(bufferEvents, fetchBytes)
		synctest.Wait()
		if !over.Load() || r.position() != 1 {
			t.Errorf("ended: %t, at message %d", over.Load(), r.position())
		}
		cancel(errRecreate)
		f.message(ctx, arrived{seq: 2})
		if r.position() != 1 {
			t.Error("a message came in after the end")
		}
	})
}

// TestTheReaderRestartsAfterTheClientGaveUp: here because of a pull answer that the client cannot
// parse.
func TestTheReaderRestartsAfterTheClientGaveUp(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		pulls := make(chan *nats.Msg, 64)
		if _, err := w.NC.ChanSubscribe("$JS.API.CONSUMER.MSG.NEXT."+wire.AggregateEvents+".>", pulls); err != nil {
			t.Fatal(err)
		}
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		w.send("acme", "O1", 1)
		fetch(ctx, t, src, 1)
		odd := &nats.Msg{Subject: (<-pulls).Reply, Header: nats.Header{"Status": {"408"}, "Nats-Pending-Messages": {"some"}}}
		if err := w.NC.PublishMsg(odd); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.send("acme", "O1", 2)
		fetch(ctx, t, src, 1)
	})
}
