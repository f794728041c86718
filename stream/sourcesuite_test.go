package stream

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/engine"
	"edda/engine/sourcetest"
	"edda/stream/wire"
)

func TestSourceIsASource(t *testing.T) {
	sourcetest.Run(t, readerOf(func(ctx context.Context, w *world) (engine.Source, func()) {
		return w.open(ctx, nil, SourceOptions{})
	}))
}

func TestCatchUpIsASource(t *testing.T) {
	sourcetest.Run(t, readerOf(func(ctx context.Context, w *world) (engine.Source, func()) {
		c, err := OpenCatchUp(ctx, w.JS, engine.SagaTenant{Tenant: "acme", Saga: "order"}, nil, SourceOptions{Tenants: wire.Tenants{"*"}})
		if err != nil {
			w.T.Fatal(err)
		}
		return c, c.Close
	}))
}

func readerOf(open func(ctx context.Context, w *world) (engine.Source, func())) sourcetest.Open {
	return func(t *testing.T, before []edda.Event, test func(*testing.T, sourcetest.Fixture)) {
		bubble(t, func(ctx context.Context, w *world) {
			p := NewPublisher(w.JS, wire.Codec{})
			put := func(ev edda.Event) edda.Checkpoint {
				at, err := p.Send(ctx, ev)
				if err != nil {
					w.T.Fatal(err)
				}
				return edda.Checkpoint{Stream: at.Stream, Seq: at.Seq}
			}
			for _, ev := range before {
				put(ev)
			}
			src, stop := open(ctx, w)
			defer stop()
			test(w.T, sourcetest.Fixture{
				Source: src, Store: put, Past: true,
				Broken: func() {
					if _, err := w.JS.PublishMsg(ctx, &nats.Msg{Subject: orders, Data: []byte("{")}); err != nil {
						w.T.Fatal(err)
					}
				},
			})
		})
	}
}
