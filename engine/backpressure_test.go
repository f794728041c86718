package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	"edda/store"
)

// fakeRoom reports the destinations that a test sets as full.
type fakeRoom struct {
	mu    sync.Mutex // guards names
	names []string
}

func (c *fakeRoom) set(full ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = full
}

func (c *fakeRoom) full() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names
}

func (c *fakeRoom) overShare() map[SagaTenant]string { return nil }

// withFakeRoom runs the test with an engine whose room the test sets.
func withFakeRoom(t *testing.T, test func(w *world, c *fakeRoom)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorld(t, dir), &fakeRoom{}
		defer w.stop()
		w.start(Options{room: c})
		test(w, c)
	})
}

// waitTicks waits until the loop has looked for room again.
func waitTicks() {
	time.Sleep(2 * tickEvery)
	synctest.Wait()
}

func TestFullDestinationHoldsNewEventsButNotResultsAndTimers(t *testing.T) {
	withFakeRoom(t, func(w *world, c *fakeRoom) {
		w.streams.publish("A", event("first", "add", "k"))
		w.arm("pay", "other", time.Minute)
		settle()
		c.set("gateway")
		waitTicks()
		if got := w.metric("edda_intake_paused", "gateway"); got != 1 {
			t.Errorf("paused: %v", got)
		}
		time.Sleep(time.Minute)
		w.wake(w.due(time.Now())) // no unread event was stored before it
		w.wantLog(key("other"), "pay", "timer-pay")
		for i := range 20 {
			w.streams.publish("A", event(fmt.Sprintf("e%d", i), "add", "k"))
		}
		w.streams.publish("B", event("result", "add", "k"))
		waitTicks()
		w.wantLog(key("k"), "first", "result")
		time.Sleep(2 * pollEvery)
		if got := w.metric("edda_stream_lag_messages", "A"); got != 20 {
			t.Errorf("lag of A: %v", got)
		}
		c.set()
		waitTicks()
		w.wantLog(key("k"), append([]string{"first", "result"}, many(20, numbered("e"))...)...)
		if got := w.metric("edda_intake_paused", "gateway"); got != 0 {
			t.Errorf("paused: %v", got)
		}
	})
}

