package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	"edda/internal/backoff"
	"edda/saga"
	"edda/store"
)

// sagaList is several sagas. Each applies every event of an aggregate, as counter does.
type sagaList []string

func (c sagaList) Route(ev edda.Event) (all []saga.Target) {
	if ev.Kind != edda.KindEvent {
		return counter{}.Route(ev)
	}
	for _, name := range c {
		all = append(all, counter{name}.Route(ev)...)
	}
	return all
}

func (c sagaList) Unheard(ev edda.Event) (near string, suspicious bool) { return counter{}.Unheard(ev) }

func (c sagaList) Apply(cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	return counter{}.Apply(cell, t, ev)
}

func (c sagaList) Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition) {
	return counter{}.Wake(cell, row, horizon)
}

// archive gives catch-up readers what the streams of a world have stored.
type archive struct {
	*streams
	mu      sync.Mutex // guards all below
	opened  []SagaTenant
	closed  int
	lost    map[string]uint64 // messages up to here have expired
	refuses error
}

func (w *world) archive() *archive { return &archive{streams: w.streams, lost: map[string]uint64{}} }

func (l *archive) catchUp() CatchUpOptions {
	return CatchUpOptions{Streams: []string{"A", "B"}, Open: l.open}
}

func (l *archive) open(_ context.Context, p SagaTenant, from []edda.Checkpoint) (Past, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses != nil {
		return nil, l.refuses
	}
	l.opened = append(l.opened, p)
	s := &archiveReader{archive: l, next: map[string]uint64{}, upto: map[string]uint64{}}
	l.streams.mu.Lock()
	defer l.streams.mu.Unlock()
	for _, at := range from {
		if lost := l.lost[at.Stream]; at.Seq < lost {
			s.losses = append(s.losses, fmt.Sprintf("stream %s begins at %d", at.Stream, lost+1))
			at.Seq = lost
		}
		s.start = append(s.start, at)
		s.next[at.Stream] = at.Seq + 1
		s.upto[at.Stream] = l.last[at.Stream].Seq
	}
	return s, nil
}

func (l *archive) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuses = err
}

func (l *archive) counts() (opened, closed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.opened), l.closed
}

// archiveReader is one reader of the archive.
type archiveReader struct {
	*archive
	start  []edda.Checkpoint
	losses []string
	next   map[string]uint64
	upto   map[string]uint64 // backlog when it was opened
	at     int               // of stored
}

func (s *archiveReader) Start() []edda.Checkpoint { return s.start }
func (s *archiveReader) Losses() []string         { return s.losses }

func (s *archiveReader) Close() {
	s.archive.mu.Lock()
	defer s.archive.mu.Unlock()
	s.closed++
}

func (s *archiveReader) Fetch(ctx context.Context, most int, wait time.Duration) (Fetched, error) {
	got := s.read(most)
	if len(got.Events) == 0 {
		_ = backoff.Wait(ctx, min(wait, 10*time.Millisecond))
	}
	return got, ctx.Err()
}

func (s *archiveReader) read(most int) (got Fetched) {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	if s.sip > 0 {
		most = min(most, s.sip)
	}
	for ; s.at < len(s.stored); s.at++ {
		ev := s.stored[s.at]
		if next, opened := s.next[ev.Stream]; !opened || ev.Seq < next || ev.Kind != edda.KindEvent {
			continue
		}
		past := ev.Seq <= s.upto[ev.Stream]
		if len(got.Events) == most || len(got.Events) > 0 && past != got.Past {
			break
		}
		got.Events, got.Past = append(got.Events, ev), past
	}
	return got
}

// Ends needs aggregate events only.
func (s *archiveReader) Ends(context.Context) (ends []End, _ error) {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	for name, last := range s.last {
		end := End{Stream: name, Last: last}
		for _, ev := range s.stored {
			if ev.Stream == name && ev.Kind == edda.KindEvent {
				end.Need = ev.Seq
			}
		}
		ends = append(ends, end)
	}
	return ends, nil
}

