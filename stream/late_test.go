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
	"edda/engine"
	"edda/stream/wire"
)

// echoAt returns the echo of a command's result that was applied at a time.
func echoAt(t *testing.T, w edda.Work, at time.Time) edda.Work {
	t.Helper()
	cmd, _ := wire.Codec{}.Offered(&w)
	_, copied, err := wire.Codec{}.Applied(effects.Result{Tenant: cmd.Tenant, CommandID: cmd.ID, Effect: cmd.Effect, Outcome: edda.Succeeded,
		Payload: json.RawMessage(`{"id":1}`), Metadata: cmd.Metadata, Attempts: 2, Time: noon.Add(-time.Minute), Trace: cmd.Trace}, nil)
	if err != nil {
		t.Fatal(err)
	}
	copied.Time = at
	return copied
}

// publishEcho publishes the echo of a result that was applied some time ago.
func (w *world) publishEcho(tenant, id string, ago time.Duration) {
	w.T.Helper()
	copied := echoAt(w.T, command(id, tenant), time.Now().Add(-ago).UTC())
	if errs := NewPublisher(w.JS, wire.Codec{}).Deliver(w.T.Context(), []edda.Work{copied}); errs != nil {
		w.T.Fatal(errs)
	}
}

// places formats the place of each event, and its command.
func places(events []edda.Event) (out []string) {
	for _, ev := range events {
		out = append(out, fmt.Sprintf("%s%d %s", ev.Stream, ev.Seq, ev.CommandID))
	}
	return out
}

// TestARestoredStoreGetsALateResultAtItsTime: messages that others stored before the echo were
// later than the result. The echo is a duplicate at its place.
func TestARestoredStoreGetsALateResultAtItsTime(t *testing.T) {
	const gap = 10 * time.Minute // between the messages of others, in the bubble's time
	for _, restored := range []bool{true, false} {
		bubble(t, func(ctx context.Context, w *world) {
			_, stop := w.open(ctx, nil, SourceOptions{}) // makes the streams
			stop()
			for i := range 3 {
				w.send("acme", "O1", i)
				time.Sleep(gap)
			}
			w.publishEcho("acme", "prompt", 0)
			w.publishEcho("acme", "slow", lateAfter)
			w.result("acme", "plain")
			w.publishEcho("other", "foreign", 2*gap)
			w.publishEcho("acme", "late", 3*gap/2)
			w.publishEcho("acme", "later", 5*gap/2)
			time.Sleep(gap)
			w.send("acme", "O1", 3)
			src, stop := w.open(ctx, nil, SourceOptions{From: FromAll, Restored: restored, Tenants: wire.Tenants{"ac*"}})
			defer stop()
			want := []string{
				"AGGREGATE_EVENTS1 ", "0 later", "AGGREGATE_EVENTS2 ", "0 late", "AGGREGATE_EVENTS3 ", "WORKFLOW_EVENTS1 prompt",
				"WORKFLOW_EVENTS2 slow", "WORKFLOW_EVENTS3 plain", "WORKFLOW_EVENTS5 late", "WORKFLOW_EVENTS6 later", "AGGREGATE_EVENTS4 ",
			}
			if !restored {
				want = slices.DeleteFunc(want, func(place string) bool { return place[0] == '0' })
			}
			if got := places(fetchBacklog(ctx, w.T, src)); !slices.Equal(got, want) {
				t.Errorf("restored %v:\n got %q\nwant %q", restored, got, want)
			}
		})
	}
}

func TestLateResultsRespectTheLimit(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, stop := w.open(ctx, nil, SourceOptions{}) // makes the streams
		stop()
		for i := range 5 {
			w.publishEcho("acme", fmt.Sprint("c", i), time.Duration(9-i)*time.Hour)
		}
		w.publishEcho("acme", "prompt", 0)
		src, stop := w.open(ctx, nil, SourceOptions{From: FromAll, Restored: true})
		defer stop()
		var got []string
		for len(got) < 11 {
			fetched, err := src.Fetch(ctx, 2, time.Minute)
			if err != nil || !fetched.Past || len(fetched.Events) == 0 || len(fetched.Events) > 2 {
				t.Fatalf("%+v, %v", fetched, err)
			}
			got = append(got, places(fetched.Events)...)
		}
		for i, place := range got[:10] {
			want := fmt.Sprintf("0 c%d", i)
			if i >= 5 {
				want = fmt.Sprintf("WORKFLOW_EVENTS%d c%d", i-4, i-5)
			}
			if place != want {
				t.Errorf("%d: %s, want %s", i, place, want)
			}
		}
	})
}

// TestLateResultsAreBounded: results beyond the bound come at their store time. Prompt echoes take
// no room, however many there are and however far the clocks differ.
func TestLateResultsAreBounded(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -engine.MaxSkew} {
		found := late{minDelay: engine.MaxSkew}
		found.note(delayedEcho{1, skew + 2*lateAfter})
		for i := range 5 * maxLate {
			found.note(delayedEcho{uint64(i), skew + time.Duration(i)})
		}
		found.note(delayedEcho{2, skew + lateAfter + 1})
		if found.sift(); skew <= engine.MaxSkew && (len(found.echoes) != 2 || found.omitted != 0 || found.minDelay != skew) {
			t.Errorf("skew %v: %d are late, %d left, the quickest delay %v", skew, len(found.echoes), found.omitted, found.minDelay)
		}
		for i := range 5 * maxLate {
			found.note(delayedEcho{uint64(i), skew + time.Hour})
		}
		if found.sift(); len(found.echoes) != maxLate || found.omitted == 0 {
			t.Errorf("skew %v: %d are late, %d left", skew, len(found.echoes), found.omitted)
		}
	}
}

// TestLateIsRelativeToTheQuickestEcho: if the stream's clock is ahead of ours, all echoes seem
// late.
func TestLateIsRelativeToTheQuickestEcho(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		_, stop := w.open(ctx, nil, SourceOptions{}) // makes the streams
		stop()
		const ahead = 40 * time.Second
		w.publishEcho("acme", "first", ahead)
		time.Sleep(30 * time.Second)
		w.send("acme", "O1", 0)
		time.Sleep(10 * time.Second)
		w.publishEcho("acme", "prompt", ahead)
		w.publishEcho("acme", "late", ahead+20*time.Second)
		src, stop := w.open(ctx, nil, SourceOptions{From: FromAll, Restored: true})
		defer stop()
		want := []string{"WORKFLOW_EVENTS1 first", "0 late", "AGGREGATE_EVENTS1 ", "WORKFLOW_EVENTS2 prompt", "WORKFLOW_EVENTS3 late"}
		if got := places(fetchBacklog(ctx, w.T, src)); !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
	})
}
