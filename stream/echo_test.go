package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
	"edda/internal/testkit"
	"edda/stream/wire"
)

// TestPositionsHaveTheStoreTimeOfAnEcho: the stream does not know when the result was applied.
func TestPositionsHaveTheStoreTimeOfAnEcho(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, stop := w.open(ctx, nil, SourceOptions{}) // makes the streams
		stop()
		copied := echoAt(t, command("c1", "acme"), time.Now().Add(-time.Hour).UTC())
		time.Sleep(time.Second)
		w.send("acme", "O1", 1)
		time.Sleep(time.Second)
		if errs := NewPublisher(w.JS, wire.Codec{}).Deliver(ctx, []edda.Work{copied}); errs != nil {
			t.Fatal(errs)
		}
		at := time.Now()
		time.Sleep(time.Second)
		w.send("acme", "O1", 2)
		s, stop := w.open(ctx, nil, SourceOptions{From: FromAll})
		defer stop()
		var got []string
		for len(got) < 3 {
			fetched, err := s.Fetch(ctx, 1, time.Minute)
			if err != nil || len(fetched.Events) == 0 {
				t.Fatal(fetched, err)
			}
			for _, ev := range fetched.Events {
				got = append(got, fmt.Sprint(ev.Stream, ev.Seq))
				if ev.Stream == wire.WorkflowEvents && (!ev.StoredAt().Equal(at) || ev.Time.Equal(at)) {
					t.Errorf("stored %v, came %v", ev.StoredAt(), ev.Time)
				}
			}
		}
		if want := []string{wire.AggregateEvents + "1", wire.WorkflowEvents + "1", wire.AggregateEvents + "2"}; !slices.Equal(got, want) {
			t.Errorf("in the order %v, want %v", got, want)
		}
		s.Recheck()
		time.Sleep(time.Minute)
		for _, r := range s.readers {
			if r.name == wire.WorkflowEvents && (!r.checkpoint().Time.Equal(at) || r.checkpoint().Seq != 1) {
				t.Errorf("reached %+v", r.checkpoint())
			}
		}
	})
}

func command(id, tenant string) edda.Work {
	return edda.Work{ID: id, Kind: edda.WorkEffect, From: edda.Key{Tenant: tenant, Saga: "order", Correlation: id}, Name: "charge", Payload: json.RawMessage(`{"amount":25}`),
		Step: "charge", Attempt: 1, Time: noon, Correlation: "corr", Trace: "tr", Causation: "cause"}
}

// echo publishes the echo of a result.
func (w *world) echo(id string) {
	w.T.Helper()
	if errs := NewPublisher(w.JS, wire.Codec{}).Deliver(w.T.Context(), []edda.Work{echoOf(w.T, id)}); errs != nil {
		w.T.Fatal(errs)
	}
}

// ids are the commands of which events are the results.
func ids(events []edda.Event) (out []string) {
	for _, ev := range events {
		out = append(out, ev.CommandID)
	}
	return out
}

// consumerOf returns the server's info of the consumer of results and facts.
func (w *world) consumerOf(ctx context.Context) *jetstream.ConsumerInfo {
	w.T.Helper()
	cons, err := w.JS.Consumer(ctx, wire.WorkflowEvents, wire.ConsumerName("saga", "", ""))
	if err != nil {
		w.T.Fatal(err)
	}
	return cons.CachedInfo()
}

// TestTheServerFiltersEchoesOut: and delivers other messages between them.
func TestTheServerFiltersEchoesOut(t *testing.T) {
	for name, tenants := range map[string]wire.Tenants{"all": nil, "one": {"acme"}, "a pattern": {"ac*"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				src, stop := w.open(ctx, nil, SourceOptions{Tenants: tenants})
				defer stop()
				synctest.Wait()
				w.echo("e1")
				w.result("acme", "plain1")
				w.echo("e2")
				w.result("acme", "plain2")
				w.echo("e3")
				got := fetch(ctx, t, src, 2)
				if !slices.Equal(ids(got), []string{"plain1", "plain2"}) || got[1].Seq != 4 {
					t.Errorf("%+v", got)
				}
				none(ctx, t, src, time.Second)
				if n := w.consumerOf(ctx).Delivered.Consumer; n != 2 {
					t.Errorf("the server gave %d messages", n)
				}
				wantEnd(t, ends(ctx, t, src, wire.WorkflowEvents), 4, 5) // without the echo
				w.echo("e4")
				wantEnd(t, ends(ctx, t, src, wire.WorkflowEvents), 4, 6)
			})
		})
	}
}

// TestTheBacklogIncludesEchoes: the store may be older than the stream, restored or not.
func TestTheBacklogIncludesEchoes(t *testing.T) {
	for _, restored := range []bool{true, false} {
		bubble(t, func(ctx context.Context, w *world) {
			w.echo("e1")
			time.Sleep(time.Millisecond)
			w.send("acme", "O1", 1)
			time.Sleep(time.Millisecond)
			w.result("acme", "plain")
			w.echo("e2")
			src, err := OpenSource(ctx, w.JS, nil, SourceOptions{From: FromAll, Restored: restored})
			if err != nil {
				t.Fatal(err)
			}
			wantEnd(t, ends(ctx, t, src, wire.WorkflowEvents), 3, 3) // echoes of the backlog count
			ended := make(chan error, 1)
			running, cancel := context.WithCancel(ctx)
			go func() { ended <- src.Run(running) }()
			if got := ids(fetchBacklog(ctx, t, src)); !slices.Equal(got, []string{"e1", "", "plain", "e2"}) {
				t.Errorf("restored %t: the backlog is %q", restored, got)
			}
			synctest.Wait()
			w.echo("e3")
			w.result("acme", "later")
			if got := ids(fetch(ctx, t, src, 1)); !slices.Equal(got, []string{"later"}) {
				t.Errorf("behind the backlog comes %q", got)
			}
			if info := w.consumerOf(ctx); info.Delivered.Consumer != 1 || !slices.Equal(info.Config.FilterSubjects, []string{"tenant.*.*.*.*"}) {
				t.Errorf("the consumer is %+v", info)
			}
			cancel()
			<-ended
		})
	}
}