// addBehind swaps in sagas. Those named begin before the first stored message.
func (w *world) addBehind(sagas sagaList, names ...string) {
	w.t.Helper()
	var rows []store.SagaPosition
	for _, name := range names {
		for _, stream := range []string{"A", "B"} {
			rows = append(rows, store.SagaPosition{Tenant: AllTenants, Saga: name, Checkpoint: edda.Checkpoint{Stream: stream, Created: w.streams.created}})
		}
	}
	if err := w.db.Commit(context.Background(), store.Change{Positions: rows}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.engine.Swap(context.Background(), sagas, rows...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) logOf(saga, correlation string) []string {
	w.t.Helper()
	return w.log(edda.Key{Tenant: "acme", Saga: saga, Correlation: correlation})
}

func (w *world) behind() []store.SagaPosition {
	w.t.Helper()
	rows, err := w.db.Positions()
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// waitCaughtUp waits until no saga is behind, in memory and in the store.
func (w *world) waitCaughtUp() {
	w.t.Helper()
	for range 10_000 {
		settle()
		if len(w.engine.Info().Behind) == 0 && len(w.behind()) == 0 {
			return
		}
	}
	w.t.Fatalf("sagas stay behind: %+v; %+v", w.engine.Info().Behind, w.behind())
}

// withLateSaga runs the test with the saga "old". The test adds "late" with addBehind.
func withLateSaga(t *testing.T, test func(w *world, l *archive)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		l := w.archive()
		w.sagas = sagaList{"old"}
		w.start(Options{CatchUp: l.catchUp()})
		test(w, l)
	})
}

// TestAddedSagaCatchesUpWithStoredEvents adds a saga beside an older one, and expects both to
// apply every event once.
func TestAddedSagaCatchesUpWithStoredEvents(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		var ids []string
		for i := range 500 {
			ids = append(ids, fmt.Sprint("e", i))
			w.streams.publish([]string{"A", "B"}[i%2], event(ids[i], "add", "K"))
			time.Sleep(time.Millisecond)
		}
		settle()
		w.addBehind(sagaList{"old", "late"}, "late")
		for i := 500; i < 600; i++ {
			ids = append(ids, fmt.Sprint("e", i))
			w.streams.publish("A", event(ids[i], "add", "K"))
			time.Sleep(time.Millisecond)
		}
		w.waitCaughtUp()
		w.streams.publish("B", event("last", "add", "K"))
		settle()
		ids = append(ids, "last")
		for _, name := range []string{"old", "late"} {
			if got := w.logOf(name, "K"); !slices.Equal(got, ids) {
				t.Errorf("%s applied %d events: %s\nwant %d", name, len(got), joined(got), len(ids))
			}
		}
		if opened, closed := l.counts(); opened == 0 || opened != closed {
			t.Errorf("%d readers were opened and %d closed", opened, closed)
		}
		if n := w.metric("edda_catch_up_events_total"); n < 500 {
			t.Errorf("%v catch-up events, want at least 500", n)
		}
	})
}

// TestCatchUpDoesNotDelayLiveEvents expects a live event to be applied within milliseconds
// while thousands of old ones are read.
func TestCatchUpDoesNotDelayLiveEvents(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		const many = 8000
		w.gate.slow(2 * time.Millisecond) // like a disk
		for i := range many {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", fmt.Sprint("K", i%1000)))
		}
		for w.position("A").Seq < many {
			settle()
		}
		w.addBehind(sagaList{"old", "late"}, "late")
		slowest, n := time.Duration(0), 0
		for ; len(w.behind()) > 0; n++ {
			id := fmt.Sprint("live", n)
			w.streams.publish("B", event(id, "add", "L"+id))
			began := time.Now()
			for len(w.logOf("old", "L"+id)) == 0 {
				time.Sleep(time.Millisecond)
			}
			slowest = max(slowest, time.Since(began))
		}
		if n < 10 {
			t.Errorf("only %d live events were applied during a catch-up of %d", n, many)
		}
		if slowest > 30*time.Millisecond {
			t.Errorf("a live event took %v", slowest)
		}
		for i := range 1000 {
			if got := len(w.logOf("late", fmt.Sprint("K", i))); got != many/1000 {
				t.Fatalf("K%d has %d events", i, got)
			}
		}
	})
}

