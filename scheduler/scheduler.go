// Package scheduler turns time into inputs: it hands the engine the rows of the due index when
// they come due, and starts the instances that the sagas' schedules ask for.
//
// It promises that a row is handed over in due order and at its time, or a few milliseconds later
// when others came due just before it. A row is not handed over again before the engine has
// answered. A schedule starts each due time at most once, across restarts. The scheduler decides
// nothing about timers: the saga decides what is due in an instance, and the engine decides when
// it may fire.
package scheduler

import (
	"context"
	"errors"
	"fmt"
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

	mu      sync.Mutex // guards sagas and swaps
	sagas   Sagas
	swaps   int           // sets that there were, with the first
	swapped chan struct{} // capacity 1
}

// New makes a scheduler. It does nothing before Run.
func New(db Store, engine Engine, sagas Sagas, o Options) *Scheduler {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &Scheduler{db: db, engine: engine, sagas: sagas, log: o.Log, swaps: 1, swapped: make(chan struct{}, 1)}
}

// Swap replaces the set whose schedules the scheduler starts. The caller may have committed rows of new schedules before,
// which says since when they start. It may be called concurrently.
func (s *Scheduler) Swap(sagas Sagas) {
	s.mu.Lock()
	s.sagas, s.swaps = sagas, s.swaps+1
	s.mu.Unlock()
	select {
	case s.swapped <- struct{}{}:
	default:
	}
}

func (s *Scheduler) set() (sagas Sagas, swaps int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sagas, s.swaps
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

// page bounds the rows handed over at once: as many as the engine accepts. The engine makes
// several batches of them, and evaluates one while it commits the last.
const page = 4096

// lookPause is the least time from a look that found rows to the next. When timers come due all
// the time, each look costs a question to the streams' server, a batch and a commit. Timers that
// come due within the pause share them. The pause is longer than the engine's between two
// questions, so that a few timers need not wait for one.
const lookPause = 6 * time.Millisecond

// timers hands the rows of the due index to the engine.
type timers struct {
	*Scheduler
	nextLook time.Time // the earliest time of the next look
}

// passedPause lengthens the pause for each row that a look passed over because its saga is behind
// the streams. So looking takes a tenth of the time at most.
const passedPause = 5 * time.Microsecond

// runOnce hands over what is due, waits until the engine has fired it, and returns the time of the
// next row. It hands over nothing while it waits, so no row goes twice. Rows that come due
// meanwhile could not fire earlier, because the engine fires in due order.
func (t *timers) runOnce(ctx context.Context) (time.Time, error) {
	_ = backoff.Wait(ctx, min(time.Until(t.nextLook), slowTick))
	now := time.Now()
	rows, next, passed, err := t.db.DueBut(now, page, t.engine.Waits)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the due index: %w", err)
	}
	if passed > 0 {
		t.nextLook = now.Add(lookPause + time.Duration(passed)*passedPause)
	}
	if len(rows) > 0 {
		// gofail: var schedulerDue struct{}
		if err := t.engine.Wake(ctx, rows); err != nil {
			return time.Time{}, fmt.Errorf("wake what is due: %w", err)
		}
		// gofail: var schedulerFired struct{}
		if len(rows) < page && passed == 0 {
			t.nextLook = now.Add(lookPause)
		}
		return now, nil // there may be more
	}
	if next.IsZero() {
		return now.Add(slowTick), nil
	}
	return next, nil
}