// TestTheBacklogEndsAlsoIfItsLastMessageWasDeleted: echoes were read for ever, because no position
// passed the end.
func TestTheBacklogEndsAlsoIfItsLastMessageWasDeleted(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		const all = bufferEvents + pullMessages + 500
		for i := range all {
			w.result("acme", fmt.Sprint("c", i))
		}
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		synctest.Wait() // the reader waits for room
		s := w.Stream(ctx, wire.WorkflowEvents)
		w.Must(s.DeleteMsg(ctx, all))
		fetch(ctx, t, src, all-1)
		synctest.Wait()
		if src.readers[2].backlogRead() {
			t.Fatal("the end of the backlog was read")
		}
		wantEnd(t, ends(ctx, t, src, wire.WorkflowEvents), all-1, all)
		synctest.Wait()
		w.echo("e1")
		none(ctx, t, src, time.Second)
		wantEnd(t, ends(ctx, t, src, wire.WorkflowEvents), all-1, all+1)
	})
}

// TestEchoesOfEarlierVersionsAreResults: they have the subject of a result, and are duplicates.
func TestEchoesOfEarlierVersionsAreResults(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		synctest.Wait()
		taken := time.Now().Add(-time.Hour).UTC()
		m, err := w.codec.Work(echoAt(t, command("c1", "acme"), taken))
		w.Must(err)
		m.Subject = "tenant.acme.effect_result.charge.c1"
		m.Header.Set("Edda-Run", "01J")
		_, err = w.JS.PublishMsg(ctx, m)
		w.Must(err)
		if got := fetch(ctx, t, src, 1)[0]; got.ID != wire.ResultID("c1") || !got.Time.Equal(taken) || got.Malformed != "" {
			t.Errorf("%+v", got)
		}
	})
}

// TestSourceStopsAfterTheServerLostEchoes: the position was at an echo that nothing had read. The
// server lost it, and other messages took its sequence and were skipped.
func TestSourceStopsAfterTheServerLostEchoes(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		before := w.Backup()
		for i := range 10 {
			w.result("acme", fmt.Sprint("foreign", i))
		}
		other := w.Backup()
		before()
		src, err := OpenSource(ctx, w.JS, nil, SourceOptions{From: FromAll})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- src.Run(ctx) }()
		synctest.Wait()
		for i := range 5 {
			w.echo(fmt.Sprint("e", i))
		}
		wantEnd(t, ends(ctx, t, src, wire.WorkflowEvents), 0, 5)
		other()
		src.Recheck()
		select {
		case err = <-ended:
		case <-time.After(time.Minute):
		}
		testkit.WantError(t, err, edda.Permanent, wire.WorkflowEvents, "wrote others in their place")
	})
}

// copyOf is the copy of a result.
func echoOf(t *testing.T, id string) edda.Work {
	t.Helper()
	_, c, err := wire.Codec{}.Applied(effects.Result{Tenant: "acme", CommandID: id, Effect: "charge", Outcome: edda.Succeeded, Payload: json.RawMessage(`{}`),
		Metadata: json.RawMessage(`{"saga":"order","key":"O1"}`), Time: noon}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestResendPublishesADeadResultFromItsEcho: as a result, because the sagas do not read new echoes.
func TestResendPublishesADeadResultFromItsEcho(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{})
		defer stop()
		synctest.Wait()
		p := NewPublisher(w.JS, wire.Codec{})
		ev, copied, err := wire.Codec{}.Applied(effects.Result{Tenant: "acme", CommandID: "c1", Effect: "charge", Outcome: edda.Succeeded, Payload: json.RawMessage(`{"id":1}`),
			Metadata: json.RawMessage(`{"saga":"order","key":"O1"}`), Time: noon}, nil)
		if err != nil {
			t.Fatal(err)
		}
		letter := edda.DeadLetter{ID: "d1", Reason: edda.DeadFull, Event: ev}
		_, err = p.Resend(ctx, letter, nil, "again-1")
		testkit.WantError(t, err, edda.Permanent, "sent again by and by")
		if errs := p.Deliver(ctx, []edda.Work{copied}); errs != nil {
			t.Fatal(errs)
		}
		if _, err := p.Resend(ctx, letter, nil, "again-1"); err != nil {
			t.Fatal(err)
		}
		if got := fetch(ctx, t, src, 1)[0]; got.ID != "again-1" || got.CommandID != "c1" || string(got.Payload) != `{"id":1}` || got.Key != ev.Key {
			t.Errorf("%+v", got)
		}
		m, err := w.codec.Work(copied) // of an earlier version
		w.Must(err)
		w.Must(w.Stream(ctx, wire.WorkflowEvents).Purge(ctx))
		if _, err := w.JS.Publish(ctx, "tenant.acme.effect_result.charge.c1", m.Data); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Resend(ctx, letter, nil, "again-2"); err != nil {
			t.Fatal(err)
		}
		if got := fetch(ctx, t, src, 2); got[1].ID != "again-2" || got[1].CommandID != "c1" {
			t.Errorf("%+v", got)
		}
	})
}