func TestTimerWaitsForHeldEventsStoredBeforeIt(t *testing.T) {
	withFakeRoom(t, func(w *world, c *fakeRoom) {
		w.arm("pay", "k", 30*time.Minute)
		settle()
		c.set("gateway")
		waitTicks()
		w.streams.publish("A", event("payment", "add", "k"))
		time.Sleep(30 * time.Minute)
		woken := make(chan error, 1)
		rows := w.due(time.Now())
		go func() { woken <- w.engine.Wake(context.Background(), rows) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(woken) != 0 {
			t.Fatal("the timer fired before the event that was stored earlier")
		}
		c.set()
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		w.wantLog(key("k"), "pay", "payment", "timer-pay")
	})
}

func TestPauseIsLoggedOnceAtItsStartAndEnd(t *testing.T) {
	withFakeRoom(t, func(w *world, c *fakeRoom) {
		said := func() string {
			var out []string
			for _, e := range w.logs.TakeAll() {
				out = append(out, strings.TrimSpace(fmt.Sprint(e.Message, " ", e.ContextMap()["reason"])))
			}
			return strings.Join(out, "; ")
		}
		const full, room, again = "new events stay in their streams: there is no room for more work ",
			"there is room for more work again ", "new events are taken in again <nil>"
		for _, step := range []struct {
			full []string
			want string
		}{
			{[]string{"gateway"}, full + "gateway"},
			{[]string{"gateway"}, ""},
			{[]string{"gateway", "jetstream"}, full + "jetstream"},
			{[]string{"jetstream"}, room + "gateway"},
			{nil, room + "jetstream; " + again},
			{nil, ""},
		} {
			c.set(step.full...)
			waitTicks()
			if got := said(); got != step.want {
				t.Errorf("full %v: got %s\nwant %s", step.full, got, step.want)
			}
		}
		if got := w.metric("edda_intake_pauses_total", "gateway"); got != 1 {
			t.Errorf("pauses: %v", got)
		}
	})
}

func TestDrainEndsWhileEventsAreHeld(t *testing.T) {
	withFakeRoom(t, func(w *world, c *fakeRoom) {
		c.set("gateway")
		waitTicks()
		w.streams.publish("A", event("later", "add", "k"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := w.engine.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		w.wantLog(key("k"))
	})
}

func TestStoreFailureShowsAsAPause(t *testing.T) {
	withFakeRoom(t, func(w *world, _ *fakeRoom) {
		w.gate.set(false, errDiskFull)
		w.streams.publish("A", event("a", "add", "k"))
		settle()
		if got := w.metric("edda_intake_paused", PausedStore); got != 1 {
			t.Errorf("paused: %v", got)
		}
		w.gate.set(false, nil)
		time.Sleep(time.Minute)
		w.wantLog(key("k"), "a")
		if got := w.metric("edda_intake_paused", PausedStore); got != 0 {
			t.Errorf("paused: %v", got)
		}
	})
}

// park commits parked events of a tenant without the engine.
func (w *world) park(tenant string, n int) {
	w.t.Helper()
	for i := range n {
		k := edda.Key{Tenant: tenant, Saga: "counter", Correlation: fmt.Sprint("early-", i)}
		ev := edda.Event{Kind: edda.KindEvent, ID: fmt.Sprint("p", i), Tenant: tenant, Time: time.Now().UTC()}
		w.commit(edda.Transition{Key: k, Event: ev, Fate: edda.FateParked, Park: &edda.Entry{N: 1, Event: ev}})
	}
}

func (w *world) unpark(tenant string, i int) {
	w.t.Helper()
	k := edda.Key{Tenant: tenant, Saga: "counter", Correlation: fmt.Sprint("early-", i)}
	ev := edda.Event{Kind: edda.KindEvent, ID: fmt.Sprint("u", i), Tenant: tenant, Time: time.Now().UTC()}
	w.commit(edda.Transition{Key: k, Event: ev, Fate: edda.FateDead, Unpark: []uint64{1}})
}

func (w *world) commit(tr edda.Transition) {
	w.t.Helper()
	if err := w.db.Commit(context.Background(), store.Change{Transitions: []edda.Transition{tr}}); err != nil {
		w.t.Fatal(err)
	}
}

func TestOnlyATenantAtItsParkingBoundIsCrowded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		w.start(Options{MaxParked: 20})
		of := func(tenant, id string) edda.Event {
			ev := event(id, "crowded", id)
			ev.Tenant = tenant
			return ev
		}
		tell := func(want string, evs ...edda.Event) {
			t.Helper()
			for _, ev := range evs {
				w.streams.publish("A", ev)
			}
			settle()
			var got []string
			for _, ev := range evs {
				k := edda.Key{Tenant: ev.Tenant, Saga: "counter", Correlation: ev.AggregateID}
				got = append(got, w.cell(k).Instance.Reason)
			}
			if s := strings.Join(got, " "); s != want {
				t.Errorf("got %s, want %s", s, want)
			}
		}
		w.park("noisy", 20)
		w.park("quiet", 19)
		tell("crowded room", of("noisy", "a"), of("quiet", "a"))
		if got := w.metric("edda_parked_full_tenants"); got != 1 {
			t.Errorf("full tenants: %v", got)
		}
		w.unpark("noisy", 0)
		tell("room", of("noisy", "b")) // it has room, but the log waits for a tenth
		if got := w.logs.FilterMessageSnippet("may park events again").Len(); got != 0 {
			t.Errorf("%d log lines say that it has room", got)
		}
		w.unpark("noisy", 1)
		w.unpark("noisy", 2)
		tell("room", of("quiet", "b"))
		if got := w.metric("edda_parked_full_tenants"); got != 0 {
			t.Errorf("full tenants: %v", got)
		}
		if full, again := w.logs.FilterMessageSnippet("may park no more").Len(), w.logs.FilterMessageSnippet("may park events again").Len(); full != 1 || again != 1 {
			t.Errorf("%d log lines say that it is full, and %d that it has room; want one of each", full, again)
		}
	})
}
