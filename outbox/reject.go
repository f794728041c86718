package outbox

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/store"
)

// handleRejections reports rejections to the saga or to an operator. Each then counts as accepted,
// unless reporting it failed.
func (r *Relay) handleRejections(ctx context.Context, work []edda.Work, errs []error) []error {
	for i := range min(len(work), len(errs)) {
		var no *Rejection
		if errors.As(errs[i], &no) {
			errs[i] = r.reject(ctx, work[i], *no)
		}
	}
	return errs
}

func (r *Relay) reject(ctx context.Context, w edda.Work, no Rejection) error {
	r.o.Log.Warn("work was rejected", zap.String("work", w.ID), zap.String("kind", string(w.Kind)), zap.String("name", w.Name),
		zap.String("tenant", w.From.Tenant), zap.String("saga", w.From.Saga), zap.String("correlation", w.From.Correlation),
		zap.String("code", no.Code), zap.Int("status", no.Status))
	if answerable(w.Kind) && r.o.Rejecter != nil {
		if err := r.o.Rejecter.Reject(ctx, w, no); !errors.Is(err, edda.Permanent) {
			return err
		}
	}
	return r.db.Commit(ctx, store.Change{Dead: []edda.DeadLetter{deadWork(w, no)}})
}

// answerable reports whether a saga waits for the outcome of work of this kind.
func answerable(k edda.WorkKind) bool {
	switch k {
	case edda.WorkCommand, edda.WorkEffect, edda.WorkStart, edda.WorkEnd:
		return true
	}
	return false
}

// deadWork makes the dead letter of rejected work that no saga can be told about.
func deadWork(w edda.Work, no Rejection) edda.DeadLetter {
	return edda.DeadLetter{
		ID: "outbox." + w.ID, Reason: edda.DeadRejected, Key: w.From, Time: time.Now().UTC(), Error: no.Error(), Work: &w,
		Event: edda.Event{ID: w.ID, Tenant: w.From.Tenant, Type: w.Name, Payload: w.Payload, Time: w.Time,
			Correlation: w.Correlation, Causation: w.Causation, Trace: w.Trace, CommandID: w.CommandID},
	}
}
