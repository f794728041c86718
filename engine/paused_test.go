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

// inRooms runs the test with an engine of some sagas, which pause where the rooms say so.
func inRooms(t *testing.T, sagas chorus, test func(w *world, l *library, room *rooms)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		l, room := w.library(), &rooms{}
		w.sagas = sagas
		w.start(Options{CatchUp: l.catchUp(), room: room})
		test(w, l, room)
	})
}

// TestASagaWithoutRoomFallsBehindAlone: of one saga and tenant new events wait, all others
// go on, and it takes in what waits, in its order, once there is room.
func TestASagaWithoutRoomFallsBehindAlone(t *testing.T) {
	inRooms(t, chorus{"slow", "quick"}, func(w *world, l *library, room *rooms) {
		of := func(tenant, id string) edda.Event {
			ev := event(id, "add", "K")
			ev.Tenant = tenant
			return ev
		}
		log := func(tenant, saga string) string {
			return joined(w.log(edda.Key{Tenant: tenant, Saga: saga, Correlation: "K"}))
		}
		w.streams.publish("A", of("acme", "e1"))
		look()
		room.set(SagaTenant{"acme", "slow"})
		look()
		for i := range 3 {
			w.streams.publish([]string{"A", "B"}[i%2], of("acme", fmt.Sprint("w", i)))
			w.streams.publish("A", of("other", fmt.Sprint("o", i)))
			time.Sleep(time.Millisecond)
		}
		w.streams.publish("B", edda.Event{ID: "told", Kind: edda.KindSignal, Type: "told", Key: edda.Key{Tenant: "acme", Saga: "slow", Correlation: "K"}, Tenant: "acme"})
		look()
		for what, want := range map[[2]string]string{{"acme", "slow"}: "e1 told", {"acme", "quick"}: "e1 w0 w1 w2", {"other", "slow"}: "o0 o1 o2", {"other", "quick"}: "o0 o1 o2"} {
			if got := log(what[0], what[1]); got != want {
				t.Errorf("%s of %s took in %q, want %q", what[1], what[0], got, want)
			}
		}
		if opened, _ := l.counts(); opened != 0 {
			t.Errorf("%d readers for a saga that is paused", opened)
		}
		info := w.engine.Info().Behind
		if len(info) != 1 || info[0].Paused != "gateway" || info[0].Tenant != "acme" || info[0].Left == 0 || len(w.behind()) != 2 {
			t.Errorf("%+v, %d rows", info, len(w.behind()))
		}
		if w.metric("edda_intake_paused", "gateway") != 1 || w.metric("edda_sagas_behind", "paused") != 1 || w.metric("edda_intake_pauses_total", "gateway") != 1 {
			t.Error("the metrics do not say so")
		}
		w.stop() // it is paused over a restart
		w.rewind()
		w.start(Options{CatchUp: l.catchUp(), room: room})
		look()
		if got := log("acme", "slow"); got != "e1 told" {
			t.Errorf("took in %q though it has no room", got)
		}
		room.set()
		look()
		w.liveAgain()
		if got := log("acme", "slow"); got != "e1 told w0 w1 w2" {
			t.Errorf("took in %q", got)
		}
		if w.metric("edda_intake_paused", "gateway") != 0 || w.metric("edda_sagas_behind", "paused") != 0 {
			t.Error("the metrics say that it is paused")
		}
	})
}

// TestASagaThatHasRoomAgainBeforeAnythingCameIsLiveAtOnce, without reading anything.
func TestASagaThatHasRoomAgainBeforeAnythingCameIsLiveAtOnce(t *testing.T) {
	inRooms(t, chorus{"slow"}, func(w *world, l *library, room *rooms) {
		w.arm("pay", "K", time.Minute)
		look()
		room.set(SagaTenant{"acme", "slow"})
		look()
		time.Sleep(time.Minute)
		if w.engine.Waits(store.Due{Time: time.Now(), Key: edda.Key{Tenant: "acme", Saga: "slow", Correlation: "K"}}) {
			t.Error("a timer waits for events that did not come")
		}
		room.set()
		look()
		w.liveAgain()
		if opened, _ := l.counts(); opened != 0 {
			t.Errorf("%d readers", opened)
		}
	})
}

// TestWhatIsDueInAPausedSagaFiresUpToTheFirstEventThatWaits.
func TestWhatIsDueInAPausedSagaFiresUpToTheFirstEventThatWaits(t *testing.T) {
	inRooms(t, chorus{"counter"}, func(w *world, l *library, room *rooms) {
		w.arm("early", "K", 10*time.Second)
		w.arm("late", "K", 30*time.Second)
		settle()
		room.set(SagaTenant{"acme", "counter"})
		look()
		time.Sleep(20 * time.Second)
		w.streams.publish("A", event("waits", "add", "K"))
		settle()
		time.Sleep(40 * time.Second)
		w.wakes(key("K"))
		w.wantLog(key("K"), "early", "late", "timer-early")
		room.set()
		look()
		w.liveAgain()
		w.wakes(key("K"))
		w.wantLog(key("K"), "early", "late", "timer-early", "waits", "timer-late")
	})
}

