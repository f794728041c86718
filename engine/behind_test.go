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

// chorus are sagas that each take in every event of an aggregate, as counter does.
type chorus []string

func (c chorus) Route(ev edda.Event) (all []saga.Target) {
	if ev.Kind != edda.KindEvent {
		return counter{}.Route(ev)
	}
	for _, name := range c {
		all = append(all, counter{name}.Route(ev)...)
	}
	return all
}

func (c chorus) Apply(cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	return counter{}.Apply(cell, t, ev)
}

func (c chorus) Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition) {
	return counter{}.Wake(cell, row, horizon)
}

// library is what the streams of a world have stored, for those who read it again.
type library struct {
	*streams
	mu      sync.Mutex // guards all below
	opened  []SagaTenant
	closed  int
	lost    map[string]uint64 // messages up to here are gone
	refuses error
}

func (w *world) library() *library { return &library{streams: w.streams, lost: map[string]uint64{}} }

func (l *library) catchUp() CatchUpOptions {
	return CatchUpOptions{Streams: []string{"A", "B"}, Open: l.open}
}

func (l *library) open(_ context.Context, p SagaTenant, from []edda.Checkpoint) (Past, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses != nil {
		return nil, l.refuses
	}
	l.opened = append(l.opened, p)
	s := &shelf{library: l, next: map[string]uint64{}, upto: map[string]uint64{}}
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

func (l *library) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuses = err
}

func (l *library) counts() (opened, closed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.opened), l.closed
}

// shelf is one reader of it.
type shelf struct {
	*library
	start  []edda.Checkpoint
	losses []string
	next   map[string]uint64
	upto   map[string]uint64 // what lay there when it was opened
}

func (s *shelf) Start() []edda.Checkpoint { return s.start }
func (s *shelf) Losses() []string         { return s.losses }

func (s *shelf) Close() {
	s.library.mu.Lock()
	defer s.library.mu.Unlock()
	s.closed++
}

func (s *shelf) Fetch(ctx context.Context, most int, wait time.Duration) (Fetched, error) {
	got := s.read(most)
	if len(got.Events) == 0 {
		_ = backoff.Wait(ctx, min(wait, 10*time.Millisecond))
	}
	return got, ctx.Err()
}

func (s *shelf) read(most int) (got Fetched) {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	for _, ev := range s.stored {
		if ev.Seq < s.next[ev.Stream] || ev.Kind != edda.KindEvent {
			continue
		}
		past := ev.Seq <= s.upto[ev.Stream]
		if len(got.Events) == most || len(got.Events) > 0 && past != got.Past {
			break
		}
		got.Events, got.Past = append(got.Events, ev), past
		s.next[ev.Stream] = ev.Seq + 1
	}
	return got
}

// Ends says that what is no event is not needed.
func (s *shelf) Ends(context.Context) (ends []End, _ error) {
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

// begins has sagas begin behind everything that is stored, as a saga that is added later
// and wants all does.
func (w *world) begins(sagas chorus, names ...string) {
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

// liveAgain waits until no saga is behind.
func (w *world) liveAgain() {
	w.t.Helper()
	for range 10_000 {
		settle()
		if len(w.engine.Info().Behind) == 0 && len(w.behind()) == 0 {
			return
		}
	}
	w.t.Fatalf("sagas are behind for ever: %+v; %+v", w.engine.Info().Behind, w.behind())
}

// chorused runs a test with a saga that has begun, and one that may.
func chorused(t *testing.T, test func(w *world, l *library)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		l := w.library()
		w.sagas = chorus{"old"}
		w.start(Options{CatchUp: l.catchUp()})
		test(w, l)
	})
}

