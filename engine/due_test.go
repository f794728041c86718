package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	"edda/store"
)

func row(correlation string, at time.Time) []store.Due {
	return []store.Due{{Time: at, Key: key(correlation)}}
}

func (w *world) wake(rows []store.Due) {
	w.t.Helper()
	if err := w.engine.Wake(context.Background(), rows); err != nil {
		w.t.Fatal(err)
	}
}

// arm publishes an event that arms a timer with the event's name.
func (w *world) arm(id, key string, after time.Duration) {
	ev := event(id, "arm", key)
	ev.Payload, _ = json.Marshal(after.String())
	w.streams.publish("A", ev)
}

// due reads the rows of the due index.
func (w *world) due(until time.Time) []store.Due {
	w.t.Helper()
	rows, _, err := w.db.Due(until, MaxRows)
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

func TestTimerFiresAndItsRowIsRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.arm("pay", "k", 30*time.Minute)
		settle()
		time.Sleep(30 * time.Minute)
		begin := time.Now()
		w.wake(w.due(begin))
		if late := time.Since(begin); late > 50*time.Millisecond {
			t.Errorf("%v late", late)
		}
		w.wantLog(key("k"), "pay", "timer-pay")
		if rows := w.due(time.Now().Add(time.Hour)); len(rows) != 0 {
			t.Errorf("rows left: %v", rows)
		}
		if got := w.metric("edda_timers_late_seconds"); got != 1 {
			t.Errorf("late: %v", got)
		}
	})
}

// TestEventStoredBeforeATimerIsDueComesFirst: a payment stored at 10:29 is applied before the
// timer of 10:30, however late it is read.
func TestEventStoredBeforeATimerIsDueComesFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		w.arm("pay", "k", 30*time.Minute)
		settle()
		time.Sleep(29 * time.Minute)
		w.streams.change(func() { w.streams.held = true })
		w.streams.publish("B", event("payment", "add", "k"))
		time.Sleep(time.Minute)
		woken := make(chan error, 1)
		rows := w.due(time.Now())
		go func() { woken <- w.engine.Wake(context.Background(), rows) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(woken) != 0 {
			t.Fatal("the timer fired before the event was applied")
		}
		w.streams.change(func() { w.streams.held = false })
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		w.wantLog(key("k"), "pay", "payment", "timer-pay")
	})
}

func TestTimerDoesNotOvertakeAnEventWhoseCommitFailed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.arm("pay", "k", time.Minute)
		settle()
		time.Sleep(time.Minute - time.Second)
		w.gate.set(true, nil)
		w.streams.publish("A", event("payment", "add", "k"))
		time.Sleep(time.Second) // evaluated, not durable
		woken := make(chan error, 1)
		rows := w.due(time.Now())
		go func() { woken <- w.engine.Wake(context.Background(), rows) }()
		settle()
		w.gate.failNext(errDiskFull)
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		w.wantLog(key("k"), "pay", "payment", "timer-pay")
	})
}

// TestWatermarkAdvancesUnderConstantLoad stores as many events as the engine applies, so that
// the engine never reaches the ends of the streams.
func TestWatermarkAdvancesUnderConstantLoad(t *testing.T) {
	inWorld(t, func(w *world) {
		w.arm("pay", "k", time.Second)
		settle()
		time.Sleep(time.Second)
		const commit = 3 * pollEvery
		w.gate.slow(commit)
		n := 0
		load := func() {
			for range maxBatch / 2 {
				n++
				w.streams.publish("A", event(fmt.Sprint(n), "add", fmt.Sprint(n%500)))
			}
		}
		for range 5 {
			load()
		}
		woken := make(chan error, 1)
		rows := w.due(time.Now())
		go func() { woken <- w.engine.Wake(context.Background(), rows) }()
		for range 16 {
			time.Sleep(commit)
			load()
		}
		if len(woken) != 1 {
			t.Error("the timer still waits")
		}
		w.gate.slow(0)
	})
}

func TestExpiredMessageHoldsNoTimerBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.arm("pay", "k", time.Second)
		settle()
		w.streams.change(func() { w.streams.held = true })
		w.streams.publish("B", event("expires", "add", "k"))
		time.Sleep(time.Second)
		woken := make(chan error, 1)
		rows := w.due(time.Now())
		go func() { woken <- w.engine.Wake(context.Background(), rows) }()
		settle()
		w.streams.change(func() { w.streams.waiting, w.streams.gone = nil, true })
		begin := time.Now()
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 2*pollEvery {
			t.Errorf("noticed after %v", took)
		}
		w.wantLog(key("k"), "pay", "timer-pay")
	})
}

// TestClockSteppedBackDoesNotFloodTheServerWithPolls: a row was due, and then the clock was
// stepped back.
func TestClockSteppedBackDoesNotFloodTheServerWithPolls(t *testing.T) {
	inWorld(t, func(w *world) {
		const back = time.Minute
		w.stop()
		w.streams.answers = 100 * time.Microsecond // lets virtual time pass in a busy loop too
		w.start(Options{})
		w.arm("pay", "k", back)
		settle()
		begin, before := time.Now(), w.streams.polled()
		w.wake(w.due(begin.Add(back)))
		if fired := time.Since(begin); fired < back-time.Second || fired > back+50*time.Millisecond {
			t.Errorf("it fired after %v", fired)
		}
		w.wantLog(key("k"), "pay", "timer-pay")
		n := w.streams.polled() - before
		if most := int(back / pollPause); n > most || n < most/2 {
			t.Errorf("%d polls, want about %d", n, most)
		}
	})
}