// TestNothingIsPausedBeforeARestoredStoreHasTakenInItsPast, and nothing is caught up.
func TestNothingIsPausedBeforeARestoredStoreHasTakenInItsPast(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		l, room, over := w.library(), &rooms{}, make(chan struct{})
		catchUp := l.catchUp()
		catchUp.After = over
		w.sagas = chorus{"old"}
		w.start(Options{CatchUp: catchUp, room: room})
		room.set(SagaTenant{"acme", "old"})
		w.streams.publish("A", event("e", "add", "K"))
		look()
		w.begins(chorus{"old", "late"}, "late")
		look()
		if got, late := w.logOf("old", "K"), w.logOf("late", "K"); len(got) != 1 || len(late) != 0 {
			t.Errorf("took in %v, and %v is caught up", got, late)
		}
		close(over)
		w.streams.publish("A", event("f", "add", "K"))
		look()
		room.set()
		look()
		w.liveAgain()
		if got := w.logOf("late", "K"); len(got) != 2 {
			t.Errorf("took in %v", got)
		}
	})
}

// TestNoMoreSagasFallBehindThanMayBe.
func TestNoMoreSagasFallBehindThanMayBe(t *testing.T) {
	inRooms(t, chorus{"old"}, func(w *world, l *library, room *rooms) {
		var all []SagaTenant
		for i := range maxLaggards + 50 {
			all = append(all, SagaTenant{fmt.Sprint("t", i), "old"})
		}
		room.set(all...)
		look()
		if n := len(w.engine.Info().Behind); n != maxLaggards {
			t.Errorf("%d are behind", n)
		}
		room.set()
		look()
		w.liveAgain()
	})
}

// rooms says who has none.
type rooms struct {
	mu    sync.Mutex // guards pairs
	pairs map[SagaTenant]string
}

func (r *rooms) set(pairs ...SagaTenant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pairs = map[SagaTenant]string{}
	for _, p := range pairs {
		r.pairs[p] = "gateway"
	}
}

func (r *rooms) full() []string { return nil }

func (r *rooms) overShare() map[SagaTenant]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.pairs)
}

// TestReadersGoOnToThoseWhoWait: pairs that have all there is, and cannot rejoin before that
// of all tenants, leave their readers to it.
func TestReadersGoOnToThoseWhoWait(t *testing.T) {
	inRooms(t, chorus{"old"}, func(w *world, l *library, room *rooms) {
		for i := range 300 {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", "K"))
		}
		settle()
		l.refuse(errors.New("not now"))
		w.begins(chorus{"old", "late"}, "late")
		room.set(SagaTenant{"acme", "late"}, SagaTenant{"other", "late"}, SagaTenant{"third", "late"})
		look()
		room.set()
		l.refuse(nil)
		began := time.Now()
		w.liveAgain()
		if got := w.logOf("late", "K"); len(got) != 300 {
			t.Errorf("took in %d events", len(got))
		}
		if took := time.Since(began); took > readerSlice {
			t.Errorf("it took %v", took)
		}
	})
}

// TestAPairThatIsPausedWhileItIsCaughtUpWithAllOthersGoesOnWhereTheyWere, also where the
// commit that says so is lost.
func TestAPairThatIsPausedWhileItIsCaughtUpWithAllOthersGoesOnWhereTheyWere(t *testing.T) {
	inRooms(t, chorus{"old"}, func(w *world, l *library, room *rooms) {
		for i := range 300 {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", "K"))
		}
		settle()
		l.refuse(errors.New("not now"))
		w.begins(chorus{"old", "late"}, "late")
		w.gate.failNext(errDiskFull)
		room.set(SagaTenant{"acme", "late"})
		look()
		time.Sleep(time.Minute) // the store is tried again
		room.set()
		l.refuse(nil)
		look()
		w.liveAgain()
		if got := w.logOf("late", "K"); len(got) != 300 {
			t.Errorf("took in %d events", len(got))
		}
	})
}

// TestAPairThatHasNoRoomWhileItRejoinsIsPausedOnceItHas.
func TestAPairThatHasNoRoomWhileItRejoinsIsPausedOnceItHas(t *testing.T) {
	inRooms(t, chorus{"old"}, func(w *world, l *library, room *rooms) {
		w.streams.publish("A", event("e", "add", "K"))
		look()
		room.set(SagaTenant{"acme", "old"})
		look()
		w.gate.set(true, nil)
		room.set()
		look() // it rejoins, and that is not durable
		room.set(SagaTenant{"acme", "old"})
		look()
		w.gate.set(false, nil)
		look()
		w.streams.publish("A", event("f", "add", "K"))
		look()
		if got := w.logOf("old", "K"); len(got) != 1 || len(w.engine.Info().Behind) != 1 {
			t.Errorf("took in %v; %+v", got, w.engine.Info().Behind)
		}
		room.set()
		look()
		w.liveAgain()
		if got := w.logOf("old", "K"); len(got) != 2 {
			t.Errorf("took in %v", got)
		}
	})
}
