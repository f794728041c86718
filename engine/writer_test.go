package engine

import (
	"context"
	"errors"
	"testing"

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

func (r *refusing) Submit(_ context.Context, _ store.Change, done func(error)) error {
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
