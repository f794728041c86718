// Package retention removes what has passed its retention time: finished instances, history,
// claims, dead letters and audits.
//
// It works in the background, in portions that the store bounds. After each portion it pauses
// longer than its commit took, so that other commits hardly wait for it.
//
// It refuses to trust a clock that jumps. The time by which it counts age follows the clock by at
// most [MaxLeap] in one run of the loop. The loop runs once an hour by the monotonic clock. So an
// hour with a wrong date costs at most a day of retention, and young rows stay.
package retention

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
	"edda/store"
)

const (
	// runEvery is the interval of the loop. It is short enough for claims that are kept for hours,
	// and it bounds how fast a wrong clock can age rows.
	runEvery = time.Hour
	// MaxLeap bounds how far the counted time advances in one run of the loop.
	MaxLeap = 24 * time.Hour
	// MaxTrust is how far an operator's clock may be ahead of the last run without a confirmation.
	// A store that was closed for a month is nothing unusual.
	MaxTrust = 31 * 24 * time.Hour
	// After a portion the sweeper pauses for pauseFactor times its commit, within the two bounds.
	// So it uses a quarter of the writer at most.
	pauseFactor = 3
	minPause    = 5 * time.Millisecond
	maxPause    = time.Second
)

// Settings are the retention times; zero means for ever.
type Settings struct {
	// Instances returns the time for finished instances of a saga and status; nil keeps all.
	Instances                           func(saga string, status edda.Status) time.Duration
	History, Claims, DeadLetters, Audit time.Duration
	// Manifests is the time for the texts of versions that no instance needs.
	Manifests time.Duration
	// Loaded reports whether instances run on a manifest; nil where that is not known.
	Loaded func(edda.Manifest) bool
}

// Options of a sweeper. The zero value works.
type Options struct {
	Log     *zap.Logger
	Metrics prometheus.Registerer
}

// Sweeper removes expired rows. Its methods may be called concurrently.
type Sweeper struct {
	db       *store.DB
	settings func() (Settings, error)
	log      *zap.Logger
	now      func() time.Time // for tests
	metrics  *metrics
	running  sync.Mutex // held by one collection at a time
	warned   bool       // that the clock is ahead was logged; owned by Run
}

// New makes a sweeper. It calls settings at the start of each run.
func New(db *store.DB, settings func() (Settings, error), o Options) (*Sweeper, error) {
	k := &Sweeper{db: db, settings: settings, log: cmp.Or(o.Log, zap.NewNop()), now: time.Now}
	var err error
	k.metrics, err = newMetrics(o.Metrics)
	return k, err
}

