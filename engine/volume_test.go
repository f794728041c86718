//go:build !race && !quick

package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestBatchOfLargeInstancesIsFollowedBySmallerOnes(t *testing.T) {
	inWorld(t, func(w *world) {
		ev := event("", "big", "")
		ev.Payload = []byte(`"200000"`) // 400 KB a transition, with its history
		send := func(from, to int) {
			w.streams.change(func() { w.streams.held = true })
			for i := from; i < to; i++ {
				ev.ID, ev.AggregateID = fmt.Sprint("g", i), fmt.Sprint(i)
				w.streams.publish("A", ev)
			}
			w.streams.change(func() { w.streams.held = false })
			time.Sleep(time.Minute)
			if got := w.metric("edda_events_total"); got != float64(to) {
				t.Fatalf("%v events handled of %d", got, to)
			}
		}
		send(0, 60)
		if got := w.metric("edda_batch_events"); got != 1 {
			t.Fatalf("%v batches, want one", got)
		}
		send(60, 260) // 41 of them make 16 MiB
		if got := w.metric("edda_batch_events"); got != 6 {
			t.Errorf("%v batches, want the first of 60 and five of at most 41", got)
		}
	})
}

func TestFewLargeEventsAreInMemory(t *testing.T) {
	inWorld(t, func(w *world) {
		w.gate.set(true, nil) // no commit ends
		ev := event("", "add", "k")
		ev.Payload = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
		for i := range 200 {
			w.streams.publish("A", ev)
			if ev.ID = fmt.Sprint(i); i%4 == 3 {
				settle() // takes of four
			}
		}
		w.streams.mu.Lock()
		fetched := w.streams.fetched
		w.streams.mu.Unlock()
		if fetched > 110 {
			t.Errorf("%d events of 1 MiB were read while no commit succeeded", fetched)
		}
		w.gate.set(false, nil)
		time.Sleep(time.Minute)
		if got := w.metric("edda_events_total"); got != 200 {
			t.Errorf("%v events handled", got)
		}
	})
}
