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
	// slowTick is the interval of both loops without a signal. It covers a lost signal and a clock
	// that was set.
	slowTick = time.Second

	// retryFirst and retryMost bound the wait before a failed look is repeated.
	retryFirst = 50 * time.Millisecond
	retryMost  = slowTick
)

// Store is the part of a [store.DB] that the scheduler uses, with the same promises.
type Store interface {
	// DueBut lists up to limit rows due at or before until, earliest first. It passes over rows
	// for which waits is true. It also returns the time of the first row after until, and how many
	// rows it passed over.
	DueBut(until time.Time, limit int, waits func(store.Due) bool) ([]store.Due, time.Time, int, error)
	// Armed receives a signal when a commit has added due rows.
	Armed() <-chan struct{}
	// Schedules lists the last handled due time of every schedule.
	Schedules() ([]edda.ScheduleState, error)
	// Commit returns when the change is durable.
	Commit(ctx context.Context, c store.Change) error
}

// Engine applies what is due. Its methods may be called concurrently and return when all changes
// are durable. A Permanent error says that the engine accepts no more.
type Engine interface {
	Wake(ctx context.Context, rows []store.Due) error
	// Waits reports whether a row must wait for events that were stored before its time.
	Waits(row store.Due) bool
	// Start applies the event and records the schedule in one change set.
	Start(ctx context.Context, ev edda.Event, s edda.ScheduleState) error
}

// Sagas knows the schedules; [saga.Set] implements it.
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

// New makes a scheduler. It does nothing before Run.
func New(db Store, engine Engine, sagas Sagas, o Options) *Scheduler {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &Scheduler{db: db, engine: engine, sagas: sagas, log: o.Log, swapped: make(chan struct{}, 1)}
}

// Swap replaces the set whose schedules the scheduler starts. It may be called concurrently.
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

// Run works until ctx ends or the engine accepts no more, and returns nil.
func (s *Scheduler) Run(ctx context.Context) error {
	t := &timers{Scheduler: s}
	c := &calendar{Scheduler: s, last: map[schedule]time.Time{}}
	var g errgroup.Group
	g.Go(func() error { s.loop(ctx, "timers", s.db.Armed(), t.runOnce); return nil })
	g.Go(func() error { s.loop(ctx, "schedules", s.swapped, c.runOnce); return nil })
	return g.Wait()
}

// loop calls once until ctx ends. The next call comes at the time that once returns, on a signal,
// or on the slow tick.
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

// sleep waits for d, the slow tick or a signal.
func sleep(ctx context.Context, d time.Duration, signal <-chan struct{}) {
	t := time.NewTimer(min(d, slowTick))
	defer t.Stop()
	select {
	case <-t.C:
	case <-signal:
	case <-ctx.Done():
	}
}