// TestASagaThatIsAddedLaterTakesInWhatIsStored beside a saga that had begun before, and is
// live then: nothing is lost, nothing comes twice.
func TestASagaThatIsAddedLaterTakesInWhatIsStored(t *testing.T) {
	chorused(t, func(w *world, l *library) {
		var ids []string
		for i := range 500 {
			ids = append(ids, fmt.Sprint("e", i))
			w.streams.publish([]string{"A", "B"}[i%2], event(ids[i], "add", "K"))
			time.Sleep(time.Millisecond)
		}
		settle()
		w.begins(chorus{"old", "late"}, "late")
		for i := 500; i < 600; i++ {
			ids = append(ids, fmt.Sprint("e", i))
			w.streams.publish("A", event(ids[i], "add", "K"))
			time.Sleep(time.Millisecond)
		}
		w.liveAgain()
		w.streams.publish("B", event("last", "add", "K"))
		settle()
		ids = append(ids, "last")
		for _, name := range []string{"old", "late"} {
			if got := w.logOf(name, "K"); !slices.Equal(got, ids) {
				t.Errorf("%s took in %d events: %s\nwant %d", name, len(got), joined(got), len(ids))
			}
		}
		if opened, closed := l.counts(); opened == 0 || opened != closed {
			t.Errorf("%d readers were opened and %d closed", opened, closed)
		}
		if n := w.metric("edda_catch_up_events_total"); n < 500 {
			t.Errorf("%v events were caught up", n)
		}
	})
}

