package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"edda"
	"edda/saga"
	"edda/store"
)

// inboxSize bounds the messages that wait for the loop: one from each of the engine's
// goroutines and a few from callers. When the inbox is full, a caller waits.
const inboxSize = 16

// Both errors are permanent: a retry cannot succeed.
var (
	// ErrStopped is returned by calls after Run has returned.
	ErrStopped = edda.Classify(edda.Permanent, "engine: stopped")
	// ErrDraining is returned for due rows, schedules, exchanges and results while the engine drains.
	ErrDraining = edda.Classify(edda.Permanent, "engine: draining")
)

// Sagas decide what an input does to an instance, as [saga.Set] does. Its methods are pure
// and are called concurrently.
type Sagas interface {
	Route(ev edda.Event) []saga.Target
	Apply(cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition)
	Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition)
	// Unheard tells whether an event that has no target may have a misspelt type, and the most
	// similar trigger, if any.
	Unheard(ev edda.Event) (near string, suspicious bool)
}

// Options of an engine. The zero value works.
type Options struct {
	Log *zap.Logger
	// Registry is where the engine registers its metrics. When nil, nobody sees them.
	Registry prometheus.Registerer
	// Observe gets the transitions of each input once they are durable, in commit order. The
	// loop calls it; it must not block.
	Observe func([]edda.Transition)
	// Destinations are those of the outbox. While one of them has MaxOutbox rows, the source
	// holds new events in their streams. Results are still read, because they make room. A saga
	// with as many rows at a destination as are free there, for one tenant, falls behind the
	// streams. It catches up when it has room again. All other sagas go on.
	Destinations []DestinationKinds
	// MaxOutbox is the number of rows at which a destination is full; [DefaultMaxOutbox] when zero.
	MaxOutbox int
	// MaxParked bounds the parked events of one tenant. Beyond it an event that would park
	// becomes a dead letter. [DefaultMaxParked] when zero.
	MaxParked int
	CatchUp   CatchUpOptions
	// Shard has the keys of the store. The engine leaves the others to the stores of other shards.
	Shard edda.Shard
	// UnheardLevel is the level of the log line about a type of events that no saga hears.
	UnheardLevel zapcore.Level
	// Lanes is the number of lanes of a batch. When zero it is GOMAXPROCS, and less for a
	// batch of few inputs.
	Lanes int

	room room // the outbox's, except in tests
}

func (o *Options) validate() {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Observe == nil {
		o.Observe = func([]edda.Transition) {}
	}
	if o.MaxOutbox <= 0 {
		o.MaxOutbox = DefaultMaxOutbox
	}
	if o.MaxParked <= 0 {
		o.MaxParked = DefaultMaxParked
	}
}

// Engine is a saga worker. Its methods may be called concurrently.
type Engine struct {
	source  Source
	db      records
	sagas   Sagas // only the loop reads and swaps it
	opts    Options
	log     *zap.Logger
	metrics *metrics
	outbox  room
	waiters *waiters
	status  *status

	inbox   chan func(*loop)
	results *results
	unheard unheard
	halt    chan struct{} // closed by the first Drain: the catch-up readers end
	halting sync.Once
	stopped chan struct{} // closed when Run has returned
	// bounds are the times up to which timers of laggards may fire, for Waits; nil without laggards.
	bounds atomic.Pointer[map[SagaTenant]*time.Time]
}

// New makes an engine; nothing happens before Run. The store's Run must not return before
// the engine's.
func New(source Source, db *store.DB, sagas Sagas, o Options) *Engine {
	return newEngine(source, stored{db}, sagas, o)
}

