package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zapcore"

	"edda"
	"edda/store"
)

func TestEventsOfAKeyAreAppliedInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		const keys, rounds = 30, 100
		for i := range rounds {
			for k := range keys {
				w.streams.publish("A", event(fmt.Sprintf("e%d", i), "add", fmt.Sprint(k)))
			}
		}
		settle()
		for k := range keys {
			w.wantLog(key(fmt.Sprint(k)), many(rounds, numbered("e"))...)
		}
		if got := w.metric("edda_events_total"); got != keys*rounds {
			t.Errorf("events: %v", got)
		}
		if got := w.position("A").Seq; got != keys*rounds {
			t.Errorf("position %d", got)
		}
		if got := w.metric("edda_engine_in_flight"); got != 0 {
			t.Errorf("in flight: %v", got)
		}
	})
}

func TestBatchIsOneChangeSet(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.change(func() { w.streams.held = true })
		for i := range 300 {
			w.streams.publish("A", event(fmt.Sprint(i), "add", fmt.Sprint(i%7)))
		}
		w.streams.change(func() { w.streams.held = false })
		settle()
		if sizes := w.gate.sizes(); !slices.Equal(sizes, []int{300}) {
			t.Errorf("sets of %v transitions", sizes)
		}
		if got := w.position("A").Seq; got != 300 {
			t.Errorf("the position is %d", got)
		}
	})
}

// TestCommitDuringAnEvaluationLosesNoUpdate: a lane must find an in-flight cell even if the
// cell's commit ends after the lane opened its snapshot.
func TestCommitDuringAnEvaluationLosesNoUpdate(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(Options{Lanes: 1})
		w.gate.set(true, nil)
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		w.gate.onView = func() { // ends the commit while the snapshot is open
			w.gate.set(false, nil)
			time.Sleep(time.Second)
		}
		w.streams.change(func() { w.streams.held = true })
		w.streams.publish("A", event("x", "add", "another"))
		w.streams.publish("A", event("e2", "add", "k"))
		w.streams.change(func() { w.streams.held = false })
		time.Sleep(2 * time.Second)
		settle()
		w.wantLog(key("k"), "e1", "e2")
		w.wantLog(key("another"), "x")
	})
}

func TestNextBatchIsEvaluatedWhileTheLastCommits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.gate.set(true, nil)
		before := w.gate.count()
		for i := range 5 {
			w.streams.publish("A", event(fmt.Sprint(i), "add", "k"))
			settle()
		}
		if got := w.gate.count() - before; got != 2 {
			t.Errorf("%d sets evaluated while the first commits, want 2", got)
		}
		if got := w.engine.Info().InFlight; got != 2 {
			t.Errorf("%d in flight", got)
		}
		w.wantLog(key("k"))
		w.gate.set(false, nil)
		settle()
		w.wantLog(key("k"), "0", "1", "2", "3", "4")
	})
}

func TestRedeliveredEventIsDropped(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		w.streams.publish("B", event("e2", "add", "k"))
		settle()
		again := edda.Event{Kind: edda.KindEvent, ID: "e1", Type: "add", AggregateID: "k", Tenant: "acme", Stream: "A", Seq: 1}
		w.streams.change(func() { w.streams.waiting = append(w.streams.waiting, again) })
		settle()
		w.wantLog(key("k"), "e1", "e2")
		if got := w.metric("edda_transitions_total", "duplicate", ""); got != 1 {
			t.Errorf("duplicates: %v", got)
		}
		if got := w.position("A").Seq; got != 1 {
			t.Errorf("the position is %d", got)
		}
	})
}

func TestRestartResumesFromTheCheckpoint(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		w.stop()
		w.streams.publish("A", event("e2", "add", "k"))
		again := edda.Event{Kind: edda.KindEvent, ID: "e1", Type: "add", AggregateID: "k", Tenant: "acme", Stream: "A", Seq: 1}
		w.streams.change(func() { w.streams.waiting = append([]edda.Event{again}, w.streams.waiting...) })
		w.start(Options{})
		settle()
		w.wantLog(key("k"), "e1", "e2")
	})
}

func TestEventOfSeveralSagasIsOneChangeSet(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "both", "k"))
		settle()
		other := key("k")
		other.Saga = "other"
		w.wantLog(key("k"), "e1")
		w.wantLog(other, "e1")
		if sizes := w.gate.sizes(); !slices.Equal(sizes, []int{2}) {
			t.Errorf("sets of %v transitions", sizes)
		}
	})
}

