package effects

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda"
	"edda/store"
)

const (
	// recoverRows are looked at in one piece: their claims fit one change set.
	recoverRows = 1024
	// endWithin bounds the last word of a worker that has stopped.
	endWithin = time.Second
)

// unclaimed knows what may be called without a claim in the ledger, and what was:
// the outbox row of such a command is all that a dead process leaves of its call,
// so whoever comes after takes every such row for a claim.
type unclaimed struct {
	mu        sync.Mutex // guards what follows
	recovered bool
	names     map[string]bool   // effects that the store knows to be called so
	begun     map[taskName]bool // commands that were begun so, and of which the ledger says nothing yet
}

// needless tells whether a claim before the call decides nothing: what came of a
// call that was cut off would not be asked, the command would be called again.
func (e *Effect) needless() bool { return e.repeatable() && e.check == nil }

// spared tells whether the command is begun without a claim; then it is noted.
func (w *Worker) spared(j *job) bool {
	if !j.c.Offered || j.entry.Found || !j.e.needless() {
		return false
	}
	w.unclaimed.mu.Lock()
	defer w.unclaimed.mu.Unlock()
	if !w.unclaimed.names[j.c.Effect] {
		return false
	}
	w.unclaimed.begun[nameOf(j.c)] = true
	return true
}

// known says that the ledger knows of the command.
func (u *unclaimed) known(n taskName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.begun, n)
}

// find is what the ledger says of a command; one that was begun here, and of which
// nothing could be written, counts as claimed.
func (w *Worker) find(ctx context.Context, c *Command) (Entry, error) {
	e, err := w.o.Ledger.Find(ctx, c.Tenant, c.ID)
	if err != nil || e.Found {
		return e, err
	}
	w.unclaimed.mu.Lock()
	defer w.unclaimed.mu.Unlock()
	if w.unclaimed.begun[nameOf(c)] {
		e.Found, e.Claim = true, w.claimOf(c.Tenant, c.ID, c.Effect)
	}
	return e, nil
}

// claimOf is a new claim of this worker.
func (w *Worker) claimOf(tenant, id, effect string) edda.Claim {
	return edda.Claim{Tenant: tenant, CommandID: id, Effect: effect, Owner: w.o.Owner, Claimed: time.Now().UTC()}
}

// Recover writes the claims that a process which died had spared: whatever of these
// effects is in the outbox may have been called. It must return before anything
// new is put there; Run waits for it, or does it itself.
func (w *Worker) Recover(ctx context.Context) error {
	u := &w.unclaimed
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.recovered {
		return nil
	}
	names, err := w.db.Unclaimed()
	if err == nil && len(names) > 0 {
		err = w.recover(ctx, names)
	}
	if err != nil {
		return fmt.Errorf("claim what was called without: %w", err)
	}
	u.recovered = true
	return nil
}

func (w *Worker) recover(ctx context.Context, names []string) error {
	for after := (ulid.ULID{}); ; {
		rows, err := w.db.Outbox(after, recoverRows)
		if err == nil && len(rows) == 0 {
			return w.db.Commit(ctx, store.Change{Unclaimed: &[]string{}})
		}
		if err != nil {
			return err
		}
		after = rows[len(rows)-1].ID
		claims, err := w.missing(rows, names)
		if err == nil && len(claims) > 0 {
			err = w.db.Commit(ctx, store.Change{Claims: claims})
		}
		if err != nil {
			return err
		}
	}
}

// missing are claims for the rows that have none.
func (w *Worker) missing(rows []store.Row, names []string) (out []edda.Claim, err error) {
	for _, row := range rows {
		r := row.Work
		if r.Kind != edda.WorkEffect || !slices.Contains(names, r.Name) {
			continue
		}
		_, found, err := w.db.Claim(r.From.Tenant, r.ID)
		if err != nil {
			return nil, err
		}
		if !found {
			out = append(out, w.claimOf(r.From.Tenant, r.ID, r.Name))
		}
	}
	return out, nil
}

// spare has the store know which effects are called without a claim. Until it does,
// and where it cannot be written, every claim is.
func (w *Worker) spare(ctx context.Context) {
	if w.o.Applier == nil || !w.own {
		return
	}
	u, all := &w.unclaimed, []string(nil)
	for _, e := range w.Effects() {
		if e.needless() {
			all = append(all, e.Name())
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	known := len(u.names)
	for _, name := range all {
		if !u.names[name] {
			known++
		}
	}
	if known == len(u.names) {
		return
	}
	for name := range u.names {
		if !slices.Contains(all, name) {
			all = append(all, name) // one that is gone may have calls under way
		}
	}
	if err := w.db.Commit(ctx, store.Change{Unclaimed: &all}); err != nil {
		w.o.Log.Warn("claims are written before each call", zap.Error(err))
		return
	}
	for _, name := range all {
		u.names[name] = true
	}
}

// endSparing says, once nothing is called any more, that the ledger knows of all
// that was.
func (w *Worker) endSparing() {
	u := &w.unclaimed
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.names) == 0 || len(u.begun) > 0 {
		return // there is nothing to say, or the next run finds out
	}
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	if err := w.db.Commit(ctx, store.Change{Unclaimed: &[]string{}}); err != nil {
		w.o.Log.Warn("commands that were not called count as claimed at the next start", zap.Error(err))
	}
}
