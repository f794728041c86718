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

	"edda"
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
	Providers map[string]Provider // by their words in a manifest
	Secrets   Secrets
	// AwaitSecrets accepts effects with missing secrets. Their commands wait until the secrets are
	// set. Otherwise such effects are refused.
	AwaitSecrets bool
	// Ledger is shared with other workers for the same commands. nil uses the store, if this is
	// the only worker.
	Ledger Ledger
	// Shard has the keys whose commands the ledger knows.
	Shard edda.Shard
	// Applier takes the results of offered commands; nil if none are offered.
	Applier Applier
	// Fence is called before each call, unless it is nil. An error says that this process may not
	// act now. It must not wait long.
	Fence func(context.Context) error
	// Retention is how long claims are kept. Package retention deletes older ones from the store's
	// ledger; a shared ledger does so itself.
	Retention time.Duration
	// Concurrency bounds the calls of one effect at once.
	Concurrency int
	// HeldBytes bounds the memory of one effect's held commands, about. At the bound no more are
	// fetched.
	HeldBytes int
	// Owner names this run of this process in the ledger; random when empty.
	Owner string
	// Grace is how long calls may continue after ctx has ended.
	Grace   time.Duration
	Log     *zap.Logger
	Metrics prometheus.Registerer
	// Jitter returns a number in [0, 1) that spreads retries.
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
	consumers map[string]*consumer // those that accept offers
	changed   chan struct{}        // capacity 1: effects were replaced
}

// New makes a worker for a set of effects. Nothing starts before Run.
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
	states := &breakerStates{metrics: w.metrics, log: w.o.Log, shut: map[string]bool{}}
	w.breakers = newBreakers(states.changed)
	return w, w.Replace(effects...)
}

// Replace replaces the set of effects, all or none. Commands that begin later use the new
// manifests. A removed effect finishes the commands that have begun. It may be called concurrently,
// also while Run runs.
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

// check reports what the effects need and the worker lacks.
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

// Effects lists the current set by name.
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

// breakerOf returns the breaker that an effect names.
func (w *Worker) breakerOf(e *Effect) *breaker {
	if e.breaker == nil {
		return nil
	}
	return w.breakers.get(*e.breaker)
}

// limiter returns the limiter of an effect, which outlives the effect's consumers.
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

// Offer passes a command that did not come through the stream to the consumer of its effect. It
// returns false if the effect has no consumer here, or the consumer has no room. It does not block
// and may be called concurrently.
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

// Serves reports whether the worker takes commands of the effect while Run runs.
func (w *Worker) Serves(effect string) bool { return w.effect(effect) != nil }

// register makes a consumer accept offers.
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

// Run works until ctx ends. Then it takes no more commands, and returns when all calls have ended
// or were cut off after Options.Grace. The store's committer, the source and the publisher must
// outlive it.
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

// reconcile starts and stops consumers for the current effects.
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

// start runs a consumer after an older one of that name has ended, because Fetch must not be called
// twice at once for one effect.
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
