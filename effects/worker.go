package effects

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"edda/internal/backoff"
	"edda/store"
)

// The bounds of the worker.
const (
	// defaultConcurrency is how many commands of one effect are called at once.
	defaultConcurrency = 64
	// defaultGrace is how long calls may go on after ctx has ended: well below
	// the 30 s that a container is given to stop.
	defaultGrace = 15 * time.Second
	// fetchWait is how long one Fetch waits for the first command.
	fetchWait = 5 * time.Second
	// fetchAgain is the wait after a Fetch that failed.
	fetchAgain = time.Second
	// againAfter is the redelivery delay of a command that could not begin or whose result
	// could not be published.
	againAfter = 5 * time.Second
	// ledgerAgain is the wait between attempts to write a result that must not be lost.
	ledgerAgain = time.Second
	// fenceAgain is the wait between attempts to pass a fence that is shut.
	fenceAgain = time.Second
	// maxHeld fetched commands and as many offers of one effect are held at most. It shows
	// the commands of many keys where some wait for their own limits.
	maxHeld = 1024
	// shedRoom more are fetched when maxHeld are held and keys wait for their limits; as
	// many are shed.
	shedRoom = 64
	// DefaultHeldBytes is the default of Options.HeldBytes.
	DefaultHeldBytes = 64 << 20
	// largeCommand is the memory reserved for a command that is not fetched yet: the largest
	// that a saga emits, as a message and decoded.
	largeCommand = 1 << 20
	// DefaultRetention is how long claims are kept: as long as commands are.
	DefaultRetention = 7 * 24 * time.Hour
	// heldForEach commands of one effect are fetched for each that may be called at once, as a rule.
	heldForEach = 2
	// maxCopies messages of one command are settled together.
	maxCopies = 8
)

// Options of a worker. Source, Publisher and Providers are required.
type Options struct {
	Source    Source
	Publisher Publisher
	Providers map[string]Provider // by their word in a manifest
	Secrets   Secrets
	// AwaitSecrets takes effects whose secrets are missing: their commands wait
	// until they are there. Without it such effects are refused.
	AwaitSecrets bool
	// Ledger is shared with other workers for the same commands; the store when
	// nil, where this is the only one.
	Ledger Ledger
	// Applier takes the results of commands that were offered; nil where none are.
	Applier Applier
	// Fence, where set, is passed before each call: an error says that this process may not
	// act now, or not any more. It must not wait for long.
	Fence func(context.Context) error
	// Retention is how long claims are kept: package retention drops older ones
	// from the store's ledger, a shared one sees to it by itself.
	Retention time.Duration
	// Concurrency is how many commands of one effect are called at once.
	Concurrency int
	// HeldBytes is how much the commands of one effect that are held may take in
	// memory, about; no more are fetched until some have ended.
	HeldBytes int
	// Owner names this run of this process in the ledger; made up when empty.
	Owner string
	// Grace is how long calls may go on after ctx has ended.
	Grace   time.Duration
	Log     *zap.Logger
	Metrics prometheus.Registerer
	// Jitter gives a number in [0, 1) that spreads retries.
	Jitter func() float64
	Tracer trace.Tracer
}

func (o *Options) validate() error {
	if o.Source == nil || o.Publisher == nil {
		return errors.New("effects: a worker needs a source and a publisher")
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.Owner == "" {
		o.Owner = ulid.Make().String()
	}
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.HeldBytes <= 0 {
		o.HeldBytes = DefaultHeldBytes
	}
	if o.Retention <= 0 {
		o.Retention = DefaultRetention
	}
	if o.Tracer == nil {
		o.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	return nil
}

// Worker takes commands and calls providers.
type Worker struct {
	db       claims
	o        Options
	metrics  *metrics
	breakers *breakers
	own      bool // the ledger is the store's
	tooNew   warned
	elided   elision

	mu        sync.Mutex // guards below
	effects   map[string]*Effect
	limiters  map[string]*limiter
	consumers map[string]*consumer // that take offers
	changed   chan struct{}        // capacity 1: effects were replaced
}

// New makes a worker of a set of effects; nothing starts before Run.
func New(db *store.DB, o Options, effects ...*Effect) (*Worker, error) {
	return newWorker(db, o, effects...)
}

func newWorker(db claims, o Options, effects ...*Effect) (*Worker, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	w := &Worker{db: db, o: o, own: o.Ledger == nil, limiters: map[string]*limiter{}, consumers: map[string]*consumer{}, changed: make(chan struct{}, 1)}
	if w.own {
		w.o.Ledger = local{db}
	}
	w.elided.effects, w.elided.commands = map[string]bool{}, map[taskName]bool{}
	var err error
	if w.metrics, err = newMetrics(o.Metrics); err != nil {
		return nil, err
	}
	states := &breakerStates{w: w, shut: map[string]bool{}}
	w.breakers = newBreakers(states.changed)
	return w, w.Replace(effects...)
}

// Replace changes the set of effects, all or none: commands that begin after it
// use the new manifests. An effect that is gone finishes what it has begun. It
// may be called from anywhere, also while Run runs.
func (w *Worker) Replace(effects ...*Effect) error {
	set, err := w.check(effects)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.effects = set
	for name, in := range w.limiters {
		if e := set[name]; e != nil {
			in.configure(e.limit, w.breakerOf(e))
		}
	}
	w.mu.Unlock()
	wake(w.changed)
	return nil
}

// check tells, before anything is called, what an effect lacks here.
func (w *Worker) check(effects []*Effect) (map[string]*Effect, error) {
	set, errs := map[string]*Effect{}, []error(nil)
	for _, e := range effects {
		if set[e.Name()] != nil {
			errs = append(errs, fmt.Errorf("effect %s is given twice", e.Name()))
		}
		for _, name := range e.providers() {
			if w.o.Providers[name] == nil {
				errs = append(errs, fmt.Errorf("effect %s: no provider %s", e.Name(), name))
			}
		}
		if _, err := w.o.Secrets.all(e.secrets); err != nil && !w.o.AwaitSecrets {
			errs = append(errs, fmt.Errorf("effect %s: %w", e.Name(), err))
		} else if err != nil {
			w.o.Log.Warn("commands of an effect will wait for its secret", zap.String("effect", e.Name()), zap.Error(err))
		}
		set[e.Name()] = e
	}
	for _, p := range CheckBreakers(effects) {
		errs = append(errs, p)
	}
	return set, errors.Join(errs...)
}

// Effects lists the current set, by name.
func (w *Worker) Effects() []*Effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*Effect, 0, len(w.effects))
	for _, e := range w.effects {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *Effect) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

func (w *Worker) effect(name string) *Effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects[name]
}

