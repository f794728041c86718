package stream

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/testkit"
	"edda/stream/wire"
)

// result publishes the result of a command.
func (w *world) result(tenant, id string, opts ...jetstream.PublishOpt) {
	w.T.Helper()
	subject := fmt.Sprintf("tenant.%s.effect_result.charge.%s", tenant, id)
	body := fmt.Sprintf(`{"tenant_id":%q,"command_id":%q,"effect_name":"charge","result_type":"Succeeded"}`, tenant, id)
	if _, err := w.JS.Publish(w.T.Context(), subject, []byte(body), opts...); err != nil {
		w.T.Fatal(err)
	}
}

// mixed publishes events and results in turns, a millisecond apart.
func (w *world) mixed(rounds int) {
	for i := range rounds {
		w.send("acme", "O1", i)
		time.Sleep(time.Millisecond)
		w.result("acme", fmt.Sprint("c", i))
		time.Sleep(time.Millisecond)
	}
}

// streamsOf returns the stream of each event.
func streamsOf(events []edda.Event) (out []string) {
	for _, ev := range events {
		out = append(out, ev.Stream)
	}
	return out
}

// fetchBacklog returns the events of the backlog.
func fetchBacklog(ctx context.Context, t *testing.T, src *Source) (out []edda.Event) {
	t.Helper()
	for {
		got, err := src.Fetch(ctx, 100, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Past {
			if len(got.Events) > 0 {
				t.Fatalf("%d events that are not of the past", len(got.Events))
			}
			return out
		}
		out = append(out, got.Events...)
	}
}

func TestTheBacklogComesInTheOrderOfStoreTimes(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		const rounds = 700
		w.mixed(rounds)
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		past := fetchBacklog(ctx, t, src)
		if len(past) != 2*rounds {
			t.Fatalf("%d events of the past", len(past))
		}
		if !slices.IsSortedFunc(past, func(a, b edda.Event) int { return a.Time.Compare(b.Time) }) {
			t.Error("they are not in order")
		}
		w.mixed(1)
		got, err := src.Fetch(ctx, 100, time.Minute)
		if err != nil || got.Past || len(got.Events) == 0 {
			t.Errorf("what came later: %+v, %v", got, err)
		}
	})
}

func TestResultsOvertakeHeldEventsUnlessTheStoreWasRestored(t *testing.T) {
	for name, restored := range map[string]bool{"restored": true, "down for a while": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				w.mixed(3)
				src, stop := w.open(ctx, nil, SourceOptions{Restored: restored})
				defer stop()
				src.Hold(true)
				want := []string{wire.WorkflowEvents, wire.WorkflowEvents, wire.WorkflowEvents}
				if restored {
					want = []string{wire.AggregateEvents, wire.WorkflowEvents, wire.AggregateEvents, wire.WorkflowEvents, wire.AggregateEvents, wire.WorkflowEvents}
				}
				if got := streamsOf(fetch(ctx, t, src, len(want))); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

// TestASourceHasCaughtUpWhenTheBacklogIsHandled: also if its last messages are of other tenants.
func TestASourceHasCaughtUpWhenTheBacklogIsHandled(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		w.mixed(2)
		w.send("other", "O1", 1)
		w.result("other", "c9")
		var store positions
		src, stop := w.open(ctx, nil, SourceOptions{Tenants: wire.Tenants{"a*"}, Committed: store.committed})
		defer stop()
		past := fetchBacklog(ctx, t, src)
		if len(past) != 4 || src.Behind() != 0 {
			t.Fatalf("%d events of the past, and %d messages are left", len(past), src.Behind())
		}
		for i, want := range []bool{false, true} {
			ev := past[2+i]
			store.commit(ev.Stream, ev.Seq)
			none(ctx, t, src, time.Second)
			if got := testkit.Closed(src.CaughtUp()); got != want {
				t.Errorf("after %s %d: caught up is %t", ev.Stream, ev.Seq, got)
			}
		}
	})
}

func TestASourceWithoutABacklogHasCaughtUp(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		none(ctx, t, src, time.Minute)
		if !testkit.Closed(src.CaughtUp()) {
			t.Error("it has not caught up")
		}
		w.mixed(1)
		fetch(ctx, t, src, 2)
	})
}

// TestOtherMessagesDoNotWakeTheEngineAfterTheBacklog: echoes are most of what a stream gets.
func TestOtherMessagesDoNotWakeTheEngineAfterTheBacklog(t *testing.T) {
	wake := make(chan struct{}, 1)
	r := &reader{wake: wake, atStart: backlog{opened: true, end: 2}}
	for i, step := range []struct {
		do    func()
		wakes bool
	}{
		{func() { r.advance(1, time.Time{}, false) }, true},
		{func() { r.advance(2, time.Time{}, false) }, true}, // the end of it
		{func() { r.advance(3, time.Time{}, false) }, false},
		{func() { r.advance(4, time.Time{}, true) }, true},
		{func() { r.noteEmpty(9) }, false},
		{func() { r.atStart.end = 12; r.noteEmpty(12) }, true},
		{func() { r.noteEmpty(13) }, false},
	} {
		step.do()
		if got := len(wake) == 1; got != step.wakes {
			t.Errorf("step %d wakes: %v", i, got)
		}
		select {
		case <-wake:
		default:
		}
	}
}

// TestNoReaderIsAskedAfterCatchingUp: the check runs with every batch.
func TestNoReaderIsAskedAfterCatchingUp(t *testing.T) {
	s := &Source{readers: []*reader{nil}, caughtUp: make(chan struct{})}
	close(s.caughtUp)
	s.checkCaughtUp()
}