// Run removes expired rows once an hour, until ctx ends.
func (k *Sweeper) Run(ctx context.Context) error {
	k.initClock(ctx)
	tick := time.NewTicker(runEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := k.runOnce(ctx); err != nil && ctx.Err() == nil {
				k.log.Warn("what has expired stays for now", zap.Error(err))
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// initClock records the current time, if none is recorded. Later runs can then detect a jump.
func (k *Sweeper) initClock(ctx context.Context) {
	at, kept, err := k.db.RetentionClock()
	if err == nil && !kept {
		err = k.db.Commit(ctx, store.Change{Remove: store.Removal{Clock: at}})
	}
	if err != nil && ctx.Err() == nil {
		k.log.Warn("the clock of retention is not kept yet", zap.Error(err))
	}
}

func (k *Sweeper) runOnce(ctx context.Context) error {
	at, err := k.clock()
	if err != nil {
		return err
	}
	r, err := k.collect(ctx, at, false, nil)
	if r.Rows() > 0 {
		k.log.Info("removed what has expired", append(r.fields(), zap.Duration("took", r.Took))...)
	}
	if err == nil {
		k.metrics.ran.SetToCurrentTime()
	}
	return err
}

// clock is the time by which the loop counts age: the clock's, but at most [MaxLeap] after the
// last run. If the clock went back, the counted time follows at once.
func (k *Sweeper) clock() (time.Time, error) {
	before, _, err := k.db.RetentionClock()
	if err != nil {
		return before, fmt.Errorf("read the clock of retention: %w", err)
	}
	now := k.now()
	at := now
	if most := before.Add(MaxLeap); now.After(most) {
		at = most
	}
	if ahead := now.Sub(at); ahead > 0 != k.warned {
		if k.warned = ahead > 0; k.warned {
			k.log.Warn("the clock is far ahead of the last clean-up: age is counted a day more each hour until it has caught up; is the date right?",
				zap.Time("clock", now), zap.Time("counted", at))
		}
	}
	return at, nil
}

// Request says what an operator asks for.
type Request struct {
	// DryRun counts without removing.
	DryRun bool
	// TrustClock accepts a clock that is more than MaxTrust ahead of the last run.
	TrustClock bool
	// Tell is called with the progress after each portion; it may be nil.
	Tell func(Report)
	// Audit is written at the end with its detail filled in; nil writes none.
	Audit *store.Audit
}

// Collect removes now what has expired by the clock, and reports what it removed.
func (k *Sweeper) Collect(ctx context.Context, q Request) (Report, error) {
	before, _, err := k.db.RetentionClock()
	if err != nil {
		return Report{}, fmt.Errorf("read the clock of retention: %w", err)
	}
	now := k.now()
	if ahead := now.Sub(before); ahead > MaxTrust && !q.TrustClock {
		return Report{}, edda.Classify(edda.Permanent, "the clock says %s, %d days after the last clean-up or commit: if the date is right, say so with --trust-clock",
			now.UTC().Format(time.RFC3339), int(ahead.Hours()/24))
	}
	r, err := k.collect(ctx, now, q.DryRun, q.Tell)
	if err != nil || q.Audit == nil || q.DryRun {
		return r, err
	}
	act := *q.Audit
	act.Time, act.Detail = now, r.String()
	return r, k.db.Commit(ctx, store.Change{Audits: []store.Audit{act}})
}

func (k *Sweeper) collect(ctx context.Context, at time.Time, dry bool, tell func(Report)) (Report, error) {
	k.running.Lock()
	defer k.running.Unlock()
	began := time.Now()
	r := Report{DryRun: dry, Clock: at.UTC()}
	settings, err := k.settings()
	if err != nil {
		return r, err
	}
	cut := cutoffs(settings, at)
	if !dry {
		if err := k.db.Commit(ctx, store.Change{Remove: store.Removal{Clock: at}}); err != nil {
			return r, err
		}
	}
	// gofail: var retentionClocked struct{}
	for _, kind := range store.Kinds() {
		r.Kinds = append(r.Kinds, Tally{Kind: kind})
		err := k.sweep(ctx, k.db.Sweep(kind, cut), &r, tell)
		r.Took = time.Since(began)
		if err != nil {
			return r, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return r, nil
}

// sweep removes the expired rows of one kind, portion by portion.
func (k *Sweeper) sweep(ctx context.Context, s *store.Sweep, r *Report, tell func(Report)) error {
	t := &r.Kinds[len(r.Kinds)-1]
	for !s.Done() {
		p, err := s.Next(ctx)
		if err != nil {
			return err
		}
		if (p.Rows > 0 || len(p.Idle) > 0) && !r.DryRun {
			if err := k.remove(ctx, p); err != nil {
				return err
			}
			k.metrics.removed(t.Kind, p.Rows, p.Bytes)
		}
		t.Rows += p.Rows
		t.Bytes += p.Bytes
		if tell != nil {
			tell(*r)
		}
	}
	return nil
}

// remove commits one portion, then pauses.
func (k *Sweeper) remove(ctx context.Context, p store.Portion) error {
	began := time.Now()
	// gofail: var retentionFound struct{}
	if err := k.db.Commit(ctx, store.Change{Remove: p.Removal}); err != nil {
		return err
	}
	// gofail: var retentionRemoved struct{}
	if backoff.Wait(ctx, min(max(pauseFactor*time.Since(began), minPause), maxPause)) != nil {
		return context.Cause(ctx)
	}
	return nil
}

func cutoffs(s Settings, at time.Time) store.Cutoffs {
	ago := func(d time.Duration) time.Time {
		if d <= 0 {
			return time.Time{}
		}
		return at.Add(-d)
	}
	c := store.Cutoffs{
		History: ago(s.History), Claims: ago(s.Claims), DeadLetters: ago(s.DeadLetters), Audits: ago(s.Audit),
		Manifests: ago(s.Manifests), Loaded: s.Loaded, Now: at,
	}
	if s.Instances != nil {
		c.Ended = func(saga string, status edda.Status) time.Time { return ago(s.Instances(saga, status)) }
	}
	return c
}
