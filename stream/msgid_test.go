package stream

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
	"edda/internal/testkit"
	"edda/stream/wire"
)

// takeMsgID publishes with a Nats-Msg-Id of another program's choice.
func (w *world) takeMsgID(ctx context.Context, subject, id string) (duplicate bool) {
	w.T.Helper()
	ack, err := w.JS.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: nats.Header{jetstream.MsgIDHeader: {id}}, Data: []byte(`{"event_type":"X"}`)})
	if err != nil {
		w.T.Fatal(err)
	}
	return ack.Duplicate
}

// ids are those under which Edda knows the messages of a subject.
func (w *world) ids(ctx context.Context, stream, subject string) (ids []string) {
	w.T.Helper()
	s := w.Stream(ctx, stream)
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if err != nil {
			w.T.Fatal(err)
		}
		if m.Subject == subject {
			ids = append(ids, w.codec.ID(wire.Message{Subject: m.Subject, Header: m.Header}))
		}
	}
	return ids
}

// TestAnEventIDOfAnotherTenantsCallerIsNoDuplicate: bob may publish for bob only. An event of his
// has the id that acme's producer uses next. The producer's event is stored.
func TestAnEventIDOfAnotherTenantsCallerIsNoDuplicate(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p := NewPublisher(w.JS, wire.Codec{})
		for _, id := range []string{"order-1002", "acme order-1002", orders + " order-1002"} {
			for _, ev := range []edda.Event{
				{Kind: edda.KindEvent, ID: id, Tenant: "bob", Type: "X", AggregateType: "Order", AggregateID: "O1"},
				{Kind: edda.KindSignal, ID: id, Tenant: "bob", Type: "X", Key: edda.Key{Tenant: "bob", Saga: "s", Correlation: "K"}},
			} {
				if _, err := p.Send(ctx, ev); err != nil {
					t.Fatal(err)
				}
			}
			if w.takeMsgID(ctx, orders, id) {
				t.Errorf("acme's event %q is taken for bob's", id)
			}
		}
	})
}

// TestACallersIDNeverEqualsADerivedID: a caller of the same tenant posts an event under the id that
// Edda derives for a child's start on the same subject.
func TestACallersIDNeverEqualsADerivedID(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p := NewPublisher(w.JS, wire.Codec{})
		start := edda.Work{ID: "w-1", Kind: edda.WorkStart, From: parent, Target: edda.Key{Tenant: "acme", Saga: "child", Correlation: "C"}, Time: noon}
		for _, id := range []string{"w-1", "acme w-1"} {
			sent, err := p.Send(ctx, edda.Event{Kind: edda.KindSignal, ID: id, Tenant: "acme", Type: "X", Key: start.Target})
			if err != nil || sent.Duplicate {
				t.Fatalf("%+v, %v", sent, err)
			}
		}
		if errs := p.Deliver(ctx, []edda.Work{start}); errs != nil {
			t.Fatal(errs)
		}
		diff(t, w.ids(ctx, wire.WorkflowCommands, "tenant.acme.workflow.child.C"), []string{"w-1", "acme w-1", "w-1"})
	})
}

