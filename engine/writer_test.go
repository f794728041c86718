package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"edda"
	"edda/store"
)

// refusing is a line that refuses its first change.
type refusing struct {
	records
	lines, submits int
	err            error
}

func (r *refusing) line() line { r.lines++; return r }

func (r *refusing) SubmitWithin(_ context.Context, _ store.Change, within time.Duration, done func(error)) error {
	r.submits++
	if r.submits == 1 {
		return r.err
	}
	done(nil)
	return nil
}

func TestNothingIsSubmittedBehindARefusedSet(t *testing.T) {
	refused := edda.Classify(edda.Poison, "a key is too long")
	db := &refusing{err: refused}
	w := newWriter(&Engine{db: db, metrics: newMetrics(nil)})
	for n := range uint64(2) {
		w.submit(&set{n: n, retry: 1})
	}
	w.submit(&set{n: 2, retry: 2})
	got := w.take()
	if len(got) != 3 || db.submits != 2 || db.lines != 2 {
		t.Fatalf("%d reports, %d submits, %d lines", len(got), db.submits, db.lines)
	}
	if got[0].behind || !errors.Is(got[0].err, refused) || !got[1].behind || got[1].err == nil || got[2].err != nil {
		t.Errorf("reports: %+v", got)
	}
}

// Nobody is woken to write what stands alone; what comes in while that is written is
// evaluated meanwhile.
func TestWhatStandsAloneIsWrittenAtOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		v := newEvaluator(newEngine(w.streams, w.gate, counter{}, Options{}), nil) // whose writer does not run
		v.tidied = time.Now()
		give := func(ids ...string) {
			for i, id := range ids {
				ev := event(id, "add", id)
				ev.Stream, ev.Seq, ev.Time = "A", uint64(i+1), time.Now().UTC()
				v.enqueue(newArrival(ev, Fetched{}))
			}
			v.step()
		}
		give("e1")
		if w.gate.count() != 1 || len(v.writer.queue) != 0 {
			t.Errorf("%d were submitted, %d wait for the writer", w.gate.count(), len(v.writer.queue))
		}
		give("e2") // behind one that is under way
		if w.gate.count() != 1 || len(v.writer.queue) != 1 {
			t.Errorf("%d were submitted, %d wait for the writer", w.gate.count(), len(v.writer.queue))
		}
		v.writer.write(<-v.writer.queue)
		settle()
		v.hear()
		give("e3", "e4", "e5", "e6", "e7")
		if w.gate.count() != 2 || len(v.writer.queue) != 1 {
			t.Errorf("%d were submitted, %d wait for the writer", w.gate.count(), len(v.writer.queue))
		}
	})
}

// Positions that wait for a commit are no batch under way; but what comes behind them does
// not overtake them on their way to the store, or they would move back there.
func TestNothingOvertakesPositionsThatWait(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		v := newEvaluator(newEngine(w.streams, w.gate, counter{}, Options{}), nil) // whose writer runs late
		v.tidied = time.Now()
		seq := uint64(0)
		give := func(typ string, n int) {
			for range n {
				seq++
				ev := event("e", typ, "1")
				ev.Stream, ev.Seq, ev.Time = "A", seq, time.Now().UTC()
				v.enqueue(newArrival(ev, Fetched{}))
			}
			v.step()
		}
		give("drop", maxLone+1)
		give("add", 1)
		go func() { _ = v.writer.run() }()
		if err := v.finish(); err != nil {
			t.Fatal(err)
		}
		positions, err := w.db.Checkpoints()
		if err != nil || len(positions) != 1 || positions[0].Seq != seq || v.durable["A"].Seq != seq {
			t.Errorf("stored %v, %v; durable %d; want %d", positions, err, v.durable["A"].Seq, seq)
		}
	})
}
