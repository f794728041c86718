package effects

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda"
	"edda/store"
)

const (
	// recoverRows of the outbox are read at once: their claims fit one change.
	recoverRows = 1024
	// endWithin bounds the last commit of a worker that has stopped.
	endWithin = time.Second
)

// elision tracks claims that are not written before a call. The outbox row of such a
// command serves as its claim: after a crash, Recover claims every row of the effects that
// the store lists.
type elision struct {
	mu        sync.Mutex // guards below
	recovered bool
	effects   map[string]bool   // listed in the store
	commands  map[taskName]bool // called without a claim, and not in the ledger yet
}

// claimElidable reports whether a claim before a call decides nothing: a call of unknown
// outcome is made again without a check.
func (e *Effect) claimElidable() bool { return e.repeatable() && e.check == nil }

// elideClaim reports whether a command is called without a claim, and records it.
func (w *Worker) elideClaim(j *job) bool {
	if !j.c.Offered || j.entry.Found || !j.e.claimElidable() {
		return false
	}
	w.elided.mu.Lock()
	defer w.elided.mu.Unlock()
	if !w.elided.effects[j.c.Effect] {
		return false
	}
	w.elided.commands[nameOf(j.c)] = true
	return true
}

// inLedger records that the ledger has the command.
func (el *elision) inLedger(n taskName) {
	el.mu.Lock()
	defer el.mu.Unlock()
	delete(el.commands, n)
}

// find reads the entry of a command. A command whose claim was elided in this run, and that
// is not in the ledger yet, counts as claimed.
func (w *Worker) find(ctx context.Context, c *Command) (Entry, error) {
	e, err := w.o.Ledger.Find(ctx, c.Tenant, c.ID)
	if err != nil || e.Found {
		return e, err
	}
	w.elided.mu.Lock()
	defer w.elided.mu.Unlock()
	if w.elided.commands[nameOf(c)] {
		e.Found, e.Claim = true, w.newClaim(c.Tenant, c.ID, c.Effect)
	}
	return e, nil
}

// newClaim is a claim of this worker from now on.
func (w *Worker) newClaim(tenant, id, effect string) edda.Claim {
	return edda.Claim{Tenant: tenant, CommandID: id, Effect: effect, Owner: w.o.Owner, Claimed: time.Now().UTC()}
}

// Recover writes the claims that a crashed process elided: every command of the listed
// effects in the outbox may have been called. It must return before new commands are
// committed. Run calls it where nobody has.
func (w *Worker) Recover(ctx context.Context) error {
	el := &w.elided
	el.mu.Lock()
	defer el.mu.Unlock()
	if el.recovered {
		return nil
	}
	names, err := w.db.Unclaimed()
	if err == nil && len(names) > 0 {
		err = w.claimOutbox(ctx, names)
	}
	if err != nil {
		return fmt.Errorf("claim what was called without: %w", err)
	}
	el.recovered = true
	return nil
}

// claimOutbox claims the commands of the named effects that have no claim, and then takes
// the names out of the store.
func (w *Worker) claimOutbox(ctx context.Context, names []string) error {
	for after := (ulid.ULID{}); ; {
		rows, err := w.db.Outbox(after, recoverRows)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return w.db.Commit(ctx, store.Change{Unclaimed: &[]string{}})
		}
		after = rows[len(rows)-1].ID
		var claims []edda.Claim
		for _, row := range rows {
			r := row.Work
			if r.Kind != edda.WorkEffect || !slices.Contains(names, r.Name) {
				continue
			}
			_, found, err := w.db.Claim(r.From.Tenant, r.ID)
			if err != nil {
				return err
			}
			if !found {
				claims = append(claims, w.newClaim(r.From.Tenant, r.ID, r.Name))
			}
		}
		if len(claims) == 0 {
			continue
		}
		if err := w.db.Commit(ctx, store.Change{Claims: claims}); err != nil {
			return err
		}
	}
}

// listElidable has the store list the effects that are called without claims. Claims are
// elided only of effects on the list. An effect that is gone stays on it, because its
// calls may be under way.
func (w *Worker) listElidable(ctx context.Context) {
	if w.o.Applier == nil || !w.own {
		return
	}
	el := &w.elided
	el.mu.Lock()
	defer el.mu.Unlock()
	all := maps.Clone(el.effects)
	for _, e := range w.Effects() {
		if e.claimElidable() {
			all[e.Name()] = true
		}
	}
	if len(all) == len(el.effects) {
		return
	}
	names := slices.Sorted(maps.Keys(all))
	if err := w.db.Commit(ctx, store.Change{Unclaimed: &names}); err != nil {
		w.o.Log.Warn("claims are written before each call", zap.Error(err))
		return
	}
	el.effects = all
}

// unlistElidable empties the list once no call is under way, unless the ledger lacks a
// command: then the next run claims it.
func (w *Worker) unlistElidable() {
	el := &w.elided
	el.mu.Lock()
	defer el.mu.Unlock()
	if len(el.effects) == 0 || len(el.commands) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	if err := w.db.Commit(ctx, store.Change{Unclaimed: &[]string{}}); err != nil {
		w.o.Log.Warn("commands that were not called count as claimed at the next start", zap.Error(err))
	}
}