// TestAMsgIDTakenOnAnotherSubjectLosesNothing: a producer that may publish to bob's subjects uses
// the Nats-Msg-Id that Edda is about to use for acme. acme's message is still stored, once, under
// its id.
func TestAMsgIDTakenOnAnotherSubjectLosesNothing(t *testing.T) {
	fact := facts(1)[0]
	command := edda.Work{ID: "w-1", Kind: edda.WorkCommand, From: parent, Name: "Payment.Request", To: "P.1", Time: noon}
	tests := map[string]struct {
		taken, stream, subject, id string
		publish                    func(ctx context.Context, p *Publisher) error
	}{
		"result": {"acme c-9.result", wire.WorkflowEvents, "tenant.acme.effect_result.charge.c-9", "c-9.result", func(ctx context.Context, p *Publisher) error {
			return p.PublishResult(ctx, effects.Result{Tenant: "acme", CommandID: "c-9", Effect: "charge", Outcome: edda.Succeeded})
		}},
		"fact": {"acme w-0", wire.WorkflowEvents, "tenant.acme.workflow_event.order.0", "w-0", func(ctx context.Context, p *Publisher) error {
			return firstOf(p.Deliver(ctx, []edda.Work{fact}))
		}},
		"command": {"acme w-1", wire.WorkflowCommands, mustSubject(t, command), "w-1", func(ctx context.Context, p *Publisher) error {
			return firstOf(p.Deliver(ctx, []edda.Work{command}))
		}},
		"event": {orders + " e-1", wire.AggregateEvents, orders, "e-1", func(ctx context.Context, p *Publisher) error {
			_, err := p.Send(ctx, edda.Event{Kind: edda.KindEvent, ID: "e-1", Tenant: "acme", Type: "X", AggregateType: "Order", AggregateID: "O1"})
			return err
		}},
	}
	families := map[string]string{wire.WorkflowEvents: "effect_result.x", wire.WorkflowCommands: "effect.x", wire.AggregateEvents: "aggregate.x"}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				if w.takeMsgID(ctx, "tenant.bob."+families[test.stream]+".1", test.taken) {
					t.Fatal("the theft is itself a duplicate")
				}
				p := NewPublisher(w.JS, wire.Codec{})
				if err := test.publish(ctx, p); err != nil {
					t.Fatal(err)
				}
				diff(t, w.ids(ctx, test.stream, test.subject), []string{test.id})
			})
		})
	}
}

func firstOf(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

func mustSubject(t *testing.T, w edda.Work) string {
	t.Helper()
	m, err := wire.Codec{}.Work(w)
	if err != nil {
		t.Fatal(err)
	}
	return m.Subject
}

func TestADuplicateOfADeletedMessageIsStoredAgain(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p, batch := NewPublisher(w.JS, wire.Codec{}), facts(3)
		if errs := p.Deliver(ctx, batch); errs != nil {
			t.Fatal(errs)
		}
		s := w.Stream(ctx, wire.WorkflowEvents)
		if err := s.DeleteMsg(ctx, 2); err != nil {
			t.Fatal(err)
		}
		if errs := p.Deliver(ctx, batch); errs != nil {
			t.Fatal(errs)
		}
		m, err := s.GetMsg(ctx, 4)
		if err != nil || w.codec.ID(wire.Message{Subject: m.Subject, Header: m.Header}) != "w-1" {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

func TestARepeatedPublishIsStoredOnce(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		for range 2 {
			p := NewPublisher(w.JS, wire.Codec{})
			if err := p.PublishResult(ctx, effects.Result{Tenant: "acme", CommandID: "c", Effect: "charge", Outcome: edda.Failed}); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Send(ctx, edda.Event{Kind: edda.KindEvent, ID: "e\n%1 ", Tenant: "acme", Type: "X", AggregateType: "Order", AggregateID: "O1"}); err != nil {
				t.Fatal(err)
			}
		}
		diff(t, w.ids(ctx, wire.WorkflowEvents, "tenant.acme.effect_result.charge.c"), []string{"c.result"})
		diff(t, w.ids(ctx, wire.AggregateEvents, orders), []string{"e\n%1 "})
	})
}

func TestAnUnverifiedDuplicateIsRetried(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p, batch := NewPublisher(w.JS, wire.Codec{}), facts(2)
		d := wire.NewDraft()
		errs := make([]error, 2)
		p.confirm(ctx, d, []duplicate{{0, "NO_SUCH_STREAM", 1}, {1, wire.WorkflowEvents, 1}}, batch, errs)
		testkit.WantError(t, errs[0], edda.Temporary, "w-0", "NO_SUCH_STREAM")
		testkit.WantError(t, errs[1], edda.Temporary, "w-1", "NO_SUCH_STREAM")
	})
}
