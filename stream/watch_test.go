package stream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
	"edda/internal/testkit"
	"edda/stream/kv"
	"edda/stream/wire"
)

func TestFailingReportsAStreamThatRefusesWork(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		full := func(most int32) {
			w.Update(ctx, wire.WorkflowEvents, func(c *jetstream.StreamConfig) { c.MaxMsgSize = most })
		}
		p := NewPublisher(w.JS, w.codec)
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

// TestFailingReportsAPublishWithoutAnAck: a server whose disk is full does not answer. The first
// timeout was not reported.
func TestFailingReportsAPublishWithoutAnAck(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if err := w.JS.DeleteStream(ctx, wire.WorkflowEvents); err != nil {
			t.Fatal(err)
		}
		mute, err := w.NC.SubscribeSync("tenant.>")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = mute.Unsubscribe() }()
		p := NewPublisher(w.JS, w.codec)
		from := time.Now()
		fact := edda.Work{ID: "f1", Kind: edda.WorkFact, Name: "done", From: edda.Key{Tenant: "acme", Saga: "s", Correlation: "k"}}
		if errs := p.Deliver(ctx, []edda.Work{fact}); errs == nil {
			t.Fatal("nobody has it, and it is delivered")
		}
		if err := p.Failing(); err == nil || time.Since(from) > toldWithin {
			t.Errorf("after %v it says %v", time.Since(from), err)
		}
		from = time.Now()
		p = NewPublisher(w.JS, w.codec)
		if err := p.PublishResult(ctx, effects.Result{Tenant: "acme", CommandID: "c1", Effect: "pay", Outcome: edda.Succeeded}); err == nil {
			t.Fatal("nobody has it, and it is published")
		}
		if err := p.Failing(); err == nil || time.Since(from) > toldWithin {
			t.Errorf("after %v it says %v", time.Since(from), err)
		}
	})
}

// TestWatchReportsAMissingStream: also the ledger's bucket that cannot be recreated, and a stream
// that came back.
func TestWatchReportsAMissingStream(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if _, err := kv.OpenLedger(ctx, w.JS, kv.LedgerOptions{Memory: true}); err != nil {
			t.Fatal(err)
		}
		made := 0
		watch := NewWatch(w.JS, nil, func() { made++ }, func(context.Context) error { return errors.New("not allowed") }, nil)
		stop := testkit.Run(t, watch.Run)
		time.Sleep(watchEvery)
		if err := watch.Problem(); err != nil {
			t.Errorf("all is well, and it says %v", err)
		}
		for _, name := range []string{wire.WorkflowEvents, ledgerStream} {
			if err := w.JS.DeleteStream(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * watchEvery)
		testkit.WantError(t, watch.Problem(), nil, "WORKFLOW_EVENTS is gone", "EDDA_LEDGER is gone", "not allowed")
		if _, err := EnsureStreams(ctx, w.JS, StreamOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * watchEvery)
		if up := watch.Up(); !up[wire.WorkflowEvents] || up[ledgerStream] || made != 1 {
			t.Errorf("up %v, made anew %d", up, made)
		}
		stop()
	})
}

// ledgerOf opens the ledger of a worker.
func (w *world) ledgerOf(home, run string) *kv.Ledger {
	w.T.Helper()
	return testkit.Value[*kv.Ledger](w.T)(kv.OpenLedger(w.T.Context(), w.JS, kv.LedgerOptions{Home: home, Run: run}))
}

// TestADeletedLedgerIsRecreated: it was missing until a restart. The new one knows that it lacks
// claims.
func TestADeletedLedgerIsRecreated(t *testing.T) {
	for _, taken := range []bool{true, false} {
		bubble(t, func(ctx context.Context, w *world) {
			l := w.ledgerOf("s1", "r1")
			if since := testkit.Value[time.Time](t)(l.Since(ctx)); !since.IsZero() {
				t.Errorf("a first ledger knows of calls since %v", since)
			}
			if taken {
				w.charge("acme", "c1")
				take(ctx, t, NewCommands(w.JS, CommandsOptions{}), time.Second, "c1")
			}
			mine := testkit.Value[effects.Entry](t)(l.Claim(ctx, effects.Entry{Claim: edda.Claim{Tenant: "acme", CommandID: "c1", Effect: "pay", Claimed: time.Now().UTC()}}))
			watch := NewWatch(w.JS, nil, nil, l.Remake, nil)
			stop := testkit.Run(t, watch.Run)
			time.Sleep(time.Second)
			if err := w.JS.DeleteStream(ctx, ledgerStream); err != nil {
				t.Fatal(err)
			}
			if since, err := l.Since(ctx); err == nil {
				t.Errorf("without a bucket it knows of calls since %v", since)
			}
			gone := time.Now()
			time.Sleep(toldWithin)
			if err := watch.Problem(); err != nil {
				t.Errorf("after %v it says %v", toldWithin, err)
			}
			if since := testkit.Value[time.Time](t)(l.Since(ctx)); since.Before(gone) {
				t.Errorf("who had the ledger before knows of calls since %v, it was gone at %v", since, gone)
			}
			later := testkit.Value[time.Time](t)(w.ledgerOf("s2", "r1").Since(ctx))
			if later.IsZero() == taken {
				t.Errorf("who comes later knows of calls since %v; commands were taken: %v", later, taken)
			}
			if e := testkit.Value[effects.Entry](t)(l.Find(ctx, "acme", "c1")); e.Found {
				t.Errorf("the claim is found: %+v", e)
			}
			mine.Claim.Done, mine.Claim.Outcome, mine.Claim.Result = true, edda.Succeeded, []byte(`1`)
			if err := l.Finish(ctx, mine); err != nil { // the result of a call in progress
				t.Error(err)
			}
			if e := testkit.Value[effects.Entry](t)(l.Find(ctx, "acme", "c1")); !e.Claim.Done {
				t.Errorf("it is %+v", e)
			}
			stop()
		})
	}
}
