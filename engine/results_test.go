package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store"
)

// result makes a handed-in result for a command of the key.
func result(id, correlation, typ string) Handed {
	k := key(correlation)
	return Handed{
		Event: edda.Event{Kind: edda.KindResult, ID: id + ".result", Tenant: "acme", Key: k, Type: typ, CommandID: id, Outcome: edda.Succeeded},
		Claim: edda.Claim{Tenant: "acme", CommandID: id, Effect: "call", Claimed: time.Now().UTC(), Done: true, Outcome: edda.Succeeded, Result: []byte(`{"n":1}`)},
		Echo:  edda.Work{ID: id + ".result", Kind: edda.WorkResult, From: k, Name: "call", CommandID: id, Payload: []byte(`{"x":1}`)},
	}
}

// hand calls Result in a goroutine and returns the channel of its error.
func (w *world) hand(r Handed) chan error {
	done := make(chan error, 1)
	go func() { done <- w.engine.Result(context.Background(), r) }()
	return done
}

// answered returns the error of Result, if it has returned.
func answered(done chan error) (error, bool) {
	select {
	case err := <-done:
		return err, true
	default:
		return nil, false
	}
}

func (w *world) wantAnswer(done chan error, want error) {
	w.t.Helper()
	if err, is := answered(done); !is || !errors.Is(err, want) {
		w.t.Errorf("answered %v (%v), want %v", err, is, want)
	}
}

func (w *world) echoes() (ids []string) {
	w.t.Helper()
	rows, err := w.db.Outbox(store.Row{}.ID, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range rows {
		if r.Work.Kind == edda.WorkResult {
			ids = append(ids, r.Work.ID)
		}
	}
	return ids
}

func TestHandedResultCommitsWithItsClaimAndEcho(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		before, at := w.gate.count(), w.position("A")
		w.gate.set(true, nil)
		done := w.hand(result("c1", "k", "add"))
		settle()
		if _, is := answered(done); is {
			t.Fatal("Result returned before its commit")
		}
		w.gate.set(false, nil)
		settle()
		w.wantAnswer(done, nil)
		if n := w.gate.count() - before; n != 1 {
			t.Errorf("%d change sets", n)
		}
		c := w.gate.submitted[before]
		if len(c.Encoded) != 2 || len(c.Checkpoints) != 0 || c.Size() < len(`{"x":1}{"n":1}`) {
			t.Errorf("the change set: %+v", c)
		}
		w.wantLog(key("k"), "c1.result")
		claim, found, _ := w.db.Claim("acme", "c1")
		if !found || !claim.Done || !slices.Equal(w.echoes(), []string{"c1.result"}) {
			t.Errorf("claim %+v, echoes %v", claim, w.echoes())
		}
		history, err := w.db.History(key("k"), 10)
		rows, _ := w.db.Outbox(ulid.ULID{}, 10)
		if err != nil || len(history) != 1 || len(rows) != 1 {
			t.Fatalf("history %+v, outbox %+v, %v", history, rows, err)
		}
		if at := history[0].Event.Time; at.IsZero() || !claim.Taken.Equal(at) || !rows[0].Work.Time.Equal(at) {
			t.Errorf("the times differ: history %v, claim %v, echo %v", at, claim.Taken, rows[0].Work.Time)
		}
		if w.position("A") != at {
			t.Error("a result of no stream moved the position of one")
		}
		if h, err := w.db.History(key("k"), 10); err != nil || len(h) != 1 || len(h[0].Work) != 0 || h[0].Event.Stream != "" || h[0].Event.Time.IsZero() {
			t.Errorf("history %+v, %v", h, err)
		}
	})
}

// TestEchoIsAppliedAsItWasHandedIn, whenever it was stored. The position is that of the echo.
func TestEchoIsAppliedAsItWasHandedIn(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		ev := result("c1", "k", "add").Event
		ev.Time = time.Now().Add(-time.Hour).UTC()
		want := ev
		var stored time.Time
		w.streams.change(func() {
			at := w.streams.last["A"]
			at.Seq, at.Time = at.Seq+1, time.Now().UTC()
			stored = at.Time
			ev.Stream, ev.Seq, ev.Stored = "A", at.Seq, at.Time
			w.streams.last["A"] = at
			w.streams.waiting = append(w.streams.waiting, ev)
		})
		settle()
		h, err := w.db.History(key("k"), 10)
		if err != nil || len(h) != 1 || !reflect.DeepEqual(h[0].Event, want) {
			t.Errorf("history %+v, want %+v, %v", h, want, err)
		}
		if at := w.position("A"); at.Seq != ev.Seq || !at.Time.Equal(stored) {
			t.Errorf("position %+v, stored %v", at, stored)
		}
	})
}

