package engine

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/saga"
	"edda/store"
)

// exchanged replaces the log of an instance, and says what it was given.
func exchanged(t *testing.T, w *world, correlation, log string) (seen string, err error) {
	t.Helper()
	err = w.engine.Exchange(context.Background(), key(correlation), func(cell edda.Cell) (edda.Cell, []edda.Transition) {
		seen = ""
		in := edda.Instance{Key: cell.Key, Version: 1, Status: edda.StatusRunning}
		if cell.Instance != nil {
			in, seen = *cell.Instance, string(cell.Instance.State)
		}
		in.State, _ = json.Marshal(tally{Log: []string{log}})
		cell.Instance = &in
		return cell, []edda.Transition{{Key: key(correlation), Event: edda.Event{Kind: edda.KindOperator, ID: "x"}, Fate: edda.FateHandled, Instance: &in}}
	})
	return seen, err
}

func TestAnExchangeComesBetweenTheEventsOfItsKey(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		seen, err := exchanged(t, w, "k", "other")
		if err != nil || !strings.Contains(seen, "e1") {
			t.Fatalf("it was given %s: %v", seen, err)
		}
		w.streams.publish("A", event("e2", "add", "k"))
		settle()
		w.wantLog(key("k"), "other", "e2")
		if got := w.position("A").Seq; got != 2 {
			t.Errorf("position %d", got)
		}
	})
}

// The cell is that of the commits under way, not that of the disk.
func TestAnExchangeSeesWhatIsNotYetDurable(t *testing.T) {
	inWorld(t, func(w *world) {
		w.gate.set(true, nil)
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		type answer struct {
			seen string
			err  error
		}
		done := make(chan answer, 1)
		go func() {
			seen, err := exchanged(t, w, "k", "other")
			done <- answer{seen, err}
		}()
		settle()
		if len(done) != 0 {
			t.Fatal("it was reported before it was durable")
		}
		w.gate.set(false, nil)
		if a := <-done; a.err != nil || !strings.Contains(a.seen, "e1") {
			t.Errorf("%+v", a)
		}
		w.wantLog(key("k"), "other")
	})
}

func TestAnExchangeIsDoneAgainWhenItsCommitFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		w.gate.failNext(errDiskFull)
		if seen, err := exchanged(t, w, "k", "other"); err != nil || !strings.Contains(seen, "e1") {
			t.Errorf("%s, %v", seen, err)
		}
		w.wantLog(key("k"), "other")
	})
}

func TestAnExchangeThatCannotBeChangesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		err := w.engine.Exchange(context.Background(), key("k"), func(edda.Cell) (edda.Cell, []edda.Transition) { panic("broken") })
		if !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "broken") {
			t.Errorf("%v", err)
		}
		at := time.Now()
		err = w.engine.Exchange(context.Background(), key("k"), func(c edda.Cell) (edda.Cell, []edda.Transition) { return c, nil })
		if waited := time.Since(at); err != nil || waited > 0 {
			t.Errorf("nothing to change: %v, after %v", err, waited)
		}
		_, err = exchanged(t, w, strings.Repeat("k", 40_000), "other")
		if !errors.Is(err, edda.Poison) {
			t.Errorf("what cannot be written: %v", err)
		}
		w.streams.publish("A", event("e2", "add", "k"))
		settle()
		w.wantLog(key("k"), "e1", "e2")
	})
}

func TestAnExchangeIsRefusedWhileItDrains(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.engine.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := exchanged(t, w, "k", "other"); !errors.Is(err, ErrDraining) {
			t.Errorf("%v", err)
		}
	})
}

// A replay meets the same panics as live processing did, and must make the same of them.
func TestApplyMakesOfAPanicWhatTheEngineMakes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		w.streams.publish("A", event("e2", "panic", "k"))
		settle()
		view, err := w.db.View()
		if err != nil {
			t.Fatal(err)
		}
		defer view.Close()
		want, err := view.Cell(key("k"))
		if err != nil || len(want.Held) != 1 {
			t.Fatalf("%+v, %v", want, err)
		}
		cell := edda.Cell{Key: key("k")}
		rows, _, err := view.History(key("k"), 10)
		if err != nil || len(rows) != 2 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		for _, r := range rows {
			cell, _ = Apply(counter{}, cell, saga.Target{Key: cell.Key}, r.Event)
		}
		got, _ := store.CellBytes(cell)
		stored, _ := store.CellBytes(want)
		if string(got) != string(stored) {
			t.Errorf("applied again it is\n%s\nand was\n%s", got, stored)
		}
	})
}
