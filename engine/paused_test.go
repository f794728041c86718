package engine

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	"edda/store"
)

// withShares runs the test with sagas that the test puts over their share.
func withShares(t *testing.T, sagas sagaList, test func(w *world, l *archive, room *fakeShares)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		l, room := w.archive(), &fakeShares{}
		w.sagas = sagas
		w.start(Options{CatchUp: l.catchUp(), room: room})
		test(w, l, room)
	})
}

// TestSagaOverItsShareFallsBehindAlone expects new events to wait for one saga and tenant only,
// and to be applied in order once it has room.
func TestSagaOverItsShareFallsBehindAlone(t *testing.T) {
	withShares(t, sagaList{"slow", "quick"}, func(w *world, l *archive, room *fakeShares) {
		of := func(tenant, id string) edda.Event {
			ev := event(id, "add", "K")
			ev.Tenant = tenant
			return ev
		}
		log := func(tenant, saga string) string {
			return joined(w.log(edda.Key{Tenant: tenant, Saga: saga, Correlation: "K"}))
		}
		w.streams.publish("A", of("acme", "e1"))
		waitTicks()
		room.set(SagaTenant{"acme", "slow"})
		waitTicks()
		for i := range 3 {
			w.streams.publish([]string{"A", "B"}[i%2], of("acme", fmt.Sprint("w", i)))
			w.streams.publish("A", of("other", fmt.Sprint("o", i)))
			time.Sleep(time.Millisecond)
		}
		w.streams.publish("B", edda.Event{ID: "told", Kind: edda.KindSignal, Type: "told", Key: edda.Key{Tenant: "acme", Saga: "slow", Correlation: "K"}, Tenant: "acme"})
		waitTicks()
		for what, want := range map[[2]string]string{{"acme", "slow"}: "e1 told", {"acme", "quick"}: "e1 w0 w1 w2", {"other", "slow"}: "o0 o1 o2", {"other", "quick"}: "o0 o1 o2"} {
			if got := log(what[0], what[1]); got != want {
				t.Errorf("%s of %s applied %q, want %q", what[1], what[0], got, want)
			}
		}
		if opened, _ := l.counts(); opened != 0 {
			t.Errorf("%d readers were opened for a paused saga", opened)
		}
		info := w.engine.Info().Behind
		if len(info) != 1 || info[0].Paused != "gateway" || info[0].Tenant != "acme" || info[0].Left == 0 || len(w.behind()) != 2 {
			t.Errorf("%+v, %d rows", info, len(w.behind()))
		}
		if w.metric("edda_intake_paused", "gateway") != 1 || w.metric("edda_sagas_behind", "paused") != 1 || w.metric("edda_intake_pauses_total", "gateway") != 1 {
			t.Error("the metrics show no pause")
		}
		w.stop() // the pause survives a restart
		w.rewind()
		w.start(Options{CatchUp: l.catchUp(), room: room})
		waitTicks()
		if got := log("acme", "slow"); got != "e1 told" {
			t.Errorf("applied %q without room", got)
		}
		room.set()
		waitTicks()
		w.waitCaughtUp()
		if got := log("acme", "slow"); got != "e1 told w0 w1 w2" {
			t.Errorf("applied %q", got)
		}
		if w.metric("edda_intake_paused", "gateway") != 0 || w.metric("edda_sagas_behind", "paused") != 0 {
			t.Error("the metrics still show a pause")
		}
	})
}

// TestPausedSagaWithoutWithheldEventsRejoinsAtOnce, without a reader.
func TestPausedSagaWithoutWithheldEventsRejoinsAtOnce(t *testing.T) {
	withShares(t, sagaList{"slow"}, func(w *world, l *archive, room *fakeShares) {
		w.arm("pay", "K", time.Minute)
		waitTicks()
		room.set(SagaTenant{"acme", "slow"})
		waitTicks()
		time.Sleep(time.Minute)
		if w.engine.Waits(store.Due{Time: time.Now(), Key: edda.Key{Tenant: "acme", Saga: "slow", Correlation: "K"}}) {
			t.Error("a timer waits although no event is withheld")
		}
		room.set()
		waitTicks()
		w.waitCaughtUp()
		if opened, _ := l.counts(); opened != 0 {
			t.Errorf("%d readers", opened)
		}
	})
}

func TestTimersOfAPausedSagaFireUpToTheFirstWithheldEvent(t *testing.T) {
	withShares(t, sagaList{"counter"}, func(w *world, l *archive, room *fakeShares) {
		w.arm("early", "K", 10*time.Second)
		w.arm("late", "K", 30*time.Second)
		settle()
		room.set(SagaTenant{"acme", "counter"})
		waitTicks()
		time.Sleep(20 * time.Second)
		w.streams.publish("A", event("waits", "add", "K"))
		settle()
		time.Sleep(40 * time.Second)
		w.wakeDue(key("K"))
		w.wantLog(key("K"), "early", "late", "timer-early")
		room.set()
		waitTicks()
		w.waitCaughtUp()
		w.wakeDue(key("K"))
		w.wantLog(key("K"), "early", "late", "timer-early", "waits", "timer-late")
	})
}

func TestNoPauseAndNoCatchUpBeforeARestoredStoreIsLive(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		l, room, over := w.archive(), &fakeShares{}, make(chan struct{})
		catchUp := l.catchUp()
		catchUp.After = over
		w.sagas = sagaList{"old"}
		w.start(Options{CatchUp: catchUp, room: room})
		room.set(SagaTenant{"acme", "old"})
		w.streams.publish("A", event("e", "add", "K"))
		waitTicks()
		w.addBehind(sagaList{"old", "late"}, "late")
		waitTicks()
		if got, late := w.logOf("old", "K"), w.logOf("late", "K"); len(got) != 1 || len(late) != 0 {
			t.Errorf("applied %v, and %v in a catch-up", got, late)
		}
		close(over)
		w.streams.publish("A", event("f", "add", "K"))
		waitTicks()
		room.set()
		waitTicks()
		w.waitCaughtUp()
		if got := w.logOf("late", "K"); len(got) != 2 {
			t.Errorf("applied %v", got)
		}
	})
}