// TestTimerDoesNotOvertakeEventsOfALaggard expects a timer that was due between two old events
// to fire between them, and one due after the last to fire after it.
func TestTimerDoesNotOvertakeEventsOfALaggard(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		arm := func(id string, after time.Duration) {
			ev := event(id, "arm", "K")
			ev.Payload, _ = json.Marshal(after.String())
			w.streams.publish("A", ev)
		}
		arm("first", 10*time.Second)
		time.Sleep(5 * time.Second)
		w.streams.publish("B", event("before", "add", "K"))
		time.Sleep(10 * time.Second)
		w.streams.publish("B", event("after", "add", "K"))
		arm("second", time.Second)
		time.Sleep(10 * time.Second)
		settle()
		l.refuse(errors.New("not now"))
		w.addBehind(sagaList{"old", "late"}, "late")
		time.Sleep(5 * time.Second) // no timer of it fires meanwhile
		if got := w.logOf("late", "K"); got != nil {
			t.Fatalf("applied %v", got)
		}
		l.refuse(nil)
		w.waitCaughtUp()
		w.wakeDue(edda.Key{Tenant: "acme", Saga: "late", Correlation: "K"})
		want := []string{"first", "before", "timer-first", "after", "second", "timer-second"}
		if got := w.logOf("late", "K"); !slices.Equal(got, want) {
			t.Errorf("applied %v, want %v", got, want)
		}
	})
}

// wakeDue fires the due rows of a key that need not wait, as the scheduler does.
func (w *world) wakeDue(only edda.Key) {
	w.t.Helper()
	rows, _, _, err := w.db.DueBut(time.Now(), MaxRows, w.engine.Waits)
	if err != nil {
		w.t.Fatal(err)
	}
	rows = slices.DeleteFunc(rows, func(d store.Due) bool { return d.Key != only })
	if err := w.engine.Wake(context.Background(), rows); err != nil {
		w.t.Fatal(err)
	}
}

// TestDueRowOfALaggardBlocksNoOtherTimer expects the row to stay in the due index, and other
// timers to fire.
func TestDueRowOfALaggardBlocksNoOtherTimer(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		w.streams.publish("A", event("e", "add", "K"))
		settle()
		l.refuse(errors.New("not now"))
		w.addBehind(sagaList{"old", "late"}, "late")
		behind, other := edda.Key{Tenant: "acme", Saga: "late", Correlation: "K"}, edda.Key{Tenant: "acme", Saga: "old", Correlation: "K"}
		due := []store.Due{{Time: time.Now(), Key: behind}, {Time: time.Now(), Key: other}}
		if err := w.db.Commit(context.Background(), store.Change{Arm: due}); err != nil {
			t.Fatal(err)
		}
		if !w.engine.Waits(due[0]) || w.engine.Waits(due[1]) {
			t.Error("Waits is wrong: only the row of the laggard must wait")
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.engine.Wake(ctx, due); err != nil {
			t.Errorf("wake: %v", err)
		}
		if rows, _, passed, _ := w.db.DueBut(time.Now(), MaxRows, w.engine.Waits); passed != 1 || len(rows) > 1 {
			t.Errorf("%d rows, %d passed over", len(rows), passed)
		}
		l.refuse(nil)
		w.waitCaughtUp()
		if w.engine.Waits(due[0]) {
			t.Error("a row waits although its saga has caught up")
		}
	})
}

// TestCatchUpResumesAfterARestart restarts in the middle. Each commit has the positions.
func TestCatchUpResumesAfterARestart(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		const many, keys = 3000, 100
		for i := range many {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", fmt.Sprint("K", i%keys)))
		}
		taken := func() (n int) {
			for i := range keys {
				n += len(w.logOf("late", fmt.Sprint("K", i)))
			}
			return n
		}
		for w.position("A").Seq < many {
			settle()
		}
		w.gate.slow(5 * time.Millisecond)
		w.addBehind(sagaList{"old", "late"}, "late")
		for len(w.logOf("late", "K0")) < many/keys/3 {
			time.Sleep(5 * time.Millisecond)
		}
		w.stop()
		done := taken()
		if rows := w.behind(); len(rows) != 2 || int(rows[0].Seq) != done || done == many {
			t.Fatalf("applied %d, and its positions are %+v", done, rows)
		}
		w.sagas = sagaList{"old", "late"}
		w.start(Options{CatchUp: l.catchUp()})
		w.waitCaughtUp()
		for i := range keys {
			k := fmt.Sprint("K", i)
			if got, want := w.logOf("late", k), w.logOf("old", k); len(want) != many/keys || !slices.Equal(got, want) {
				t.Errorf("%s has %v, want %v", k, got, want)
			}
		}
	})
}

