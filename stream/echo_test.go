package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"edda"
	"edda/effects"
	"edda/stream/wire"
)

// TestPositionsAreOfWhenACopyWasStored, and so is its place among all that was stored:
// the stream knows nothing of the stamp.
func TestPositionsAreOfWhenACopyWasStored(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, stop := w.open(ctx, nil, SourceOptions{}) // makes the streams
		stop()
		copied := copyAt(t, handable("c1", "acme"), time.Now().Add(-time.Hour).UTC())
		time.Sleep(time.Second)
		w.send("acme", "O1", 1)
		time.Sleep(time.Second)
		if errs := NewPublisher(w.js, wire.Codec{}).Deliver(ctx, []edda.Work{copied}); errs != nil {
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
		s.Recheck() // what was read is held against the stream
		time.Sleep(time.Minute)
		for _, r := range s.readers {
			if r.name == wire.WorkflowEvents && (!r.reached().Time.Equal(at) || r.reached().Seq != 1) {
				t.Errorf("reached %+v", r.reached())
			}
		}
	})
}

func handable(id, tenant string) edda.Work {
	return edda.Work{ID: id, Kind: edda.WorkEffect, From: edda.Key{Tenant: tenant, Saga: "order", Correlation: id}, Name: "charge", Payload: json.RawMessage(`{"amount":25}`),
		Step: "charge", Attempt: 1, Time: noon, Correlation: "corr", Trace: "tr", Causation: "cause"}
}

// TestEchoesOfThisRunAreLeftOut, and those of others come: of another process, and of the
// run before.
func TestEchoesOfThisRunAreLeftOut(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{Codec: thisRun})
		defer stop()
		for _, sent := range []struct {
			by wire.Codec
			id string
		}{{thisRun, "c1"}, {wire.Codec{Run: "r1"}, "before"}, {thisRun, "c2"}, {wire.Codec{}, "foreign"}, {thisRun, "last"}} {
			if errs := NewPublisher(w.js, sent.by).Deliver(ctx, []edda.Work{copyOf(t, sent.id)}); errs != nil {
				t.Fatal(errs)
			}
		}
		got := fetch(ctx, t, src, 2)
		if got[0].CommandID != "before" || got[0].Seq != 2 || got[1].CommandID != "foreign" || got[1].Seq != 4 {
			t.Errorf("%+v", got)
		}
		none(ctx, t, src, time.Second)
		wantEnd(t, ends(ctx, t, src, wire.WorkflowEvents), 4, 5) // an echo is not waited for
	})
}

// copyOf is the copy of a result.
func copyOf(t *testing.T, id string) edda.Work {
	t.Helper()
	_, c, err := wire.Codec{}.Applied(effects.Result{Tenant: "acme", CommandID: id, Effect: "charge", Outcome: edda.Succeeded, Payload: json.RawMessage(`{}`),
		Metadata: json.RawMessage(`{"saga":"order","key":"O1"}`), Time: noon}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEndsDoNotAskForAnEchoOnItsWay: nobody applies it, so timers would wait for it
// as long as there is always another.
func TestEndsDoNotAskForAnEchoOnItsWay(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, err := OpenSource(ctx, w.js, nil, SourceOptions{Codec: thisRun, From: FromAll})
		if err != nil {
			t.Fatal(err)
		}
		if errs := NewPublisher(w.js, thisRun).Deliver(ctx, []edda.Work{copyOf(t, "c1")}); errs != nil {
			t.Fatal(errs)
		}
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			time.Sleep(endWait / 2) // it reads after the look has begun
			_ = src.Run(ctx)
		}()
		wantEnd(t, ends(ctx, t, src, wire.WorkflowEvents), 0, 1)
		cancel()
		<-ended
	})
}

// TestAResultThatDiedIsSentAgainFromItsCopy: its event lies in no stream.
func TestAResultThatDiedIsSentAgainFromItsCopy(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		src, stop := w.open(ctx, nil, SourceOptions{Codec: thisRun})
		defer stop()
		p := NewPublisher(w.js, thisRun)
		ev, copied, err := wire.Codec{}.Applied(effects.Result{Tenant: "acme", CommandID: "c1", Effect: "charge", Outcome: edda.Succeeded, Payload: json.RawMessage(`{"id":1}`),
			Metadata: json.RawMessage(`{"saga":"order","key":"O1"}`), Time: noon}, nil)
		if err != nil {
			t.Fatal(err)
		}
		letter := edda.DeadLetter{ID: "d1", Reason: edda.DeadFull, Event: ev}
		_, err = p.Resend(ctx, letter, nil, "again-1")
		wantError(t, err, edda.Permanent, "sent again by and by")
		if errs := p.Deliver(ctx, []edda.Work{copied}); errs != nil {
			t.Fatal(errs)
		}
		if _, err := p.Resend(ctx, letter, nil, "again-1"); err != nil {
			t.Fatal(err)
		}
		if got := fetch(ctx, t, src, 1)[0]; got.ID != "again-1" || got.CommandID != "c1" || string(got.Payload) != `{"id":1}` || got.Key != ev.Key {
			t.Errorf("%+v", got)
		}
	})
}
