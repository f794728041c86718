package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda"
	"edda/internal/backoff"
	"edda/saga"
	"edda/store"
)

const (
	// slowTick is how often both loops look by themselves, for a signal that
	// was lost and a clock that was set.
	slowTick = time.Second

	// What failed is tried again after these.
	retryFirst = 50 * time.Millisecond
	retryMost  = slowTick
)

// Store is what the scheduler needs of a [store.DB], under the same promises.
type Store interface {
	// DueBut lists up to limit rows due at or before until, earliest first, without
	// those that wait for something else, the time of the first row after those, and
	// how many it passed over.
	DueBut(until time.Time, limit int, waits func(store.Due) bool) ([]store.Due, time.Time, int, error)
	// Armed is signalled when a commit added due rows.
	Armed() <-chan struct{}
	// Schedules lists how far every schedule has come.
	Schedules() ([]edda.Schedule, error)
	// Commit returns when the change is durable.
	Commit(ctx context.Context, c store.Change) error
}

// Engine applies what is due. Its methods may be called concurrently and return
// when everything is durable. A Permanent error says that it takes no more.
type Engine interface {
	Wake(ctx context.Context, rows []store.Due) error
	// Waits tells whether a row waits for events that were stored before it.
	Waits(row store.Due) bool
	// Start applies the event and records the schedule in one change set.
	Start(ctx context.Context, ev edda.Event, s edda.Schedule) error
}

// Sagas knows the schedules; [saga.Set] is the one there is.
type Sagas interface {
	Schedules() []saga.ScheduleSpec
	NextSchedule(saga, name string, t time.Time) time.Time
	ScheduleEvent(saga, name, tenant string, due time.Time) edda.Event
}

// Options of a scheduler. The zero value works.
type Options struct {
	Log *zap.Logger
}

// Scheduler runs two loops: one over the due index, one over the schedules.
type Scheduler struct {
	db     Store
	engine Engine
	log    *zap.Logger

	mu      sync.Mutex // guards sagas
	sagas   Sagas
	swapped chan struct{} // capacity 1
}

// New makes a scheduler; nothing happens before Run.
func New(db Store, engine Engine, sagas Sagas, o Options) *Scheduler {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &Scheduler{db: db, engine: engine, sagas: sagas, log: o.Log, swapped: make(chan struct{}, 1)}
}

// Swap takes the schedules of another set into use.
func (s *Scheduler) Swap(sagas Sagas) {
	s.mu.Lock()
	s.sagas = sagas
	s.mu.Unlock()
	select {
	case s.swapped <- struct{}{}:
	default:
	}
}

func (s *Scheduler) set() Sagas {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sagas
}

// Run works until ctx ends, or the engine takes no more, and returns nil.
func (s *Scheduler) Run(ctx context.Context) error {
	t := &timers{Scheduler: s}
	c := &calendar{Scheduler: s, last: map[schedule]time.Time{}}
	var g errgroup.Group
	g.Go(func() error { s.loop(ctx, "timers", s.db.Armed(), t.runOnce); return nil })
	g.Go(func() error { s.loop(ctx, "schedules", s.swapped, c.runOnce); return nil })
	return g.Wait()
}

// loop calls once, which says when it wants to be called next, until ctx ends.
// It is called before that on a signal or the slow tick.
func (s *Scheduler) loop(ctx context.Context, name string, signal <-chan struct{}, once func(context.Context) (time.Time, error)) {
	pause := backoff.Exponential{First: retryFirst, Most: retryMost}
	for ctx.Err() == nil {
		next, err := once(ctx)
		switch {
		case err == nil:
			pause.Reset()
			sleep(ctx, time.Until(next), signal)
		case ctx.Err() != nil || errors.Is(err, edda.Permanent):
			return
		default:
			if !pause.Failing() {
				s.log.Warn("scheduler fails, trying again", zap.String("loop", name), zap.Error(err))
			}
			_ = backoff.Wait(ctx, pause.Next())
		}
	}
}

// sleep waits for d, or the slow tick, or a signal.
func sleep(ctx context.Context, d time.Duration, signal <-chan struct{}) {
	t := time.NewTimer(min(d, slowTick))
	defer t.Stop()
	select {
	case <-t.C:
	case <-signal:
	case <-ctx.Done():
	}
}