// breakerOf is the breaker that an effect names, shared with all that do.
func (w *Worker) breakerOf(e *Effect) *breaker {
	if e.breaker == nil {
		return nil
	}
	return w.breakers.get(*e.breaker)
}

// limiter of an effect is made at first need and outlives its consumers.
func (w *Worker) limiter(name string) *limiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.limiters[name]; l != nil {
		return l
	}
	o := limiterOptions{slots: w.o.Concurrency, observe: func(reason string, d time.Duration) { w.metrics.waited(name, reason, d) }}
	if e := w.effects[name]; e != nil {
		o.limit, o.breaker = e.limit, w.breakerOf(e)
	}
	l := newLimiter(o)
	w.limiters[name] = l
	return l
}

// Offer hands a command over that the stream need not carry, to the consumer of its
// effect. It is false where the effect has no consumer here, or that has no room. It does
// not block and may be called concurrently.
func (w *Worker) Offer(d Delivery) bool {
	w.mu.Lock()
	c := w.consumers[d.Command().Effect]
	w.mu.Unlock()
	if c == nil {
		return false
	}
	taken := c.accept(d)
	if !taken {
		c.relieve()
	}
	return taken
}

// Serves tells whether commands of the effect are worked on here, while Run runs.
func (w *Worker) Serves(effect string) bool { return w.effect(effect) != nil }

// register lets Offer find a consumer.
func (w *Worker) register(c *consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.consumers[c.name] = c
}

func (w *Worker) unregister(c *consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.consumers, c.name)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run works until ctx ends; then it takes no more, and returns when the calls
// under way have ended, or were cut off after Options.Grace. The store's
// committer, source and publisher must outlive it.
func (w *Worker) Run(ctx context.Context) error {
	s := supervisor{w: w, consumers: map[string]context.CancelFunc{}, ended: map[string]chan struct{}{}}
	for err := w.Recover(ctx); err != nil && ctx.Err() == nil; err = w.Recover(ctx) {
		w.o.Log.Error("no command is called yet, trying again", zap.Error(err))
		_ = backoff.Wait(ctx, ledgerAgain)
	}
	for ctx.Err() == nil {
		w.listElidable(ctx)
		s.reconcile(ctx)
		select {
		case <-ctx.Done():
		case <-w.changed:
		}
	}
	s.stop()
	w.unlistElidable()
	return nil
}

// supervisor starts and stops one consumer for each effect. Run's goroutine owns it.
type supervisor struct {
	w         *Worker
	consumers map[string]context.CancelFunc
	all       sync.WaitGroup
	ended     map[string]chan struct{} // closed when the latest consumer of a name has ended
}

// reconcile makes the consumers those of the current effects.
func (s *supervisor) reconcile(ctx context.Context) {
	wanted := map[string]bool{}
	for _, e := range s.w.Effects() {
		wanted[e.Name()] = true
		if s.consumers[e.Name()] == nil {
			s.start(ctx, e.Name())
		}
	}
	for name, cancel := range s.consumers {
		if !wanted[name] {
			cancel()
			delete(s.consumers, name)
		}
	}
}

// start runs a consumer, once an older one of that name has ended: Fetch is never
// called twice at once for one effect.
func (s *supervisor) start(ctx context.Context, name string) {
	ctx, cancel := context.WithCancel(ctx)
	s.consumers[name] = cancel
	before, ended := s.ended[name], make(chan struct{})
	s.ended[name] = ended
	s.all.Go(func() {
		defer close(ended)
		defer cancel()
		if before != nil {
			<-before
		}
		c := consumer{w: s.w, name: name, limiter: s.w.limiter(name), tasks: map[taskName]*task{}}
		c.run(ctx)
	})
}

func (s *supervisor) stop() {
	for _, cancel := range s.consumers {
		cancel()
	}
	s.all.Wait()
}