func TestPastResultWithoutAStreamMovesNoPosition(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		at := w.position("A")
		w.streams.change(func() {
			for _, id := range []string{"c1", "c2"} {
				ev := result(id, "k", "add").Event
				ev.Time = time.Now().UTC()
				w.streams.waiting = append(w.streams.waiting, ev)
			}
		})
		settle()
		w.wantLog(key("k"), "e1", "c1.result", "c2.result")
		if w.position("A") != at {
			t.Errorf("position %+v, was %+v", w.position("A"), at)
		}
		if all, err := w.db.Checkpoints(); err != nil || len(all) != 2 {
			t.Errorf("positions %+v, %v", all, err)
		}
	})
}

func TestIgnoredHandedResultKeepsItsClaimAndEcho(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		done := w.hand(result("c1", "k", "drop"))
		settle()
		w.wantAnswer(done, nil)
		if _, found, _ := w.db.Claim("acme", "c1"); !found || len(w.echoes()) != 1 || len(w.log(key("k"))) != 0 {
			t.Errorf("claim %v, echoes %v, log %v", found, w.echoes(), w.log(key("k")))
		}
	})
}

func TestHandedResultsAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		w.gate.set(true, nil)
		var all []chan error
		for i := range maxHanded + 1 {
			all = append(all, w.hand(result(fmt.Sprint("c", i), fmt.Sprint("k", i), "add")))
		}
		settle()
		full := 0
		for _, done := range all {
			if err, is := answered(done); is {
				full++
				if !errors.Is(err, ErrFull) || !errors.Is(err, edda.Temporary) {
					t.Error(err)
				}
			}
		}
		if full != 1 {
			t.Errorf("%d were refused", full)
		}
		w.gate.set(false, nil)
		settle()
		if n := len(w.echoes()); n != 1000 && n != maxHanded { // a page of the outbox
			t.Errorf("%d echoes", n)
		}
		done := w.hand(result("last", "k", "add"))
		settle()
		w.wantAnswer(done, nil)
	})
}

func TestHandedResultsAreBoundedInBytes(t *testing.T) {
	q := newResults()
	big := result("c", "k", "add")
	big.Event.Payload = []byte(strings.Repeat("x", maxHandedBytes+1))
	if err := q.add(big, make(report, 1)); err != nil {
		t.Errorf("a single result: %v", err)
	}
	if err := q.add(result("d", "k", "add"), make(report, 1)); !errors.Is(err, ErrFull) {
		t.Errorf("a second one: %v", err)
	}
	q.release(q.take()[0])
	if err := q.add(result("d", "k", "add"), make(report, 1)); err != nil {
		t.Errorf("one after the first is durable: %v", err)
	}
}

func TestDrainAppliesHandedResultsAndRefusesLaterOnes(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		w.gate.set(true, nil)
		first := w.hand(result("c1", "k", "add"))
		settle()
		drained := make(chan error, 1)
		go func() { drained <- w.engine.Drain(context.Background()) }()
		time.Sleep(time.Second)
		late := w.hand(result("c2", "k", "add"))
		settle()
		w.wantAnswer(late, ErrDraining)
		if _, is := answered(drained); is {
			t.Error("drained before the result was durable")
		}
		w.gate.set(false, nil)
		settle()
		w.wantAnswer(first, nil)
		w.wantAnswer(drained, nil)
		w.stop()
		done := w.hand(result("c3", "k", "add"))
		settle()
		if err, is := answered(done); !is || err == nil {
			t.Errorf("after the stop: %v", err)
		}
		w.wantLog(key("k"), "c1.result")
	})
}

// TestStopAnswersCallersOfResult, which else would block for ever.
func TestStopAnswersCallersOfResult(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		w.gate.setViewError(errors.New("no snapshot"))
		done := w.hand(result("c1", "k", "add"))
		settle()
		w.stop()
		settle()
		w.wantAnswer(done, ErrStopped)
	})
}

