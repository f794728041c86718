package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"edda"
)

// TestASagaIsCaughtUpAsIfItHadReadEverything whatever happens meanwhile: each key has what
// a saga that was there from the beginning has, once, and each stream's in its order.
func TestASagaIsCaughtUpAsIfItHadReadEverything(t *testing.T) {
	if testing.Short() {
		t.Log("few rounds")
	}
	rapid.Check(t, func(r *rapid.T) {
		plan := rapid.SliceOfN(rapid.SampledFrom([]string{
			"A", "A", "A", "B", "B", "told", "pass", "pass", "begin", "restart", "fail", "hold", "free", "slow", "fast", "refuse", "allow", "both", "crowd old", "crowd late", "crowd both", "crowd none",
		}), 10, 80).Draw(r, "plan")
		relive(t, r, plan)
	})
}

func relive(t *testing.T, r *rapid.T, plan []string) {
	dir := t.TempDir()
	var complaints []string
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		l, room := w.library(), &rooms{}
		w.sagas = chorus{"old"}
		options := Options{CatchUp: l.catchUp(), room: room}
		w.start(options)
		begun := false
		for i, step := range plan {
			id, k := fmt.Sprint(step, i), fmt.Sprint("K", i%3)
			switch step {
			case "A", "B":
				w.streams.publish(step, event(id, "add", k))
			case "told": // not for everybody: it moves the main line alone
				w.streams.publish("B", edda.Event{ID: id, Kind: edda.KindSignal, Type: "told", Key: edda.Key{Tenant: "acme", Saga: "mute", Correlation: "K"}, Tenant: "acme"})
			case "both": // of one moment
				for n := range 60 {
					w.streams.publish([]string{"A", "B"}[n%2], event(fmt.Sprint(id, "-", n), "add", k))
				}
			case "pass":
				time.Sleep(time.Duration(i%7) * 3 * time.Millisecond)
			case "begin":
				if !begun {
					begun, w.sagas = true, chorus{"old", "late"}
					w.begins(chorus{"old", "late"}, "late")
				}
			case "restart":
				w.gate.set(false, nil)
				w.stop()
				w.rewind()
				w.start(options)
			case "crowd old":
				room.set(SagaTenant{"acme", "old"})
			case "crowd late", "crowd both":
				if !begun { // nobody who has not begun has work
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
		w.streams.Hold(false)
		w.gate.set(false, nil)
		w.gate.slow(0)
		if !begun {
			w.begins(chorus{"old", "late"}, "late")
		}
		w.liveAgain()
		last := w.streams.publish("A", event("last", "add", "K0"))
		for w.position("A").Seq < last { // a store that failed is tried again after seconds
			settle()
		}
		w.liveAgain()
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

// rewind has the streams give again what is behind the durable positions.
func (w *world) rewind() {
	at := map[string]uint64{"A": w.position("A").Seq, "B": w.position("B").Seq}
	w.streams.change(func() {
		w.streams.waiting = slices.DeleteFunc(slices.Clone(w.streams.stored), func(ev edda.Event) bool { return ev.Seq <= at[ev.Stream] })
	})
}

// stored are the events of a key by stream, as they were stored.
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

// interleaves says what is wrong where the list is not one of the streams, each in its order.
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
			return id + " came twice, or out of order"
		}
	}
	if len(got) != n {
		return fmt.Sprintf("%d of %d came", len(got), n)
	}
	return ""
}
