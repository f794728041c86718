package store

import (
	"context"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda"
)

var errUnbuilt = errors.New("store: not built yet")

// Options of a store. The zero value works.
type Options struct {
	Log *zap.Logger
	// Observe is told of every commit: change sets in it, bytes written, how long.
	Observe func(changes int, bytes int, took time.Duration)
}

// DB is an open store. Its methods may be called concurrently.
type DB struct{}

// Open opens or creates the store in a folder and checks its format.
func Open(dir string, o Options) (*DB, error) { return nil, errUnbuilt }

// Run is the committer: it groups what waits into one transaction, until ctx
// ends; then it commits what was submitted and returns. Nothing commits without it.
func (d *DB) Run(ctx context.Context) error { return errUnbuilt }

// Close closes the file; Run must have returned.
func (d *DB) Close() error { return errUnbuilt }

// ID is the store's own id, made when it was created.
func (d *DB) ID() string { return "" }

// Commit writes the change and returns when it is durable.
func (d *DB) Commit(ctx context.Context, c Change) error { return errUnbuilt }

// Submit queues the change behind those submitted before and returns; done is
// called once, from the committer's goroutine, when it is durable or failed. It
// blocks while the queue is full. Changes are committed in the order of submission.
func (d *DB) Submit(ctx context.Context, c Change, done func(error)) error { return errUnbuilt }

// View is a consistent snapshot; Close it soon.
type View struct{}

// View opens a snapshot of what is committed.
func (d *DB) View() (*View, error) { return nil, errUnbuilt }

// Close ends the snapshot.
func (v *View) Close() {}

// Cell loads the record of one key; one that does not exist has no instance and no entries.
func (v *View) Cell(k edda.Key) (edda.Cell, error) { return edda.Cell{}, errUnbuilt }

// Due lists up to limit rows due at or before until, earliest first, and the
// time of the first row after those (zero when there is none).
func (d *DB) Due(until time.Time, limit int) ([]Due, time.Time, error) {
	return nil, time.Time{}, errUnbuilt
}

// Outbox lists up to limit rows after a position, in commit order.
func (d *DB) Outbox(after ulid.ULID, limit int) ([]Row, error) { return nil, errUnbuilt }

// OutboxSize is how many rows wait, and the time of the oldest.
func (d *DB) OutboxSize() (int, time.Time) { return 0, time.Time{} }

// Committed is signalled (capacity 1, never closed) when a commit added outbox rows.
func (d *DB) Committed() <-chan struct{} { return nil }

// Armed is signalled (capacity 1) when a commit added due rows.
func (d *DB) Armed() <-chan struct{} { return nil }

// Waiting finds the effect command that still waits for its result, by id.
func (d *DB) Waiting(commandID string) (edda.Work, bool) { return edda.Work{}, false }

// Checkpoints lists the shared positions.
func (d *DB) Checkpoints() ([]edda.Checkpoint, error) { return nil, errUnbuilt }

// Positions lists the sagas' own positions.
func (d *DB) Positions() ([]Position, error) { return nil, errUnbuilt }

// Schedules lists how far every schedule has come.
func (d *DB) Schedules() ([]edda.Schedule, error) { return nil, errUnbuilt }

// Manifests lists the kept manifest texts.
func (d *DB) Manifests() ([]edda.Manifest, error) { return nil, errUnbuilt }

// Count says how many instances of one version of a saga stand in one status.
type Count struct {
	Tenant, Saga string
	Version      int
	Status       edda.Status
	N            int
}

// Counts is kept up to date by every commit; it costs no scan.
func (d *DB) Counts() []Count { return nil }

// Claim finds an entry of the effect ledger.
func (d *DB) Claim(commandID string) (edda.Claim, bool, error) {
	return edda.Claim{}, false, errUnbuilt
}

// Query selects instances. Empty fields select all.
type Query struct {
	Tenant, Saga string
	Status       edda.Status
	After        edda.Key // exclusive; the zero key starts
	Limit        int      // 100 when zero, at most 1000
}

// Instances lists instances in key order.
func (d *DB) Instances(q Query) ([]edda.Instance, error) { return nil, errUnbuilt }

// Record is one row of the history.
type Record struct {
	Key        edda.Key      `json:"key"`
	Commit     uint64        `json:"commit"`
	N          int           `json:"n"`
	Generation int           `json:"generation"`
	Version    int           `json:"version"`
	Revision   uint64        `json:"revision"`
	Event      edda.Event    `json:"event"`
	Fate       edda.Fate     `json:"fate"`
	Handlers   []string      `json:"handlers,omitempty"`
	Outputs    []edda.Output `json:"outputs,omitempty"`
	Status     edda.Status   `json:"status,omitempty"` // after
	Work       []string      `json:"work,omitempty"`   // ids of what went out
	// State is the instance's state after, where it changed.
	State []byte `json:"state,omitempty"`
}

// History lists the transitions of one key, newest first, at most limit.
func (d *DB) History(k edda.Key, limit int) ([]Record, error) { return nil, errUnbuilt }

// DeadLetters lists up to limit dead letters after an id, oldest first.
func (d *DB) DeadLetters(after string, limit int) ([]edda.DeadLetter, error) { return nil, errUnbuilt }

// DeadLetter finds one.
func (d *DB) DeadLetter(id string) (edda.DeadLetter, bool, error) {
	return edda.DeadLetter{}, false, errUnbuilt
}