func TestLaggardsAreBounded(t *testing.T) {
	withShares(t, sagaList{"old"}, func(w *world, l *archive, room *fakeShares) {
		var all []SagaTenant
		for i := range maxLaggards + 50 {
			all = append(all, SagaTenant{fmt.Sprint("t", i), "old"})
		}
		room.set(all...)
		waitTicks()
		if n := len(w.engine.Info().Behind); n != maxLaggards {
			t.Errorf("%d sagas behind", n)
		}
		room.set()
		waitTicks()
		w.waitCaughtUp()
	})
}

// fakeShares reports the sagas that a test puts over their share.
type fakeShares struct {
	mu    sync.Mutex // guards pairs
	pairs map[SagaTenant]string
}

func (r *fakeShares) set(pairs ...SagaTenant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pairs = map[SagaTenant]string{}
	for _, p := range pairs {
		r.pairs[p] = "gateway"
	}
}

func (r *fakeShares) full() []string { return nil }

func (r *fakeShares) overShare() map[SagaTenant]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.pairs)
}

// TestReadersAreReassignedToWaitingLaggards: laggards that have read everything, and wait for the
// laggard of all tenants, leave it their readers.
func TestReadersAreReassignedToWaitingLaggards(t *testing.T) {
	withShares(t, sagaList{"old"}, func(w *world, l *archive, room *fakeShares) {
		for i := range 300 {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", "K"))
		}
		settle()
		l.refuse(errors.New("not now"))
		w.addBehind(sagaList{"old", "late"}, "late")
		room.set(SagaTenant{"acme", "late"}, SagaTenant{"other", "late"}, SagaTenant{"third", "late"})
		waitTicks()
		room.set()
		l.refuse(nil)
		began := time.Now()
		w.waitCaughtUp()
		if got := w.logOf("late", "K"); len(got) != 300 {
			t.Errorf("applied %d events", len(got))
		}
		if took := time.Since(began); took > readerSlice {
			t.Errorf("it took %v", took)
		}
	})
}

// TestPausedTenantResumesAtThePositionOfAllTenants, also when the commit of its own position is
// lost.
func TestPausedTenantResumesAtThePositionOfAllTenants(t *testing.T) {
	withShares(t, sagaList{"old"}, func(w *world, l *archive, room *fakeShares) {
		for i := range 300 {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", "K"))
		}
		settle()
		l.refuse(errors.New("not now"))
		w.addBehind(sagaList{"old", "late"}, "late")
		w.gate.failNext(errDiskFull)
		room.set(SagaTenant{"acme", "late"})
		waitTicks()
		time.Sleep(time.Minute) // the commit is retried
		room.set()
		l.refuse(nil)
		waitTicks()
		w.waitCaughtUp()
		if got := w.logOf("late", "K"); len(got) != 300 {
			t.Errorf("applied %d events", len(got))
		}
	})
}

func TestRejoiningLaggardIsPausedAfterItsCommit(t *testing.T) {
	withShares(t, sagaList{"old"}, func(w *world, l *archive, room *fakeShares) {
		w.streams.publish("A", event("e", "add", "K"))
		waitTicks()
		room.set(SagaTenant{"acme", "old"})
		waitTicks()
		w.gate.set(true, nil)
		room.set()
		waitTicks() // it rejoins in an in-flight set
		room.set(SagaTenant{"acme", "old"})
		waitTicks()
		w.gate.set(false, nil)
		waitTicks()
		w.streams.publish("A", event("f", "add", "K"))
		waitTicks()
		if got := w.logOf("old", "K"); len(got) != 1 || len(w.engine.Info().Behind) != 1 {
			t.Errorf("applied %v; %+v", got, w.engine.Info().Behind)
		}
		room.set()
		waitTicks()
		w.waitCaughtUp()
		if got := w.logOf("old", "K"); len(got) != 2 {
			t.Errorf("applied %v", got)
		}
	})
}

// TestALaggardReadsWhatWasLostWhenItFellBehind: the store failed before it had the laggard's first position, and
// an event that the main line had applied for it.
func TestALaggardReadsWhatWasLostWhenItFellBehind(t *testing.T) {
	withShares(t, sagaList{"slow", "quick"}, func(w *world, l *archive, room *fakeShares) {
		publish := func(from, to int) {
			for i := range many(to, numbered("e")) {
				if i >= from {
					w.streams.publish("A", event(fmt.Sprint("e", i), "add", "K"))
				}
			}
		}
		publish(0, 1)
		waitTicks()
		w.gate.set(true, nil)
		publish(1, 2)
		settle()
		room.set(SagaTenant{"acme", "slow"})
		waitTicks()
		publish(2, 4*maxCaught) // the reader waits before it has read all of them
		waitTicks()
		room.set()
		waitTicks()
		if opened, _ := l.counts(); opened != 1 {
			t.Fatalf("%d readers", opened)
		}
		w.gate.failNext(errDiskFull)
		for range 1000 {
			settle()
		}
		w.waitCaughtUp()
		for _, saga := range []string{"slow", "quick"} {
			if got, want := joined(w.logOf(saga, "K")), joined(many(4*maxCaught, numbered("e"))); got != want {
				t.Errorf("%s applied %s", saga, got)
			}
		}
	})
}