func TestHandedResultSurvivesAFailedCommit(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		w.gate.set(true, nil)
		done := w.hand(result("c1", "k", "add"))
		settle()
		w.gate.failNext(errors.New("disk full"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.wantAnswer(done, nil)
		w.wantLog(key("k"), "c1.result")
	})
}

// TestHandedResultThatTheStoreRefusesIsReturned without the others of its batch. Through the
// stream it becomes a dead letter.
func TestHandedResultThatTheStoreRefusesIsReturned(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		w.gate.set(true, nil)
		bad := result("c1", "k", "add")
		bad.Claim.CommandID = strings.Repeat("x", 1<<16)
		refused, good := w.hand(bad), w.hand(result("c2", "other", "add"))
		settle()
		w.gate.set(false, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.wantAnswer(refused, edda.Poison)
		w.wantAnswer(good, nil)
		w.wantLog(key("k"))
		w.wantLog(key("other"), "c2.result")
		if letters, _ := w.db.DeadLetters("", 10); len(letters) != 0 {
			t.Errorf("dead letters %+v", letters)
		}
	})
}

func TestHandedResultThatPanicsHoldsItsKey(t *testing.T) {
	inWorld(t, func(w *world) {
		settle()
		done := w.hand(result("c1", "k", "panic"))
		settle()
		w.wantAnswer(done, nil)
		if cell := w.cell(key("k")); len(cell.Held) != 1 || len(w.echoes()) != 1 {
			t.Errorf("held %+v, echoes %v", cell.Held, w.echoes())
		}
	})
}

// TestResultsAreAppliedWhileNewEventsAreHeld, because results make room.
func TestResultsAreAppliedWhileNewEventsAreHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(Options{room: &fakeRoom{names: []string{"jetstream"}}})
		settle()
		w.streams.publish("A", event("e1", "add", "k"))
		done := w.hand(result("c1", "k", "add"))
		settle()
		w.wantAnswer(done, nil)
		w.wantLog(key("k"), "c1.result")
	})
}

// TestTimerWaitsForEarlierHandedResults, as it does for events of streams.
func TestTimerWaitsForEarlierHandedResults(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", edda.Event{ID: "e1", Type: "arm", AggregateID: "k", Tenant: "acme", Payload: []byte(`"1s"`)})
		settle()
		armed := w.cell(key("k")).Instance.Armed
		w.gate.setViewError(errors.New("no snapshot")) // fails every evaluation
		time.Sleep(time.Until(armed) - 10*time.Millisecond)
		done := w.hand(result("c1", "k", "add"))
		time.Sleep(time.Second)
		woken := make(chan error, 1)
		go func() { woken <- w.engine.Wake(context.Background(), []store.Due{{Time: armed, Key: key("k")}}) }()
		time.Sleep(time.Second)
		w.gate.setViewError(nil)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		w.wantAnswer(done, nil)
		w.wantAnswer(woken, nil)
		w.wantLog(key("k"), "e1", "c1.result", "timer-e1")
	})
}

// TestPositionsPiggybackOnResults: positions move past messages of others, and never past an
// unread event, nor back.
func TestPositionsPiggybackOnResults(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		w.streams.change(func() { // three messages of others
			at := w.streams.last["A"]
			at.Seq, at.Time = at.Seq+3, time.Now().UTC()
			w.streams.last["A"], w.streams.gone = at, true
		})
		time.Sleep(2 * pollEvery)
		before := w.gate.count()
		w.hand(result("c1", "k", "add"))
		settle()
		if got := w.position("A").Seq; got != 4 || w.gate.count() != before+1 {
			t.Errorf("position %d after %d change sets", got, w.gate.count()-before)
		}
		w.streams.change(func() { w.streams.held, w.streams.gone = true, false })
		w.streams.publish("A", event("unread", "add", "k"))
		time.Sleep(2 * pollEvery)
		w.hand(result("c2", "k", "add"))
		settle()
		if got := w.position("A").Seq; got != 4 {
			t.Errorf("position %d is past an unread event", got)
		}
		w.streams.change(func() { w.streams.held, w.streams.gone = false, true })
		for i := range 5 {
			w.streams.publish("A", event(fmt.Sprint("f", i), "add", "k"))
			w.hand(result(fmt.Sprint("d", i), "k", "add"))
			settle()
			if got := w.position("A").Seq; got != uint64(6+i) {
				t.Errorf("position %d, want %d", got, 6+i)
			}
		}
	})
}