// TestLiveSagasGoOnWhileAnotherIsCaughtUp: an event is applied within milliseconds while
// many thousand old ones are read again.
func TestLiveSagasGoOnWhileAnotherIsCaughtUp(t *testing.T) {
	chorused(t, func(w *world, l *library) {
		const many = 8000
		w.gate.slow(2 * time.Millisecond) // as a disk is
		for i := range many {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", fmt.Sprint("K", i%1000)))
		}
		for w.position("A").Seq < many {
			settle()
		}
		w.begins(chorus{"old", "late"}, "late")
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
			t.Errorf("only %d live events came while %d were caught up", n, many)
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

// TestADeadlineDoesNotOvertakeEventsOfASagaThatIsBehind: what was due between two old
// events fires between them, and what is due after the last one only once it is applied.
func TestADeadlineDoesNotOvertakeEventsOfASagaThatIsBehind(t *testing.T) {
	chorused(t, func(w *world, l *library) {
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
		w.begins(chorus{"old", "late"}, "late")
		time.Sleep(5 * time.Second) // its clock stands still
		if got := w.logOf("late", "K"); got != nil {
			t.Fatalf("took in %v", got)
		}
		l.refuse(nil)
		w.liveAgain()
		w.wakes(edda.Key{Tenant: "acme", Saga: "late", Correlation: "K"})
		want := []string{"first", "before", "timer-first", "after", "second", "timer-second"}
		if got := w.logOf("late", "K"); !slices.Equal(got, want) {
			t.Errorf("took in %v, want %v", got, want)
		}
	})
}

// wakes hands in what is due and waits for nothing else, as the scheduler does.
func (w *world) wakes(only edda.Key) {
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

// TestWhatIsDueInASagaThatIsBehindKeepsNobodyWaiting: its row stays in the index, is passed
// over, and other timers fire.
func TestWhatIsDueInASagaThatIsBehindKeepsNobodyWaiting(t *testing.T) {
	chorused(t, func(w *world, l *library) {
		w.streams.publish("A", event("e", "add", "K"))
		settle()
		l.refuse(errors.New("not now"))
		w.begins(chorus{"old", "late"}, "late")
		behind, other := edda.Key{Tenant: "acme", Saga: "late", Correlation: "K"}, edda.Key{Tenant: "acme", Saga: "old", Correlation: "K"}
		due := []store.Due{{Time: time.Now(), Key: behind}, {Time: time.Now(), Key: other}}
		if err := w.db.Commit(context.Background(), store.Change{Arm: due}); err != nil {
			t.Fatal(err)
		}
		if !w.engine.Waits(due[0]) || w.engine.Waits(due[1]) {
			t.Error("the wrong one waits")
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.engine.Wake(ctx, due); err != nil {
			t.Errorf("whoever hands it in waits for ever: %v", err)
		}
		if rows, _, passed, _ := w.db.DueBut(time.Now(), MaxRows, w.engine.Waits); passed != 1 || len(rows) > 1 {
			t.Errorf("%d rows, and %d are passed over", len(rows), passed)
		}
		l.refuse(nil)
		w.liveAgain()
		if w.engine.Waits(due[0]) {
			t.Error("it waits though it is live")
		}
	})
}

// TestARestartInTheMiddleOfACatchUpGoesOnWhereItWas, as the positions are in each commit.
func TestARestartInTheMiddleOfACatchUpGoesOnWhereItWas(t *testing.T) {
	chorused(t, func(w *world, l *library) {
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
		w.begins(chorus{"old", "late"}, "late")
		for len(w.logOf("late", "K0")) < many/keys/3 {
			time.Sleep(5 * time.Millisecond)
		}
		w.stop()
		done := taken()
		if rows := w.behind(); len(rows) != 2 || int(rows[0].Seq) != done || done == many {
			t.Fatalf("took in %d, and is at %+v", done, rows)
		}
		w.sagas = chorus{"old", "late"}
		w.start(Options{CatchUp: l.catchUp()})
		w.liveAgain()
		for i := range keys {
			k := fmt.Sprint("K", i)
			if got, want := w.logOf("late", k), w.logOf("old", k); len(want) != many/keys || !slices.Equal(got, want) {
				t.Errorf("%s has %v, want %v", k, got, want)
			}
		}
	})
}

// TestADrainLeavesACatchUpForTheNextStart and does not wait for it.
func TestADrainLeavesACatchUpForTheNextStart(t *testing.T) {
	chorused(t, func(w *world, l *library) {
		for i := range 5000 {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", fmt.Sprint("K", i%100)))
		}
		for w.position("A").Seq < 5000 {
			settle()
		}
		w.gate.slow(5 * time.Millisecond)
		w.begins(chorus{"old", "late"}, "late")
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := w.engine.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		was := len(w.logOf("late", "K0"))
		time.Sleep(time.Second)
		if n := len(w.logOf("late", "K0")); n != was || n == 0 || n == 50 || len(w.behind()) == 0 {
			t.Errorf("%d events, %d after the drain; %d rows", was, n, len(w.behind()))
		}
	})
}

// TestADrainSkipsWhatWasReadOfThePast and not applied: the reader had come to the end, so
// the saga counted as caught up once its queue was empty.
func TestADrainSkipsWhatWasReadOfThePast(t *testing.T) {
	chorused(t, func(w *world, l *library) {
		const many, keys = 3*maxCaught - 10, 10
		for i := range many {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", fmt.Sprint("K", i%keys)))
		}
		for w.position("A").Seq < many {
			settle()
		}
		w.gate.set(true, nil)
		w.begins(chorus{"old", "late"}, "late")
		settle() // the batches that may be in flight are, and the rest is read
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
		w.sagas = chorus{"old", "late"}
		w.start(Options{CatchUp: l.catchUp()})
		w.liveAgain()
		for i := range keys {
			k := fmt.Sprint("K", i)
			if got, want := w.logOf("late", k), w.logOf("old", k); len(want) < many/keys || !slices.Equal(got, want) {
				t.Errorf("%s has %v, want %v", k, got, want)
			}
		}
	})
}

// TestAStreamThatHasLostItsBeginningIsSaid: the saga goes on with the first message that is
// there, once and with an entry in the audit.
func TestAStreamThatHasLostItsBeginningIsSaid(t *testing.T) {
	chorused(t, func(w *world, l *library) {
		for i := range 10 {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", "K"))
		}
		settle()
		l.lost["A"] = 4
		w.begins(chorus{"old", "late"}, "late")
		w.liveAgain()
		if got, want := w.logOf("late", "K"), []string{"e4", "e5", "e6", "e7", "e8", "e9"}; !slices.Equal(got, want) {
			t.Errorf("took in %v, want %v", got, want)
		}
		audits, err := w.db.Audits(10)
		if err != nil || len(audits) != 1 || audits[0].Key.Saga != "late" || !strings.Contains(audits[0].Detail, "begins at 5") {
			t.Errorf("the audit has %+v (%v)", audits, err)
		}
	})
}

// TestASagaThatCannotBeReadForWaitsUntilSomethingChanges, and says why.
func TestASagaThatCannotBeReadForWaitsUntilSomethingChanges(t *testing.T) {
	chorused(t, func(w *world, l *library) {
		w.streams.publish("A", event("e", "add", "K"))
		settle()
		l.refuse(edda.Classify(edda.Permanent, "its tenant is not served"))
		w.begins(chorus{"old", "late"}, "late")
		settle()
		behind := w.engine.Info().Behind
		if len(behind) != 1 || !strings.Contains(behind[0].Problem, "not served") || behind[0].Left != 1 {
			t.Fatalf("%+v", behind)
		}
		if n := w.metric("edda_sagas_behind", "failing"); n != 1 {
			t.Errorf("%v fail", n)
		}
		l.refuse(nil)
		time.Sleep(time.Hour)
		if len(w.engine.Info().Behind) != 1 {
			t.Fatal("it was read for though nothing had changed")
		}
		if err := w.engine.Rejudge(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.liveAgain()
		if n := w.metric("edda_sagas_behind", "failing") + w.metric("edda_sagas_behind", "catching_up"); n != 0 {
			t.Errorf("%v are behind", n)
		}
	})
}

// TestWhatIsToldASagaThatIsBehindComesAtOnce: only events and facts wait for their turn.
func TestWhatIsToldASagaThatIsBehindComesAtOnce(t *testing.T) {
	chorused(t, func(w *world, l *library) {
		l.refuse(errors.New("not now"))
		w.streams.publish("A", event("e", "add", "K"))
		settle()
		w.begins(chorus{"old", "late"}, "late")
		k := edda.Key{Tenant: "acme", Saga: "late", Correlation: "K"}
		w.streams.publish("B", edda.Event{ID: "told", Kind: edda.KindSignal, Type: "told", Key: k, Tenant: "acme"})
		w.streams.publish("B", event("waits", "add", "K"))
		settle()
		if got := w.logOf("late", "K"); !slices.Equal(got, []string{"told"}) {
			t.Errorf("took in %v", got)
		}
		l.refuse(nil)
		w.liveAgain()
		if got := w.logOf("late", "K"); !slices.Equal(got, []string{"told", "e", "waits"}) {
			t.Errorf("took in %v", got)
		}
	})
}

// TestWhoeverWaitsForAnEventThatASagaHasStillToTakeInIsToldThen, and not that it was ignored.
func TestWhoeverWaitsForAnEventThatASagaHasStillToTakeInIsToldThen(t *testing.T) {
	chorused(t, func(w *world, l *library) {
		l.refuse(errors.New("not now"))
		w.streams.publish("A", event("e", "add", "K"))
		settle()
		w.begins(chorus{"late"}, "late")
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
			t.Fatalf("was told %+v before", o)
		default:
		}
		l.refuse(nil)
		w.liveAgain()
		if o := <-told; o.Fate != edda.FateHandled || o.Key.Saga != "late" {
			t.Errorf("was told %+v", o)
		}
	})
}

// TestAPoisonOfThePastIsFoundAlone: what the store cannot write is tried by itself, and all
// else of the past is applied.
func TestAPoisonOfThePastIsFoundAlone(t *testing.T) {
	chorused(t, func(w *world, l *library) {
		long := strings.Repeat("x", 40<<10)
		for i := range 20 {
			w.streams.publish("A", event(fmt.Sprint("e", i), "add", "K"))
			if i == 7 {
				w.streams.publish("A", event("long", "add", long))
			}
		}
		settle()
		w.begins(chorus{"old", "late"}, "late")
		w.liveAgain()
		if got := w.logOf("late", "K"); len(got) != 20 {
			t.Errorf("took in %v", got)
		}
		letters, err := w.db.DeadLetters("", 10)
		if err != nil || len(letters) == 0 {
			t.Errorf("%d dead letters (%v)", len(letters), err)
		}
	})
}
