package effects

import (
	"context"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store"
)

// Ledger remembers who may call a command and what came of it. What a method
// wrote is durable when it returns. Its methods may be called concurrently.
type Ledger interface {
	// Find says what is known of a command.
	Find(ctx context.Context, tenant, commandID string) (Entry, error)
	// Await returns a held entry anew once its holder cannot be at work on it
	// any more: it is done, or its lease has run out, and then it is not Held and
	// what came of it is unknown. It ends soon after ctx does.
	Await(ctx context.Context, e Entry) (Entry, error)
	// Claim makes e.Claim this worker's, over what Find or Await gave. It is
	// ErrTaken where that has changed since: never are two of one command live.
	Claim(ctx context.Context, e Entry) (Entry, error)
	// Renew gives a claim of this worker's another lease, counted from before
	// the call; ErrTaken where another worker has it.
	Renew(ctx context.Context, e Entry) (Entry, error)
	// Finish stores e.Claim, which has its result; ErrTaken where another worker
	// has it. An entry that was not found is created.
	Finish(ctx context.Context, e Entry) error
	// Release ends the lease of a claim that has no result, so that the next worker
	// need not wait for it. Unless e.Claim is Paused, what came of it is unknown.
	Release(ctx context.Context, e Entry) error
	// Lease is how long a claim is live without being renewed; 0 is for ever.
	Lease() time.Duration
	// Since is from when on the ledger knows of every call, as it is once Since is called:
	// what was sent before may have been called and forgotten. Zero: it has lost nothing.
	Since(ctx context.Context) (time.Time, error)
}

// ErrTaken says that an entry of the ledger is no longer what it was.
var ErrTaken = errors.New("another worker has the claim")

// Entry is a command in the ledger.
type Entry struct {
	Claim edda.Claim
	Found bool
	// Held says that another worker may be at work on it.
	Held     bool
	Revision uint64 // the ledger's own mark
}

// claims is what the local ledger needs of the store; *store.DB is it.
type claims interface {
	Claim(tenant, commandID string) (edda.Claim, bool, error)
	Outbox(after ulid.ULID, limit int) ([]store.Row, error)
	Unclaimed() ([]string, error)
	Commit(ctx context.Context, c store.Change) error
}

// local is the ledger in the store of the only process that takes these commands. A claim
// of an earlier process is not held any more, and a command has one task.
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
