//go:build !race && !quick

package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"edda"
	"edda/store"
)

// life makes a long history of the order saga without an engine, because the engine would sync the
// disk for each batch. It commits the decisions in large change sets.
type life struct {
	w     *world
	rnd   *rand.Rand
	keys  []edda.Key
	cells map[edda.Key]edda.Cell
	sent  []edda.Work
	piece store.Change
	rows  int
}

func newLife(w *world, keys int) *life {
	l := &life{w: w, rnd: rand.New(rand.NewPCG(3, 5)), cells: map[edda.Key]edda.Cell{}}
	for i := range keys {
		l.keys = append(l.keys, w.key(fmt.Sprintf("O%d", i)))
	}
	return l
}

func (l *life) until(rows int) {
	for l.rows < rows {
		l.w.later(time.Duration(l.rnd.IntN(200)) * time.Minute)
		for range l.keys {
			l.give(l.draw())
		}
		for _, k := range l.keys {
			if in := l.cells[k].Instance; in != nil && !in.Armed.IsZero() && !in.Armed.After(l.w.now) {
				l.take(l.w.set.Wake(l.cells[k], in.Armed, l.w.now))
			}
		}
	}
	l.commit()
}

func (l *life) draw() edda.Event {
	w, id := l.w, l.keys[l.rnd.IntN(len(l.keys))].Correlation
	switch n := l.rnd.IntN(20); {
	case n < 5:
		return w.event("Placed", id, map[string]any{"total": n})
	case n < 9:
		return w.event("Noted", id, map[string]any{"by": n})
	case n < 10:
		return w.event("Noted", id, map[string]any{"by": nil}) // poison
	case n < 11:
		return w.event("Paid", id, nil)
	case n < 17 && len(l.sent) > 0:
		return w.result(l.sent[l.rnd.IntN(len(l.sent))], []edda.Outcome{edda.Succeeded, edda.Succeeded, edda.Failed}[n%3])
	}
	verbs := []string{edda.VerbCancel, edda.VerbRetry, edda.VerbSkip, edda.VerbRedrive, edda.VerbDrop, edda.VerbDrop}
	return w.verb(verbs[l.rnd.IntN(len(verbs))], id, "thank")
}

func (l *life) give(ev edda.Event) {
	ev = l.w.log.past(ev)
	for _, t := range l.w.set.Route(ev) {
		cell := l.cells[t.Key]
		cell.Key = t.Key
		l.take(l.w.set.Apply(cell, t, ev))
	}
	at := edda.Checkpoint{Stream: ev.Stream, Seq: ev.Seq, Time: ev.Time, Created: l.w.log.created}
	l.piece.Checkpoints = append(l.piece.Checkpoints, at)
}

func (l *life) take(cell edda.Cell, trs []edda.Transition) {
	l.cells[cell.Key] = cell
	l.piece.Transitions = append(l.piece.Transitions, trs...)
	for i := range trs {
		if trs[i].Fate != "" && trs[i].Fate != edda.FateIgnored {
			l.rows++
		}
		for _, work := range trs[i].Work {
			if work.Kind == edda.WorkEffect {
				l.sent = append(l.sent, work)
			}
		}
	}
	if len(l.piece.Transitions) > 8000 {
		l.commit()
	}
}

func (l *life) commit() {
	l.piece.Whole = true
	if err := l.w.db.Commit(context.Background(), l.piece); err != nil {
		l.w.t.Fatal(err)
	}
	l.piece = store.Change{}
}

// past publishes an event that the engine does not read, because it was handled.
func (l *log) past(ev edda.Event) edda.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	ev = l.put(ev)
	l.at, l.read[ev.Stream] = len(l.all), ev.Seq
	return ev
}

// A hundred thousand events with timers and operators' commands give the same bytes, and the
// replay reports progress.
func TestReplayOf100000EventsGivesTheSameBytes(t *testing.T) {
	w := newWorld(t, orderSaga, watchSaga)
	begun := time.Now()
	newLife(w, 7500).until(100_000)
	t.Logf("%d rows of history in %s", w.rows(), time.Since(begun))
	state, out := w.state(), len(w.outbox())

	begun = time.Now()
	began, err := w.replayer.Begin(context.Background(), Request{Tenant: tenant, Saga: "order"})
	if err != nil {
		t.Fatal(err)
	}
	between := 0
	w.until("it shows progress", func() bool {
		r := w.report(began.ID)
		if p := r.Progress; p.EventsDone > 0 && p.EventsDone < p.EventsTotal && p.KeysDone < p.KeysTotal {
			between++
		}
		return r.State != StateRunning
	})
	took := time.Since(begun)
	r := w.ended(began.ID)
	if p := r.Progress; p.EventsTotal < 100_000 || p.EventsDone != p.EventsTotal || p.Changed != 0 || p.Unbuilt != 0 || p.NewWork != 0 || p.GoneWork != 0 || p.Sent != 0 {
		t.Errorf("%+v", p)
	}
	if between < 10 {
		t.Errorf("it was seen under way %d times", between)
	}
	w.sameState(state)
	if now := len(w.outbox()); now != out {
		t.Errorf("the outbox had %d rows, and has %d", out, now)
	}
	t.Logf("%d events of %d keys replayed in %s", r.Progress.EventsDone, r.Progress.KeysDone, took)
}