// A stream that is not read any more kept a saga behind for ever, and its timers waited.
func TestASagaBehindAwaitsNothingOfAStreamThatIsNotReadAnyMore(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		w.streams.publish("A", event("a", "add", "K"))
		w.streams.publish("B", event("b", "add", "K"))
		settle()
		l.refuse(errors.New("nothing is read before the restart"))
		w.addBehind(sagaList{"old", "late"}, "late")
		settle()
		w.stop()
		l.refuse(nil)
		w.sagas = sagaList{"old", "late"}
		onlyA := l.catchUp()
		onlyA.Streams = []string{"A"}
		onlyA.Open = func(ctx context.Context, p SagaTenant, from []edda.Checkpoint) (Past, error) {
			return l.open(ctx, p, slices.DeleteFunc(slices.Clone(from), func(at edda.Checkpoint) bool { return at.Stream == "B" }))
		}
		w.start(Options{CatchUp: onlyA})
		for range 100 {
			settle()
		}
		rows := w.behind()
		if behind := w.engine.Info().Behind; len(behind) != 0 || len(rows) != 1 || rows[0].Stream != "B" || rows[0].Seq != 0 {
			t.Fatalf("behind are %+v, and the positions are %+v", behind, rows)
		}
		w.stop()
		w.start(Options{CatchUp: l.catchUp()}) // it goes on where it was
		w.waitCaughtUp()
		if got := w.logOf("late", "K"); !slices.Contains(got, "b") {
			t.Errorf("after B is read again, late has %v", got)
		}
	})
}

// A saga that was behind got the whole past of a stream that all others read from its end on.
func TestASagaBehindBeginsInANewStreamWithTheOthers(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		w.streams.publish("B", event("past", "add", "K"))
		w.streams.publish("A", event("a", "add", "K"))
		settle()
		row := store.SagaPosition{Tenant: AllTenants, Saga: "late", Checkpoint: edda.Checkpoint{Stream: "A", Created: w.streams.created}}
		if err := w.db.Commit(context.Background(), store.Change{Positions: []store.SagaPosition{row}}); err != nil {
			t.Fatal(err)
		}
		if err := w.engine.Swap(context.Background(), sagaList{"old", "late"}, row); err != nil {
			t.Fatal(err)
		}
		w.waitCaughtUp()
		w.streams.publish("B", event("later", "add", "K"))
		settle()
		if got := w.logOf("late", "K"); !slices.Equal(got, []string{"a", "later"}) {
			t.Errorf("late has %v", got)
		}
	})
}

// TestDrainDoesNotWaitForCatchUp leaves the rest of the catch-up for the next start.
func TestDrainDoesNotWaitForCatchUp(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		for i := range 5000 {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", fmt.Sprint("K", i%100)))
		}
		for w.position("A").Seq < 5000 {
			settle()
		}
		w.gate.slow(5 * time.Millisecond)
		w.addBehind(sagaList{"old", "late"}, "late")
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := w.engine.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		was := len(w.logOf("late", "K0"))
		time.Sleep(time.Second)
		if n := len(w.logOf("late", "K0")); n != was || n == 0 || n == 50 || len(w.behind()) == 0 {
			t.Errorf("%d events at the end of the drain, %d later; %d positions", was, n, len(w.behind()))
		}
	})
}

// TestDrainDropsQueuedCatchUpEvents shows that a drain lost the queue of a laggard whose reader
// had read everything: the empty queue counted as caught up.
func TestDrainDropsQueuedCatchUpEvents(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		const many, keys = 3*maxCaught - 10, 10
		for i := range many {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", fmt.Sprint("K", i%keys)))
		}
		for w.position("A").Seq < many {
			settle()
		}
		w.gate.set(true, nil)
		w.addBehind(sagaList{"old", "late"}, "late")
		settle() // the pipeline is full, and the rest is in the queue
		drained := make(chan error, 1)
		go func() { drained <- w.engine.Drain(context.Background()) }()
		settle()
		w.gate.set(false, nil)
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		w.stop()
		if n := len(w.logOf("late", "K0")); n >= many/keys {
			t.Fatalf("all %d events were applied before the drain", n)
		}
		w.sagas = sagaList{"old", "late"}
		w.start(Options{CatchUp: l.catchUp()})
		w.waitCaughtUp()
		for i := range keys {
			k := fmt.Sprint("K", i)
			if got, want := w.logOf("late", k), w.logOf("old", k); len(want) < many/keys || !slices.Equal(got, want) {
				t.Errorf("%s has %v, want %v", k, got, want)
			}
		}
	})
}

