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

// exchangeLog replaces the log of an instance, and returns the state that it was given.
func exchangeLog(t *testing.T, w *world, correlation, log string) (seen string, err error) {
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

func TestExchangeIsOrderedWithTheEventsOfItsKey(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		seen, err := exchangeLog(t, w, "k", "other")
		if err != nil || !strings.Contains(seen, "e1") {
			t.Fatalf("change got %s: %v", seen, err)
		}
		w.streams.publish("A", event("e2", "add", "k"))
		settle()
		w.wantLog(key("k"), "other", "e2")
		if got := w.position("A").Seq; got != 2 {
			t.Errorf("position %d", got)
		}
	})
}

// TestExchangeSeesInFlightCells, and not those of the store.
func TestExchangeSeesInFlightCells(t *testing.T) {
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
			seen, err := exchangeLog(t, w, "k", "other")
			done <- answer{seen, err}
		}()
		settle()
		if len(done) != 0 {
			t.Fatal("Exchange returned before it was durable")
		}
		w.gate.set(false, nil)
		if a := <-done; a.err != nil || !strings.Contains(a.seen, "e1") {
			t.Errorf("%+v", a)
		}
		w.wantLog(key("k"), "other")
	})
}

func TestExchangeIsRepeatedAfterAFailedCommit(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		w.gate.failNext(errDiskFull)
		if seen, err := exchangeLog(t, w, "k", "other"); err != nil || !strings.Contains(seen, "e1") {
			t.Errorf("%s, %v", seen, err)
		}
		w.wantLog(key("k"), "other")
	})
}

func TestFailedExchangeChangesNothing(t *testing.T) {
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
		_, err = exchangeLog(t, w, strings.Repeat("k", 40_000), "other")
		if !errors.Is(err, edda.Poison) {
			t.Errorf("what cannot be written: %v", err)
		}
		w.streams.publish("A", event("e2", "add", "k"))
		settle()
		w.wantLog(key("k"), "e1", "e2")
	})
}

func TestExchangeIsRefusedWhileDraining(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.engine.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := exchangeLog(t, w, "k", "other"); !errors.Is(err, ErrDraining) {
			t.Errorf("%v", err)
		}
	})
}

// TestApplyHandlesAPanicAsTheEngineDoes, because a replay meets the same panics.
func TestApplyHandlesAPanicAsTheEngineDoes(t *testing.T) {
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
			t.Errorf("Apply makes\n%s\nand the engine made\n%s", got, stored)
		}
	})
}