func TestEventLargerThanAChangeSetIsNotSplit(t *testing.T) {
	inWorld(t, func(w *world) {
		ev := event("large", "both", "k")
		ev.Payload = []byte(`"` + strings.Repeat("x", store.MaxChange*2/3) + `"`)
		w.streams.publish("A", event("before", "add", "k"))
		w.streams.publish("A", ev)
		w.streams.publish("A", event("after", "add", "k"))
		settle()
		w.wantLog(key("k"), "before", "large", "after")
		if sizes := w.gate.sizes(); !slices.Contains(sizes, 2) {
			t.Errorf("sets of %v transitions", sizes)
		}
	})
}

// TestPositionMovesWithTheNextCommit: an ignored event, such as a fact of a saga, must not cost a
// commit of its own. The next input would wait for that.
func TestPositionMovesWithTheNextCommit(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		before := w.db.Written().Syncs
		w.streams.publish("A", event("e1", "drop", "k"))
		synctest.Wait()
		at := time.Now()
		w.streams.publish("A", event("e2", "add", "k"))
		synctest.Wait()
		w.wantLog(key("k"), "e2")
		if waited := time.Since(at); waited > 0 {
			t.Errorf("the event waited %v", waited)
		}
		if syncs := w.db.Written().Syncs - before; syncs != 1 {
			t.Errorf("%d syncs", syncs)
		}
		settle()
		if got := w.position("A").Seq; got != 2 {
			t.Errorf("position %d", got)
		}
	})
}

func TestDeferredPositionsTakeNoPlaceInThePipeline(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		w.gate.set(true, nil)
		first := w.gate.count()
		for i := range pipelineDepth {
			w.streams.publish("A", event(fmt.Sprint("d", i), "drop", "k"))
			synctest.Wait()
		}
		before := w.gate.count()
		w.streams.publish("A", event("e", "add", "k"))
		synctest.Wait()
		if n := w.gate.count() - before; n != 1 {
			t.Errorf("%d change sets for the event behind them", n)
		}
		for i := range 3 * pipelineDepth {
			w.streams.publish("A", event(fmt.Sprint("m", i), "drop", "k"))
			synctest.Wait()
		}
		if n := w.gate.count() - first; n != pipelineDepth+1 {
			t.Errorf("%d change sets in flight", n)
		}
		w.gate.set(false, nil)
		settle()
		w.wantLog(key("k"), "e")
	})
}

func TestIgnoredEventsMoveThePosition(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "drop", "k"))
		settle()
		if got := w.position("A"); got.Seq != 1 || got.Time.IsZero() || !got.Created.Equal(w.streams.created) {
			t.Errorf("position: %+v", got)
		}
		if got := w.metric("edda_transitions_total", "ignored", ""); got != 1 {
			t.Errorf("ignored: %v", got)
		}
	})
}

func TestATypeThatNoSagaHearsIsLoggedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(Options{UnheardLevel: zapcore.WarnLevel})
		fact := event("e0", "drop", "k")
		fact.AggregateType = "fact"
		full := event("e3", "drop", "k")
		full.FullType = "com.shop.drop"
		first, again := event("e1", "drop", "k"), event("e2", "drop", "k")
		first.AggregateType, again.AggregateType = "Order", "Order"
		for _, ev := range []edda.Event{fact, first, again, full, event("e4", "add", "k")} {
			w.streams.publish("A", ev)
			settle()
		}
		var got []string
		for _, entry := range w.logs.FilterMessage("no saga hears this type of event").All() {
			fields := entry.ContextMap()
			got = append(got, fmt.Sprint(entry.Level, " ", fields["event"], " ", fields["type"], " ", fields["did_you_mean"]))
		}
		if want := []string{"warn e1 Order.drop near drop", "warn e3 com.shop.drop near drop"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		got = nil
		for _, u := range w.engine.Unheard() {
			got = append(got, fmt.Sprint(u.Type, " ", u.Count, " ", u.Stream, " ", u.Near, " ", u.Last.IsZero()))
		}
		if want := []string{"Order.drop 2 A near drop false", "com.shop.drop 1 A near drop false"}; !slices.Equal(got, want) {
			t.Errorf("counted are %q, want %q", got, want)
		}
		for i := range 2 * maxUnheard {
			ev := event(fmt.Sprint("many", i), "drop", "k")
			ev.AggregateType = fmt.Sprint("A", i)
			w.streams.publish("A", ev)
		}
		settle()
		if n := w.logs.FilterMessage("no saga hears this type of event").Len(); n != maxUnheard || len(w.engine.Unheard()) != maxUnheard {
			t.Errorf("%d types are logged, and %d counted", n, len(w.engine.Unheard()))
		}
	})
}