// TestExpiredMessagesAreAuditedAndSkipped expects the saga to begin with the first message that
// is left, and one audit entry.
func TestExpiredMessagesAreAuditedAndSkipped(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		for i := range 10 {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", "K"))
		}
		settle()
		l.lost["A"] = 4
		w.addBehind(sagaList{"old", "late"}, "late")
		w.waitCaughtUp()
		if got, want := w.logOf("late", "K"), []string{"e4", "e5", "e6", "e7", "e8", "e9"}; !slices.Equal(got, want) {
			t.Errorf("applied %v, want %v", got, want)
		}
		audits, err := w.db.Audits(10)
		if err != nil || len(audits) != 1 || audits[0].Key.Saga != "late" || !strings.Contains(audits[0].Detail, "begins at 5") {
			t.Errorf("the audit has %+v (%v)", audits, err)
		}
	})
}

// TestPermanentReadErrorWaitsForRejudge expects Info to show the error meanwhile.
func TestPermanentReadErrorWaitsForRejudge(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		w.streams.publish("A", event("e", "add", "K"))
		settle()
		l.refuse(edda.Classify(edda.Permanent, "its tenant is not served"))
		w.addBehind(sagaList{"old", "late"}, "late")
		settle()
		behind := w.engine.Info().Behind
		if len(behind) != 1 || !strings.Contains(behind[0].Problem, "not served") || behind[0].Left != 1 {
			t.Fatalf("%+v", behind)
		}
		if n := w.metric("edda_sagas_behind", "failing"); n != 1 {
			t.Errorf("%v sagas failing, want one", n)
		}
		l.refuse(nil)
		time.Sleep(time.Hour)
		if len(w.engine.Info().Behind) != 1 {
			t.Fatal("a reader was opened without a call of Rejudge")
		}
		if err := w.engine.Rejudge(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.waitCaughtUp()
		if n := w.metric("edda_sagas_behind", "failing") + w.metric("edda_sagas_behind", "catching_up"); n != 0 {
			t.Errorf("%v sagas behind", n)
		}
	})
}

// TestSignalReachesALaggardAtOnce, because only events and facts are withheld.
func TestSignalReachesALaggardAtOnce(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		l.refuse(errors.New("not now"))
		w.streams.publish("A", event("e", "add", "K"))
		settle()
		w.addBehind(sagaList{"old", "late"}, "late")
		k := edda.Key{Tenant: "acme", Saga: "late", Correlation: "K"}
		w.streams.publish("B", edda.Event{ID: "told", Kind: edda.KindSignal, Type: "told", Key: k, Tenant: "acme"})
		w.streams.publish("B", event("waits", "add", "K"))
		settle()
		if got := w.logOf("late", "K"); !slices.Equal(got, []string{"told"}) {
			t.Errorf("applied %v", got)
		}
		l.refuse(nil)
		w.waitCaughtUp()
		if got := w.logOf("late", "K"); !slices.Equal(got, []string{"told", "e", "waits"}) {
			t.Errorf("applied %v", got)
		}
	})
}

// TestAwaitOfAWithheldEventReturnsAfterCatchUp, and not the fate ignored before.
func TestAwaitOfAWithheldEventReturnsAfterCatchUp(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		l.refuse(errors.New("not now"))
		w.streams.publish("A", event("e", "add", "K"))
		settle()
		w.addBehind(sagaList{"late"}, "late")
		told := make(chan EventResult, 1)
		go func() {
			o, err := w.engine.Await(context.Background(), "acme", "asked", func(context.Context) error {
				w.streams.publish("A", event("asked", "add", "K"))
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			told <- o
		}()
		time.Sleep(10 * time.Second)
		select {
		case o := <-told:
			t.Fatalf("outcome %+v before the catch-up", o)
		default:
		}
		l.refuse(nil)
		w.waitCaughtUp()
		if o := <-told; o.Fate != edda.FateHandled || o.Key.Saga != "late" {
			t.Errorf("outcome %+v", o)
		}
	})
}

// TestPoisonInCatchUpIsIsolated expects all events but the one that the store refuses to be
// applied.
func TestPoisonInCatchUpIsIsolated(t *testing.T) {
	withLateSaga(t, func(w *world, l *archive) {
		long := strings.Repeat("x", 40<<10)
		for i := range 20 {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", "K"))
			if i == 7 {
				w.streams.publish("A", event("long", "add", long))
			}
		}
		settle()
		w.addBehind(sagaList{"old", "late"}, "late")
		w.waitCaughtUp()
		if got := w.logOf("late", "K"); len(got) != 20 {
			t.Errorf("applied %v", got)
		}
		letters, err := w.db.DeadLetters("", 10)
		if err != nil || len(letters) == 0 {
			t.Errorf("%d dead letters (%v)", len(letters), err)
		}
	})
}
