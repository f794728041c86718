package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
	"edda/internal/testkit"
	"edda/outbox"
	"edda/stream/wire"
)

func facts(n int) []edda.Work {
	out := make([]edda.Work, n)
	for i := range out {
		out[i] = edda.Work{
			ID: fmt.Sprintf("w-%d", i), Kind: edda.WorkFact, Name: "Done", Time: noon,
			From: edda.Key{Tenant: "acme", Saga: "order", Correlation: fmt.Sprint(i)},
		}
	}
	return out
}

func TestDeliverInOrder(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		p := NewPublisher(w.JS, wire.Codec{})
		batch := facts(3*publishWindow + 7)
		if errs := p.Deliver(ctx, batch); errs != nil {
			t.Fatal(errors.Join(errs...))
		}
		for i, ev := range fetch(ctx, t, src, len(batch)) {
			if ev.ID != batch[i].ID || ev.Stream != wire.WorkflowEvents {
				t.Fatalf("event %d is %s of %s", i, ev.ID, ev.Stream)
			}
		}
		if errs := p.Deliver(ctx, batch); errs != nil {
			t.Fatal(errors.Join(errs...))
		}
		none(ctx, t, src, 1) // the server knows the ids
	})
}

func TestDeliverReturnsTheErrorOfEachItem(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.JS.DeleteStream(ctx, wire.WorkflowCommands); err != nil {
			t.Fatal(err)
		}
		batch := facts(4)
		batch[1].Kind, batch[1].Name = edda.WorkCommand, "NoDot"
		batch[2].Kind = edda.WorkEffect // its stream is gone
		errs := NewPublisher(w.JS, wire.Codec{}).Deliver(ctx, batch)
		if len(errs) != 4 || errs[0] != nil || errs[3] != nil {
			t.Fatalf("got %v", errs)
		}
		wantRejection(t, errs[1], "name")
		testkit.WantError(t, errs[2], edda.Temporary, "w-2", "effect")
	})
}

