package engine

import (
	"context"
	"time"

	"edda"
	"edda/store"
)

// records is what the engine needs of the store, under the store's promises;
// tests put failures and pauses in between.
type records interface {
	line() submitter
	Outboxed(kinds ...edda.WorkKind) int
	Owners(least int, kinds ...edda.WorkKind) []store.Owner
	View() (*store.View, error)
	Waiting(commandID string) (edda.Work, bool)
	Checkpoints() ([]edda.Checkpoint, error)
	Positions() ([]store.SagaPosition, error)
	DeadLetter(id string) (edda.DeadLetter, bool, error)
	Parked(tenant string) int
}

// submitter takes changes of which each builds on those before; once one has failed,
// all later ones fail.
type submitter interface {
	SubmitWithin(ctx context.Context, c store.Change, within time.Duration, done func(error)) error
}

// stored makes records of the store.
type stored struct{ *store.DB }

func (s stored) line() submitter { return s.Pipeline() }