func TestSwapTakesEffectBetweenBatches(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		if err := w.engine.Swap(context.Background(), counter{name: "second"}); err != nil {
			t.Fatal(err)
		}
		w.streams.publish("A", event("e2", "add", "k"))
		settle()
		second := key("k")
		second.Saga = "second"
		w.wantLog(key("k"), "e1")
		w.wantLog(second, "e2")
	})
}

func TestPingIsAnsweredWhileCommitsHang(t *testing.T) {
	inWorld(t, func(w *world) {
		w.gate.set(true, nil)
		for i := range 5 {
			w.streams.publish("A", event(fmt.Sprint(i), "add", "k"))
			settle()
		}
		if err := w.engine.Ping(context.Background()); err != nil {
			t.Error(err)
		}
		w.gate.set(false, nil)
	})
}

func TestDrainCommitsEverythingRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.gate.set(true, nil)
		for i := range 5 {
			w.streams.publish("A", event(fmt.Sprint(i), "add", "k"))
			settle()
		}
		drained := make(chan error, 2)
		for range 2 {
			go func() { drained <- w.engine.Drain(context.Background()) }()
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(drained) != 0 || !w.engine.Info().Draining {
			t.Fatal("drained before the commit")
		}
		w.streams.publish("A", event("after", "add", "k"))
		w.gate.set(false, nil)
		for range 2 {
			if err := <-drained; err != nil {
				t.Fatal(err)
			}
		}
		w.wantLog(key("k"), "0", "1", "2", "3", "4")
		settle()
		w.wantLog(key("k"), "0", "1", "2", "3", "4")
		if err := w.engine.Wake(context.Background(), row("k", time.Now())); !errors.Is(err, ErrDraining) {
			t.Errorf("wake while draining: %v", err)
		}
	})
}

func TestCallsAfterRunReturnErrStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		w.stop()
		ctx := context.Background()
		for name, err := range map[string]error{
			"drain": w.engine.Drain(ctx),
			"swap":  w.engine.Swap(ctx, counter{}),
			"ping":  w.engine.Ping(ctx),
			"wake":  w.engine.Wake(ctx, row("k", time.Now())),
			"start": w.engine.Start(ctx, edda.Event{}, edda.ScheduleState{}),
		} {
			if !errors.Is(err, ErrStopped) || !errors.Is(err, edda.Permanent) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestSourceIsPolledWithoutItsSignal, because the source of a restored store waits until the
// events it gave are durable.
func TestSourceIsPolledWithoutItsSignal(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		before := w.streams.taken()
		time.Sleep(10*tickEvery + tickEvery/2)
		if n := w.streams.taken() - before; n != 10 {
			t.Errorf("%d calls of Take, want 10", n)
		}
	})
}

func TestPositionsMovePastMessagesOfOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		if got := w.position("B"); got.Seq != 0 || !got.Created.Equal(w.streams.created) {
			t.Errorf("position of an empty stream: %+v", got)
		}
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		stored := time.Now().UTC()
		w.streams.change(func() {
			w.streams.gone = true
			w.streams.last["A"] = edda.Checkpoint{Stream: "A", Seq: 9, Time: stored, Created: w.streams.created}
		})
		time.Sleep(tidyEvery + 2*pollEvery)
		settle()
		if got := w.position("A"); got.Seq != 9 || !got.Time.Equal(stored) {
			t.Errorf("position: %+v", got)
		}
		w.streams.publish("A", event("e2", "add", "k"))
		settle()
		w.wantLog(key("k"), "e1", "e2")
	})
}

func TestInfoHasPositionsAndLag(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		w.streams.change(func() { w.streams.held = true })
		w.streams.publish("A", event("e2", "add", "k"))
		w.streams.publish("A", event("e3", "add", "k"))
		time.Sleep(2 * pollEvery)
		got := w.engine.Info().Positions
		if len(got) != 2 || got[0].Stream != "A" || got[0].Seq != 1 || got[0].End != 3 || got[0].Lag != 2 || got[1].Lag != 0 {
			t.Errorf("positions: %+v", got)
		}
	})
}