func TestDeliverTooLargeForTheServer(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		batch := facts(1)
		batch[0].Payload = json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`)
		errs := NewPublisher(w.JS, wire.Codec{MaxPayload: 4 << 20}).Deliver(ctx, batch)
		if len(errs) != 1 {
			t.Fatalf("got %v", errs)
		}
		wantRejection(t, errs[0], "too-large")
	})
}

func TestDeliverWhileTheServerIsAway(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p := NewPublisher(w.JS, wire.Codec{})
		batch := facts(publishWindow + 1)
		w.Restart(func() {
			for _, err := range p.Deliver(ctx, batch) {
				testkit.WantError(t, err, edda.Temporary, "publish fact")
			}
		})
		if errs := p.Deliver(ctx, batch); errs != nil {
			t.Fatal(errors.Join(errs...))
		}
		s, err := w.JS.Stream(ctx, wire.WorkflowEvents)
		if err != nil || s.CachedInfo().State.Msgs != uint64(len(batch)) {
			t.Errorf("%d messages are stored: %v", s.CachedInfo().State.Msgs, err)
		}
	})
}

func TestDeliverEndsWithItsContext(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		for _, err := range NewPublisher(w.JS, wire.Codec{}).Deliver(ctx, facts(3)) {
			testkit.WantError(t, err, edda.Temporary, "canceled")
		}
	})
}

func TestRejectedWorkBecomesAResult(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		p := NewPublisher(w.JS, wire.Codec{})
		for _, work := range []edda.Work{{ID: "w-command", Kind: edda.WorkCommand, Name: "Payment.Request"}, {ID: "w-effect", Kind: edda.WorkEffect, Name: "charge"}} {
			work.From, work.Step, work.Time = parent, "pay", noon
			r := outbox.Rejection{Code: "no_funds", Message: "too poor", Status: 422}
			for range 2 {
				if err := p.Reject(ctx, work, r); err != nil {
					t.Fatal(err)
				}
			}
			events := fetch(ctx, t, src, 1)
			ev := events[0]
			if len(events) != 1 || ev.Outcome != edda.Failed || ev.CommandID != work.ID || ev.Key != parent || ev.Step != "pay" {
				t.Errorf("got %+v", events)
			}
			diff(t, string(ev.Payload), `{"code":"no_funds","message":"too poor","status":422}`)
		}
		s := w.Stream(ctx, wire.WorkflowEvents)
		for _, subject := range []string{"tenant.acme.effect_result.command.w-command", "tenant.acme.effect_result.charge.w-effect"} {
			if _, err := s.GetLastMsgForSubject(ctx, subject); err != nil {
				t.Errorf("%s: %v", subject, err)
			}
		}
	})
}

func TestTheParentGetsTheResultOfAnEndThatCannotBeSent(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		child := edda.Key{Tenant: "acme", Saga: "child", Correlation: "C"}
		for was, want := range map[edda.Outcome]edda.Outcome{edda.Succeeded: edda.TimedOut, edda.Failed: edda.Failed} {
			end := edda.Work{ID: "end-" + string(was), Kind: edda.WorkEnd, Name: "child", From: child, Target: parent,
				CommandID: "start-" + string(was), Outcome: was}
			if err := NewPublisher(w.JS, wire.Codec{}).Reject(ctx, end, outbox.Rejection{Code: "too-large"}); err != nil {
				t.Fatal(err)
			}
			ev := fetch(ctx, t, src, 1)[0]
			if ev.Kind != edda.KindResult || ev.Key != parent || ev.CommandID != end.CommandID || ev.Outcome != want {
				t.Errorf("got %+v", ev)
			}
		}
	})
}

func TestPublishResultWithoutAServer(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p := NewPublisher(w.JS, wire.Codec{})
		r := effects.Result{Tenant: "acme", CommandID: "c", Effect: "charge", Outcome: edda.Failed}
		w.Restart(func() { testkit.WantError(t, p.PublishResult(ctx, r), edda.Temporary, "publish to") })
		if err := p.PublishResult(ctx, r); err != nil {
			t.Error(err)
		}
	})
}

func TestSendReturnsThePlaceOfTheEvent(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p := NewPublisher(w.JS, wire.Codec{})
		ev := edda.Event{Kind: edda.KindEvent, ID: "1", Tenant: "acme", Type: "X", AggregateType: "Order", AggregateID: "O1"}
		want := Sent{Stream: wire.AggregateEvents, Subject: orders, Seq: 1}
		for range 2 {
			got, err := p.Send(ctx, ev)
			if err != nil {
				t.Fatal(err)
			}
			diff(t, got, want)
			want.Duplicate = true
		}
	})
}

// TestTheSameIDOfAnotherTenantIsNoDuplicate: people number their events, and each tenant starts with 1.
func TestTheSameIDOfAnotherTenantIsNoDuplicate(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p := NewPublisher(w.JS, wire.Codec{})
		for i, tenant := range []string{"acme", "beta", "beta"} {
			got, err := p.Send(ctx, edda.Event{Kind: edda.KindEvent, ID: "1", Tenant: tenant, Type: "X", AggregateType: "Order", AggregateID: "O1"})
			if err != nil || got.Duplicate != (i == 2) || got.Seq != uint64(min(i+1, 2)) {
				t.Errorf("%s: %+v, %v", tenant, got, err)
			}
		}
	})
}

func TestSendRefusesOtherKinds(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		p := NewPublisher(w.JS, wire.Codec{})
		_, err := p.Send(ctx, edda.Event{Kind: edda.KindTimer})
		testkit.WantError(t, err, edda.Permanent, "timer")
		_, err = p.Send(ctx, edda.Event{Kind: edda.KindEvent, Payload: json.RawMessage(`{`)})
		testkit.WantError(t, err, edda.Permanent, "not JSON")
	})
}

// TestMissingAcksTimeOut: and the publisher forgets them.
func TestMissingAcksTimeOut(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.JS.DeleteStream(ctx, wire.WorkflowEvents); err != nil {
			t.Fatal(err)
		}
		sub, err := w.NC.Subscribe("tenant.*.workflow_event.>", func(*nats.Msg) {}) // receives and does not answer
		if err != nil {
			t.Fatal(err)
		}
		p := NewPublisher(w.JS, wire.Codec{})
		for _, err := range p.Deliver(ctx, facts(2)) {
			testkit.WantError(t, err, edda.Temporary)
			if !errors.Is(err, jetstream.ErrAsyncPublishTimeout) {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := len(p.unacked.windows); n != 0 {
			t.Errorf("%d acks are still waited for", n)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
	})
}
