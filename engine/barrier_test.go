package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// withLateTimer runs the test one second before a timer is due that no scheduler fires.
func withLateTimer(t *testing.T, test func(w *world, due time.Time)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.arm("pay", "k", time.Minute)
		settle()
		due := w.due(time.Now().Add(time.Hour))[0].Time
		time.Sleep(time.Until(due.Add(-time.Second)))
		test(w, due)
	})
}

// waitPoll waits until a request for end offsets is sent and answered.
func waitPoll() {
	time.Sleep(4 * pollPause)
	synctest.Wait()
}

func TestLateTimerFiresBeforeALiveEvent(t *testing.T) {
	withLateTimer(t, func(w *world, due time.Time) {
		time.Sleep(time.Second)
		w.streams.publish("B", event("then", "add", "k")) // of the same moment, so it comes first
		time.Sleep(time.Nanosecond)
		w.streams.publish("B", event("after", "add", "k"))
		w.streams.publish("B", event("other", "add", "x"))
		waitPoll()
		w.wantLog(key("k"), "pay", "then", "timer-pay", "after")
		w.wantLog(key("x"), "other")
		if rows := w.due(time.Now()); len(rows) != 0 {
			t.Errorf("rows left: %v", rows)
		}
		if n := w.metric("edda_timer_turns_total"); n != 1 {
			t.Errorf("%v barriers, want one", n)
		}
	})
}

func TestLateTimerWaitsForEarlierEventsOfOtherStreams(t *testing.T) {
	withLateTimer(t, func(w *world, due time.Time) {
		w.streams.Hold(true)
		w.streams.publish("A", event("before", "add", "k"))
		time.Sleep(2 * time.Second)
		w.streams.publish("A", event("behind", "add", "k"))
		w.streams.publish("B", event("after", "add", "k"))
		waitPoll()
		w.wantLog(key("k"), "pay")
		w.streams.Hold(false)
		waitPoll()
		w.wantLog(key("k"), "pay", "before", "timer-pay", "after", "behind")
	})
}

func TestBarrierTimesOutWhenTheServerDoesNotAnswer(t *testing.T) {
	withLateTimer(t, func(w *world, due time.Time) {
		time.Sleep(2 * time.Second)
		w.streams.change(func() { w.streams.mute = true })
		w.streams.publish("B", event("first", "add", "k"))
		time.Sleep(maxBarrier / 2)
		w.wantLog(key("k"), "pay")
		time.Sleep(maxBarrier)
		synctest.Wait()
		w.wantLog(key("k"), "pay", "first")
		w.streams.publish("B", event("second", "add", "k"))
		settle() // no barrier is raised for barrierRetry
		w.wantLog(key("k"), "pay", "first", "second")
		w.streams.change(func() { w.streams.mute = false })
		time.Sleep(barrierRetry)
		w.streams.publish("B", event("third", "add", "k"))
		waitPoll()
		w.wantLog(key("k"), "pay", "first", "second", "timer-pay", "third")
	})
}

// TestNoBarrierForATimerInTheFutureOfOurClock stores an event by a server whose clock is ahead.
func TestNoBarrierForATimerInTheFutureOfOurClock(t *testing.T) {
	withLateTimer(t, func(w *world, due time.Time) {
		w.streams.store("B", due.Add(time.Second), event("early", "add", "k"))
		settle()
		w.wantLog(key("k"), "pay", "early")
		time.Sleep(time.Second)
		w.wake(w.due(time.Now()))
		w.wantLog(key("k"), "pay", "early", "timer-pay")
	})
}

func TestBlockedEventsSurviveAFailedCommit(t *testing.T) {
	withLateTimer(t, func(w *world, due time.Time) {
		w.gate.set(true, nil)
		w.streams.publish("A", event("before", "add", "k"))
		settle()
		time.Sleep(2 * time.Second)
		w.streams.publish("B", event("after", "add", "k"))
		settle()
		w.gate.failNext(errDiskFull)
		time.Sleep(time.Minute)
		waitPoll()
		w.wantLog(key("k"), "pay", "before", "timer-pay", "after")
	})
}