// TestOneTimerNeedsOnePollUnderLoad: events that arrive during a poll need no further poll, which
// would delay the next timer.
func TestOneTimerNeedsOnePollUnderLoad(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 20
		w.stop()
		w.streams.answers = 5 * time.Millisecond
		w.start(Options{})
		for i := range n {
			w.arm(fmt.Sprintf("a%02d", i), fmt.Sprint(i), time.Minute+time.Duration(i)*100*time.Millisecond)
		}
		settle()
		time.Sleep(time.Minute - time.Second)
		before, began := w.streams.polled(), time.Now()
		for i := range n {
			for len(w.due(time.Now())) == 0 {
				time.Sleep(time.Millisecond)
			}
			woken := make(chan error, 1)
			rows := w.due(time.Now())
			go func() { woken <- w.engine.Wake(context.Background(), rows) }()
			for j := range 10 {
				w.streams.publish("B", event(fmt.Sprintf("e%d-%d", i, j), "add", "other"))
				time.Sleep(time.Millisecond)
			}
			if err := <-woken; err != nil {
				t.Fatal(err)
			}
		}
		ticks := int(time.Since(began)/pollEvery) + 1
		if got := w.streams.polled() - before; got > n+ticks {
			t.Errorf("%d polls for %d timers and %d ticks", got, n, ticks)
		}
	})
}

func TestTimersFireInDueOrderAfterDowntime(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 40 { // two timers a key, interleaved
			w.arm(fmt.Sprintf("late%02d", i), fmt.Sprint(i), time.Hour-time.Duration(i)*time.Second)
			w.arm(fmt.Sprintf("last%02d", i), fmt.Sprint(i), 2*time.Hour-time.Duration(i)*time.Second)
		}
		settle()
		time.Sleep(5 * time.Hour)
		w.wake(w.due(time.Now()))
		var fired []string
		for _, id := range w.ids() {
			if len(id) > 6 && id[:6] == "timer-" {
				fired = append(fired, id)
			}
		}
		want := slices.Concat(
			many(40, func(i int) string { return fmt.Sprintf("timer-late%02d", 39-i) }),
			many(40, func(i int) string { return fmt.Sprintf("timer-last%02d", 39-i) }))
		if !slices.Equal(fired, want) {
			t.Errorf("fired\n %v, want\n %v", joined(fired), joined(want))
		}
	})
}

// TestWakeFillsThePipeline expects a batch of rows to be evaluated while another commits, and the
// answer when all are durable.
func TestWakeFillsThePipeline(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 3 * maxDue
		for i := range n {
			w.arm(fmt.Sprintf("a%04d", i), fmt.Sprint(i), time.Hour)
		}
		settle()
		time.Sleep(time.Hour)
		rows := w.due(time.Now())
		w.gate.set(true, nil)
		before := w.gate.count()
		woken := make(chan error, 1)
		go func() { woken <- w.engine.Wake(context.Background(), rows) }()
		settle()
		fired := 0
		for _, c := range w.gate.sent(before) {
			fired += len(c.Disarm) + len(c.Encoded)
		}
		if len(rows) != n || fired != pipelineDepth*maxDue || len(woken) > 0 {
			t.Errorf("of %d rows %d are in flight; answers: %d", len(rows), fired, len(woken))
		}
		w.gate.set(false, nil)
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		if left := w.due(time.Now()); len(left) > 0 {
			t.Errorf("%d rows are left", len(left))
		}
	})
}

func TestStaleRowIsRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		stale := row("nobody", time.Now())
		if err := w.db.Commit(context.Background(), store.Change{Arm: stale}); err != nil {
			t.Fatal(err)
		}
		w.wake(stale)
		if rows := w.due(time.Now()); len(rows) != 0 {
			t.Errorf("rows: %v", rows)
		}
	})
}

func TestWakeRefusesTooManyRows(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.engine.Wake(context.Background(), make([]store.Due, MaxRows+1)); !errors.Is(err, edda.Permanent) {
			t.Errorf("got %v", err)
		}
		if err := w.engine.Wake(context.Background(), nil); err != nil {
			t.Errorf("no rows: %v", err)
		}
	})
}

func TestScheduleStartsWithItsRowInOneChangeSet(t *testing.T) {
	inWorld(t, func(w *world) {
		ev := event("nightly-1", "add", "k")
		ev.Kind, ev.Time = edda.KindSchedule, time.Now().UTC()
		s := edda.ScheduleState{Tenant: "acme", Saga: "counter", Name: "nightly", Last: ev.Time}
		before := w.gate.count()
		if err := w.engine.Start(context.Background(), ev, s); err != nil {
			t.Fatal(err)
		}
		w.wantLog(key("k"), "nightly-1")
		rows, err := w.db.Schedules()
		if err != nil || len(rows) != 1 || !rows[0].Last.Equal(ev.Time) {
			t.Errorf("schedules: %+v, %v", rows, err)
		}
		if got := w.gate.count() - before; got != 1 {
			t.Errorf("%d change sets", got)
		}
	})
}

func TestResultWithoutAKeyFindsItsCommand(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("order", "send", "k"))
		settle()
		result := edda.Event{Kind: edda.KindResult, ID: "r1", Tenant: "acme", CommandID: "work-order", Outcome: edda.Succeeded}
		foreign := result
		foreign.ID, foreign.Tenant = "r0", "evil"
		w.streams.publish("B", foreign)
		w.streams.publish("B", result)
		settle()
		w.wantLog(key("k"), "order", "r1")
	})
}
