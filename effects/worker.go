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
	"go.uber.org/zap"

	"edda"
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
	// againAfter is when a command comes back that could not be begun or
	// whose result could not be published.
	againAfter = 5 * time.Second
	// ledgerAgain is the wait between attempts to write a result that must not be lost.
	ledgerAgain = time.Second
	// maxCopies of one command are remembered, to be acked together.
	maxCopies = 8
	// highShare high commands begin before one normal command, where both wait.
	highShare = 4
)

// ledger is what the worker needs of the store; *store.DB is it.
type ledger interface {
	Claim(tenant, commandID string) (edda.Claim, bool, error)
	Commit(ctx context.Context, c store.Change) error
}

// Options of a worker. Source, Publisher and Providers are required.
type Options struct {
	Source    Source
	Publisher Publisher
	Providers map[string]Provider // by their word in a manifest
	Secrets   Secrets
	// Concurrency is how many commands of one effect are called at once.
	Concurrency int
	// Owner names this run of this process in the ledger; made up when empty.
	Owner string
	// Grace is how long calls may go on after ctx has ended.
	Grace   time.Duration
	Log     *zap.Logger
	Metrics prometheus.Registerer
	// Jitter gives a number in [0, 1) that spreads retries.
	Jitter func() float64
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
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	return nil
}

// Worker takes commands and calls providers.
type Worker struct {
	db      ledger
	o       Options
	metrics *metrics

	mu      sync.Mutex // guards effects
	effects map[string]*Effect
	changed chan struct{} // capacity 1: effects were replaced
}

// New makes a worker of a set of effects; nothing starts before Run.
func New(db *store.DB, o Options, effects ...*Effect) (*Worker, error) {
	return newWorker(db, o, effects...)
}

func newWorker(db ledger, o Options, effects ...*Effect) (*Worker, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	w := &Worker{db: db, o: o, changed: make(chan struct{}, 1)}
	if err := w.Replace(effects...); err != nil {
		return nil, err
	}
	var err error
	w.metrics, err = newMetrics(o.Metrics)
	return w, err
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
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return nil
}

// check tells, before anything is called, what an effect lacks here.
func (w *Worker) check(effects []*Effect) (map[string]*Effect, error) {
	set, errs := map[string]*Effect{}, []error(nil)
	for _, e := range effects {
		if set[e.Name()] != nil {
			errs = append(errs, fmt.Errorf("effect %s is given twice", e.Name()))
		}
		if w.o.Providers[e.Provider()] == nil {
			errs = append(errs, fmt.Errorf("effect %s: no provider %s", e.Name(), e.Provider()))
		}
		if _, err := w.o.Secrets.all(e.secrets); err != nil {
			errs = append(errs, fmt.Errorf("effect %s: %w", e.Name(), err))
		}
		set[e.Name()] = e
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

// Run works until ctx ends; then it takes no more, and returns when the calls
// under way have ended, or were cut off after Options.Grace. The store's
// committer, source and publisher must outlive it.
func (w *Worker) Run(ctx context.Context) error {
	s := supervisor{w: w, lines: map[string]context.CancelFunc{}, ended: map[string]chan struct{}{}}
	for ctx.Err() == nil {
		s.adjust(ctx)
		select {
		case <-ctx.Done():
		case <-w.changed:
		}
	}
	s.stop()
	return nil
}

// supervisor starts and stops one line for each effect. Run's goroutine owns it.
type supervisor struct {
	w     *Worker
	lines map[string]context.CancelFunc
	all   sync.WaitGroup
	ended map[string]chan struct{} // closed when the latest line of a name has ended
}

// adjust makes the lines those of the current effects.
func (s *supervisor) adjust(ctx context.Context) {
	wanted := map[string]bool{}
	for _, e := range s.w.Effects() {
		wanted[e.Name()] = true
		if s.lines[e.Name()] == nil {
			s.start(ctx, e.Name())
		}
	}
	for name, cancel := range s.lines {
		if !wanted[name] {
			cancel()
			delete(s.lines, name)
		}
	}
}

// start runs a line, once an older one of that name has ended: Fetch is never
// called twice at once for one effect.
func (s *supervisor) start(ctx context.Context, name string) {
	ctx, cancel := context.WithCancel(ctx)
	s.lines[name] = cancel
	before, ended := s.ended[name], make(chan struct{})
	s.ended[name] = ended
	s.all.Go(func() {
		defer close(ended)
		defer cancel()
		if before != nil {
			<-before
		}
		newLine(s.w, name).run(ctx)
	})
}

func (s *supervisor) stop() {
	for _, cancel := range s.lines {
		cancel()
	}
	s.all.Wait()
}
