package effects

import (
	"context"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store"
)

// Ledger records who may call a command, and its outcome. What a method wrote is durable when the
// method returns. Its methods may be called concurrently.
type Ledger interface {
	// Find reads the entry of a command.
	Find(ctx context.Context, tenant, commandID string) (Entry, error)
	// Await reads a held entry again once its holder has stopped working on it: it is done, or
	// its lease has run out. In the second case it is not Held, and its outcome is unknown. Await
	// returns soon after ctx ends.
	Await(ctx context.Context, e Entry) (Entry, error)
	// Claim writes e.Claim as this worker's, over the entry that Find or Await returned. The
	// error is ErrTaken if the entry has changed since: a command has one live claim at most.
	Claim(ctx context.Context, e Entry) (Entry, error)
	// Renew extends the lease of this worker's claim, counted from before the call. The error is
	// ErrTaken if another worker has the claim.
	Renew(ctx context.Context, e Entry) (Entry, error)
	// Finish stores e.Claim with its result. The error is ErrTaken if another worker has the
	// claim. It creates an entry that was not found.
	Finish(ctx context.Context, e Entry) error
	// Release ends the lease of a claim without a result, so that the next worker need not wait.
	// Unless e.Claim is Paused, its outcome is unknown.
	Release(ctx context.Context, e Entry) error
	// Lease is how long a claim is live without a renewal; 0 is forever.
	Lease() time.Duration
	// Since is the time from which the ledger knows every call, as of the call of Since. A command
	// that was sent earlier may have been called and forgotten. Zero: the ledger has lost nothing.
	Since(ctx context.Context) (time.Time, error)
}

// ErrTaken says that an entry of the ledger has changed.
var ErrTaken = errors.New("another worker has the claim")

// Entry is a command in the ledger.
type Entry struct {
	Claim edda.Claim
	Found bool
	// Held says that another worker may be working on it.
	Held     bool
	Revision uint64 // the ledger's version of the entry
}

// claims is the part of the store that the local ledger uses; *store.DB implements it.
type claims interface {
	Claim(tenant, commandID string) (edda.Claim, bool, error)
	Outbox(after ulid.ULID, limit int) ([]store.Row, error)
	Unclaimed() ([]string, error)
	Commit(ctx context.Context, c store.Change) error
}

// local is the ledger in the store of the only process that takes these commands. A claim of an
// earlier process is not held, and a command has one task.
type local struct{ db claims }

func (l local) Find(_ context.Context, tenant, commandID string) (Entry, error) {
	claim, found, err := l.db.Claim(tenant, commandID)
	return Entry{Claim: claim, Found: found}, err
}

func (l local) Await(_ context.Context, e Entry) (Entry, error) { return e, nil }

func (l local) Claim(ctx context.Context, e Entry) (Entry, error) {
	e.Found = true
	return e, l.db.Commit(ctx, store.Change{Claims: []edda.Claim{e.Claim}})
}

func (l local) Renew(_ context.Context, e Entry) (Entry, error) { return e, nil }

func (l local) Finish(ctx context.Context, e Entry) error {
	return l.db.Commit(ctx, store.Change{Claims: []edda.Claim{e.Claim}})
}

func (l local) Release(ctx context.Context, e Entry) error {
	return l.db.Commit(ctx, store.Change{Claims: []edda.Claim{e.Claim}})
}

func (l local) Lease() time.Duration { return 0 }

func (l local) Since(context.Context) (time.Time, error) { return time.Time{}, nil }
