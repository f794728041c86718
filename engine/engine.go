package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda"
	"edda/saga"
	"edda/store"
)

// inboxSize is how many messages may wait for the loop: one of each of the
// engine's goroutines and a few callers. Those who find it full wait.
const inboxSize = 16

// Both are of the class Permanent: there is no use in asking again.
var (
	// ErrStopped is returned to those who call after Run has returned.
	ErrStopped = edda.Classify(edda.Permanent, "engine: stopped")
	// ErrDraining is returned for what is due while the engine drains.
	ErrDraining = edda.Classify(edda.Permanent, "engine: draining")
)

// Sagas decide; [saga.Set] is the one there is. Its methods are pure and are
// called concurrently.
type Sagas interface {
	Route(ev edda.Event) []saga.Target
	Apply(cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition)
	Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition)
}

// Options of an engine. The zero value works.
type Options struct {
	Log *zap.Logger
	// Registry takes the engine's metrics; nil keeps them to itself.
	Registry prometheus.Registerer
	// Observe is told of the transitions of each input once they are durable, in commit
	// order, from the loop. It must not block.
	Observe func([]edda.Transition)
	// Destinations are those of the outbox. While one of them has MaxOutbox rows, the source is
	// told to leave new events in their streams; what answers work that went out still comes, or
	// there would never be room again. A saga that has as much work for a destination as is free
	// there, for one tenant, falls behind the streams until it has room; all others go on.
	Destinations []DestinationKinds
	// MaxOutbox is how many rows of one destination make it full; [DefaultMaxOutbox] when zero.
	MaxOutbox int
	// MaxParked is how many events of one tenant may wait for their instance
	// before another becomes a dead letter; [DefaultMaxParked] when zero.
	MaxParked int
	CatchUp   CatchUpOptions
	// Lanes is how many keys are evaluated at once. When zero they are GOMAXPROCS, and
	// fewer where there are few inputs.
	Lanes int

	room room // that of the outbox; tests have others
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
	sagas   Sagas // the first; the loop owns the current one
	opts    Options
	log     *zap.Logger
	metrics *metrics
	outbox  room
	waiters *waiters
	status  *status

	inbox   chan func(*loop)
	results *results
	halt    chan struct{} // closed once: catch nothing up any more
	halting sync.Once
	stopped chan struct{} // closed when Run has returned
	// waits are until when what is due may fire, of the pairs that are behind; nil: there are none.
	waits atomic.Pointer[map[SagaTenant]*time.Time]
}

// New makes an engine; nothing happens before Run. The store's Run must go on
// until the engine's has returned.
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
		halt:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
}

// Run works until ctx ends, finishes what is being committed, and returns nil.
// It returns an error only where it cannot begin. It is called once.
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
	e.status.restore(positions)
	g, ctx := errgroup.WithContext(ctx)
	v := newLoop(e, positions)
	v.found(behind)
	g.Go(func() error { return v.endPoller.run(ctx) })
	for range maxReaders {
		g.Go(func() error { return reader{e}.run(ctx) })
	}
	g.Go(func() error { return v.run(ctx) })
	return g.Wait()
}

// post hands a message to the loop.
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

// ask hands a message to the loop and waits until it reports.
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

// report takes one answer to a caller; it has room for it, so that giving it
// never blocks.
type report chan error

// orStopped is the answer that came before the engine stopped, if there is one.
func (r report) orStopped() error {
	select {
	case err := <-r:
		return err
	default:
		return ErrStopped
	}
}

// Swap takes another set into use between two batches and returns once it is. Behind are
// the positions, in the store already, of sagas in it that begin behind the streams.
func (e *Engine) Swap(ctx context.Context, sagas Sagas, behind ...store.SagaPosition) error {
	return e.ask(ctx, func(v *loop, done report) {
		v.sagas = sagas
		v.found(behind)
		v.rejudge()
		done <- nil
	})
}

// Ping returns once the loop has taken notice: that it is not stuck. It
// does not wait for what the loop waits for.
func (e *Engine) Ping(ctx context.Context) error {
	return e.ask(ctx, func(_ *loop, done report) { done <- nil })
}

// Drain takes no more events, finishes those that were taken in, and returns when
// all of it is committed. What is due is refused from then on. A second call
// waits likewise.
func (e *Engine) Drain(ctx context.Context) error {
	e.halting.Do(func() { close(e.halt) })
	return e.ask(ctx, func(v *loop, done report) { v.drain(done) })
}

// Healthy is nil while commits succeed, else why the last one did not.
func (e *Engine) Healthy() error { return e.status.health() }

// Info says where the engine stands.
func (e *Engine) Info() Info { return e.status.info() }
