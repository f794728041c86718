package stream

import (
	"context"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/effects"
)

// TestWorkThatNoStreamTakesIsTold: the stream takes none, and takes some again later.
func TestWorkThatNoStreamTakesIsTold(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		full := func(most int32) {
			s, err := w.js.Stream(ctx, WorkflowEvents)
			if err != nil {
				t.Fatal(err)
			}
			cfg := s.CachedInfo().Config
			cfg.MaxMsgSize = most
			if _, err := w.js.UpdateStream(ctx, cfg); err != nil {
				t.Fatal(err)
			}
		}
		p := NewPublisher(w.js, w.codec)
		fact := edda.Work{ID: "f1", Kind: edda.WorkFact, Name: "done", From: edda.Key{Tenant: "acme", Saga: "s", Correlation: "k"}}
		if errs := p.Deliver(ctx, []edda.Work{fact}); errs != nil {
			t.Fatal(errs)
		}
		full(1)
		fact.ID = "f2"
		for i := range 4 {
			if errs := p.Deliver(ctx, []edda.Work{fact}); errs == nil {
				t.Fatalf("the stream takes it, at try %d", i+1)
			}
			time.Sleep(time.Second)
		}
		if err := p.Failing(); err == nil || !strings.Contains(err.Error(), "facts cannot be stored") {
			t.Errorf("it says %v", err)
		}
		full(-1)
		if errs := p.Deliver(ctx, []edda.Work{fact}); errs != nil {
			t.Fatal(errs)
		}
		if err := p.Failing(); err != nil {
			t.Errorf("all is well, and it says %v", err)
		}
	})
}

// TestAPublishWithoutAnswerWasToldAtTheSecondTryOnly: a server whose disk is full takes
// messages and says nothing, and each try waits for its answer.
func TestAPublishWithoutAnswerWasToldAtTheSecondTryOnly(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.js.DeleteStream(ctx, WorkflowEvents); err != nil {
			t.Fatal(err)
		}
		mute, err := w.nc.SubscribeSync("tenant.>")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = mute.Unsubscribe() }()
		p := NewPublisher(w.js, w.codec)
		from := time.Now()
		fact := edda.Work{ID: "f1", Kind: edda.WorkFact, Name: "done", From: edda.Key{Tenant: "acme", Saga: "s", Correlation: "k"}}
		if errs := p.Deliver(ctx, []edda.Work{fact}); errs == nil {
			t.Fatal("nobody has it, and it is delivered")
		}
		if err := p.Failing(); err == nil || time.Since(from) > toldWithin {
			t.Errorf("after %v it says %v", time.Since(from), err)
		}
		from = time.Now()
		p = NewPublisher(w.js, w.codec)
		if err := p.PublishResult(ctx, effects.Result{Tenant: "acme", CommandID: "c1", Effect: "pay", Outcome: edda.Succeeded}); err == nil {
			t.Fatal("nobody has it, and it is published")
		}
		if err := p.Failing(); err == nil || time.Since(from) > toldWithin {
			t.Errorf("after %v it says %v", time.Since(from), err)
		}
	})
}

// TestAStreamThatIsGoneIsTold, also the bucket of the ledger, and one that came back.
func TestAStreamThatIsGoneIsTold(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if _, err := OpenLedger(ctx, w.js, LedgerOptions{Memory: true}); err != nil {
			t.Fatal(err)
		}
		made := 0
		watch := NewWatch(w.js, func() { made++ }, true, nil)
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- watch.Run(ctx) }()
		time.Sleep(watchEvery)
		if err := watch.Problem(); err != nil {
			t.Errorf("all is well, and it says %v", err)
		}
		for _, name := range []string{WorkflowEvents, ledgerStream} {
			if err := w.js.DeleteStream(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * watchEvery)
		if err := watch.Problem(); err == nil || !strings.Contains(err.Error(), "WORKFLOW_EVENTS is gone") || !strings.Contains(err.Error(), "EDDA_LEDGER is gone") {
			t.Errorf("it says %v", err)
		}
		if _, err := EnsureStreams(ctx, w.js, StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * watchEvery)
		if up := watch.Up(); !up[WorkflowEvents] || up[ledgerStream] || made != 1 {
			t.Errorf("up %v, made anew %d", up, made)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
