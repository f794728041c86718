package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// lateWorld is an engine with a timer that came due and has not fired: nobody wakes it.
func lateWorld(t *testing.T, test func(w *world, due time.Time)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.arm("pay", "k", time.Minute)
		settle()
		due := w.due(time.Now().Add(time.Hour))[0].Time
		time.Sleep(time.Until(due.Add(-time.Second)))
		test(w, due)
	})
}

// asked lets a survey be asked for and answered.
func asked() {
	time.Sleep(4 * pollPause)
	synctest.Wait()
}

func TestALiveEventComesBehindATimerThatIsLate(t *testing.T) {
	lateWorld(t, func(w *world, due time.Time) {
		time.Sleep(time.Second)
		w.streams.publish("B", event("then", "add", "k")) // of one moment the event comes first
		time.Sleep(time.Nanosecond)
		w.streams.publish("B", event("after", "add", "k"))
		w.streams.publish("B", event("other", "add", "x"))
		asked()
		w.wantLog(key("k"), "pay", "then", "timer-pay", "after")
		w.wantLog(key("x"), "other")
		if rows := w.due(time.Now()); len(rows) != 0 {
			t.Errorf("rows left: %v", rows)
		}
		if n := w.metric("edda_timer_turns_total"); n != 1 {
			t.Errorf("%v turns", n)
		}
	})
}

func TestALateTimerWaitsForWhatOtherStreamsStoredBeforeIt(t *testing.T) {
	lateWorld(t, func(w *world, due time.Time) {
		w.streams.Hold(true)
		w.streams.publish("A", event("before", "add", "k"))
		time.Sleep(2 * time.Second)
		w.streams.publish("A", event("behind", "add", "k"))
		w.streams.publish("B", event("after", "add", "k"))
		asked()
		w.wantLog(key("k"), "pay")
		w.streams.Hold(false)
		asked()
		w.wantLog(key("k"), "pay", "before", "timer-pay", "after", "behind")
	})
}

func TestAnEventDoesNotWaitForAServerThatDoesNotAnswer(t *testing.T) {
	lateWorld(t, func(w *world, due time.Time) {
		time.Sleep(2 * time.Second)
		w.streams.change(func() { w.streams.mute = true })
		w.streams.publish("B", event("first", "add", "k"))
		time.Sleep(maxBarrier / 2)
		w.wantLog(key("k"), "pay")
		time.Sleep(maxBarrier)
		synctest.Wait()
		w.wantLog(key("k"), "pay", "first")
		w.streams.publish("B", event("second", "add", "k"))
		settle() // for a while nothing waits
		w.wantLog(key("k"), "pay", "first", "second")
		w.streams.change(func() { w.streams.mute = false })
		time.Sleep(barrierRetry)
		w.streams.publish("B", event("third", "add", "k"))
		asked()
		w.wantLog(key("k"), "pay", "first", "second", "timer-pay", "third")
	})
}

// TestATimerThatIsNotDueByOurClockIsNotWaitedFor, where the server's clock is ahead.
func TestATimerThatIsNotDueByOurClockIsNotWaitedFor(t *testing.T) {
	lateWorld(t, func(w *world, due time.Time) {
		w.streams.store("B", due.Add(time.Second), event("early", "add", "k"))
		settle()
		w.wantLog(key("k"), "pay", "early")
		time.Sleep(time.Second)
		w.wake(w.due(time.Now()))
		w.wantLog(key("k"), "pay", "early", "timer-pay")
	})
}

func TestEventsThatWaitForATimerSurviveAFailedCommit(t *testing.T) {
	lateWorld(t, func(w *world, due time.Time) {
		w.gate.set(true, nil)
		w.streams.publish("A", event("before", "add", "k"))
		settle()
		time.Sleep(2 * time.Second)
		w.streams.publish("B", event("after", "add", "k"))
		settle()
		w.gate.failNext(errDiskFull)
		time.Sleep(time.Minute)
		asked()
		w.wantLog(key("k"), "pay", "before", "timer-pay", "after")
	})
}