func newEngine(source Source, db records, sagas Sagas, o Options) *Engine {
	o.validate()
	m, st := newMetrics(o.Registry), newStatus()
	o.Registry.MustRegister(lagCollector{st})
	if o.room == nil {
		o.room = newOutboxRoom(db, o.Destinations, o.MaxOutbox)
	}
	return &Engine{
		outbox: o.room,
		source: source, db: db, sagas: sagas, opts: o, log: o.Log, metrics: m,
		waiters: newWaiters(m.waiters),
		status:  st,
		inbox:   make(chan func(*loop), inboxSize),
		results: newResults(),
		unheard: unheard{types: map[string]*Unheard{}},
		halt:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
}

// Run works until ctx ends, waits for the commits in flight, and returns nil. It returns an
// error only when it cannot read its positions. It is called once.
func (e *Engine) Run(ctx context.Context) error {
	defer close(e.stopped)
	positions, err := e.db.Checkpoints()
	if err != nil {
		return fmt.Errorf("read the positions: %w", err)
	}
	behind, err := e.db.Positions()
	if err != nil {
		return fmt.Errorf("read the sagas' own positions: %w", err)
	}
	e.status.setPositions(positions)
	g, ctx := errgroup.WithContext(ctx)
	v := newLoop(e, positions)
	v.addLaggards(behind)
	g.Go(func() error { return v.endPoller.run(ctx) })
	for range maxReaders {
		g.Go(func() error { return reader{e}.run(ctx) })
	}
	g.Go(func() error { return v.run(ctx) })
	return g.Wait()
}

// post sends a message to the loop, which calls act.
func (e *Engine) post(ctx context.Context, act func(*loop)) error {
	select {
	case e.inbox <- act:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.stopped:
		return ErrStopped
	}
}

// ask sends a message to the loop and waits for its report.
func (e *Engine) ask(ctx context.Context, act func(*loop, report)) error {
	done := make(report, 1)
	if err := e.post(ctx, func(v *loop) { act(v, done) }); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.stopped:
		return done.orStopped()
	}
}

// report carries one answer of the loop to a caller. Its capacity is one, so that the loop
// never blocks.
type report chan error

// orStopped returns the answer that came before the engine stopped, else ErrStopped.
func (r report) orStopped() error {
	select {
	case err := <-r:
		return err
	default:
		return ErrStopped
	}
}

// Swap replaces the sagas between two batches, and returns once it has. Behind are the
// positions of new sagas that begin behind the streams. The store must have them already.
func (e *Engine) Swap(ctx context.Context, sagas Sagas, behind ...store.SagaPosition) error {
	return e.ask(ctx, func(v *loop, done report) {
		v.sagas = sagas
		v.addLaggards(behind)
		v.rejudge()
		done <- nil
	})
}

// Ping returns once the loop has answered, which proves that it is not stuck. It does not
// wait for batches or commits.
func (e *Engine) Ping(ctx context.Context) error {
	return e.ask(ctx, func(_ *loop, done report) { done <- nil })
}

// Drain stops the intake and returns when every input that was read is committed. From then
// on due rows are refused with ErrDraining. A second call waits likewise.
func (e *Engine) Drain(ctx context.Context) error {
	e.halting.Do(func() { close(e.halt) })
	return e.ask(ctx, func(v *loop, done report) { v.drain(done) })
}

// Healthy is nil while commits succeed, else the error of the last one.
func (e *Engine) Healthy() error { return e.status.health() }

// Info describes the engine's positions and state.
func (e *Engine) Info() Info { return e.status.info() }

// records is what the engine needs of the store, with the store's promises. Tests inject
// failures and delays with it.
type records interface {
	submitter() submitter
	Outboxed(kinds ...edda.WorkKind) int
	Owners(least int, kinds ...edda.WorkKind) []store.Owner
	View() (*store.View, error)
	Waiting(commandID string) (edda.Work, bool)
	Checkpoints() ([]edda.Checkpoint, error)
	Positions() ([]store.SagaPosition, error)
	DeadLetter(id string) (edda.DeadLetter, bool, error)
	Parked(tenant string) int
}

// submitter submits changes. Each builds on those before it: once one has failed, all later
// ones fail.
type submitter interface {
	SubmitWithin(ctx context.Context, c store.Change, within time.Duration, done func(error)) error
}

// stored makes records of a store.
type stored struct{ *store.DB }

func (s stored) submitter() submitter { return s.Pipeline() }
