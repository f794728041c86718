package stream

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/handoff"
	"edda/outbox"
	"edda/outbox/outboxtest"
	"edda/stream/wire"
)

func TestPublisherIsADestination(t *testing.T) {
	outboxtest.Run(t, destination(func(w *world) outbox.Destination { return NewPublisher(w.JS, wire.Codec{}) }))
}

func TestHandoffIsADestination(t *testing.T) {
	outboxtest.Run(t, destination(func(w *world) outbox.Destination {
		return handoff.New(wire.Codec{}, NewPublisher(w.JS, wire.Codec{}), wire.Tenants{"*"}, nil)
	}))
}

func destination(of func(w *world) outbox.Destination) outboxtest.Open {
	return func(t *testing.T, test func(*testing.T, outboxtest.Fixture)) {
		bubble(t, func(ctx context.Context, w *world) {
			test(w.T, outboxtest.Fixture{
				Destination: of(w), Once: true,
				Work: func(content string) edda.Work {
					fact := facts(1)[0]
					fact.Payload = json.RawMessage(`{"content":"` + content + `"}`)
					return fact
				},
				Refused: func() edda.Work {
					return edda.Work{Kind: edda.WorkCommand, Name: "NoDot", From: edda.Key{Tenant: "acme", Saga: "order"}}
				},
				Seen:   func() []outboxtest.Arrival { return w.arrivals(ctx, wire.WorkflowEvents) },
				Away:   w.Restart,
				Silent: func(f func()) { w.Silence(ctx, wire.WorkflowEvents, f) },
			})
		})
	}
}

// arrivals returns the messages of a stream.
func (w *world) arrivals(ctx context.Context, name string) (out []outboxtest.Arrival) {
	w.T.Helper()
	s := w.Stream(ctx, name)
	for seq := max(s.CachedInfo().State.FirstSeq, 1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			w.T.Fatal(err)
		}
		out = append(out, outboxtest.Arrival{ID: w.codec.ID(wire.Message{Subject: m.Subject, Header: m.Header}), Text: m.Subject + string(m.Data)})
	}
	return out
}
