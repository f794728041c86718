//go:build !quick

package engine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"edda"
)

// TestCatchUpEqualsReadingFromTheBeginning under random failures, pauses and restarts: each key
// has every event once, those of each stream in its order.
func TestCatchUpEqualsReadingFromTheBeginning(t *testing.T) {
	if testing.Short() {
		t.Log("few rounds")
	}
	rapid.Check(t, func(r *rapid.T) {
		plan := rapid.SliceOfN(rapid.SampledFrom([]string{
			"A", "A", "A", "B", "B", "told", "pass", "pass", "later", "begin", "begin", "restart", "restart", "fail", "hold", "free", "slow", "fast", "refuse", "allow", "both", "batch", "batch", "batch", "sip", "gulp", "crowd old", "crowd late", "crowd both", "crowd none",
		}), 10, 80).Draw(r, "plan")
		runPlan(t, r, plan)
	})
}

func runPlan(t *testing.T, r *rapid.T, plan []string) {
	dir := t.TempDir()
	var complaints []string
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		l, room := w.archive(), &fakeShares{}
		w.sagas = sagaList{"old"}
		options := Options{CatchUp: l.catchUp(), room: room}
		w.start(options)
		begun := false
		for i, step := range plan {
			id, k := fmt.Sprint(step, i), fmt.Sprint("K", i%3)
			switch step {
			case "A", "B":
				w.streams.publish(step, event(id, "add", k))
			case "told": // moves only the main line
				w.streams.publish("B", edda.Event{ID: id, Kind: edda.KindSignal, Type: "told", Key: edda.Key{Tenant: "acme", Saga: "mute", Correlation: "K"}, Tenant: "acme"})
			case "both": // in the same moment
				for n := range 60 {
					w.streams.publish([]string{"A", "B"}[n%2], event(fmt.Sprint(id, "-", n), "add", k))
				}
			case "batch":
				var members []edda.Event
				for n := range i%9 + 1 {
					members = append(members, event(fmt.Sprint(id, "-", n), "add", fmt.Sprint("K", n%3)))
				}
				w.streams.publishBatch([]string{"A", "B"}[i%2], members...)
			case "sip":
				w.streams.change(func() { w.streams.sip = i%3 + 1 })
			case "gulp":
				w.streams.change(func() { w.streams.sip = 0 })
			case "pass":
				time.Sleep(time.Duration(i%7) * 3 * time.Millisecond)
			case "later":
				time.Sleep(time.Duration(i%7) * tickEvery)
			case "begin":
				if !begun {
					begun, w.sagas = true, sagaList{"old", "late"}
					w.addBehind(sagaList{"old", "late"}, "late")
				}
			case "restart":
				w.gate.set(false, nil)
				w.stop()
				w.rewind()
				w.start(options)
			case "crowd old":
				room.set(SagaTenant{"acme", "old"})
			case "crowd late", "crowd both":
				if !begun { // a saga that has not begun has no work
					break
				}
				room.set(SagaTenant{"acme", "late"}, SagaTenant{"other", "late"})
				if step == "crowd both" {
					room.set(SagaTenant{"acme", "old"}, SagaTenant{"acme", "late"})
				}
			case "crowd none":
				room.set()
			case "fail":
				w.gate.failNext(errDiskFull)
			case "slow":
				w.gate.slow(7 * time.Millisecond)
			case "fast":
				w.gate.slow(0)
			case "hold":
				w.streams.Hold(true)
			case "free":
				w.streams.Hold(false)
			case "refuse":
				l.refuse(errors.New("not now"))
			case "allow":
				l.refuse(nil)
			}
		}
		l.refuse(nil)
		room.set()
		w.streams.change(func() { w.streams.sip = 0 })
		w.streams.Hold(false)
		w.gate.set(false, nil)
		w.gate.slow(0)
		if !begun {
			w.addBehind(sagaList{"old", "late"}, "late")
		}
		w.waitCaughtUp()
		last := w.streams.publish("A", event("last", "add", "K0"))
		for w.position("A").Seq < last { // after a failure the pause is seconds
			settle()
		}
		w.waitCaughtUp()
		for _, k := range []string{"K0", "K1", "K2"} {
			want := w.stored(k)
			for _, name := range []string{"old", "late"} {
				got := w.logOf(name, k)
				if problem := interleaves(got, want); problem != "" {
					complaints = append(complaints, fmt.Sprintf("%s of %s: %s\n got %v\nwant %v", k, name, problem, got, want))
				}
			}
		}
	})
	for _, c := range complaints {
		r.Error(c)
	}
}

// stored returns the event ids of a key by stream, in stream order.
func (w *world) stored(key string) map[string][]string {
	w.streams.mu.Lock()
	defer w.streams.mu.Unlock()
	out := map[string][]string{}
	for _, ev := range w.streams.stored {
		if ev.AggregateID == key {
			out[ev.Stream] = append(out[ev.Stream], ev.ID)
		}
	}
	return out
}

// interleaves returns an error text unless the list interleaves the streams, each in its order.
func interleaves(got []string, streams map[string][]string) string {
	left := map[string][]string{}
	n := 0
	for name, ids := range streams {
		left[name] = ids
		n += len(ids)
	}
	for _, id := range got {
		found := false
		for name, ids := range left {
			if len(ids) > 0 && ids[0] == id {
				left[name], found = ids[1:], true
				break
			}
		}
		if !found {
			return id + " is a duplicate or out of order"
		}
	}
	if len(got) != n {
		return fmt.Sprintf("%d of %d events", len(got), n)
	}
	return ""
}
