// Package replay builds the instances of a saga again from their history and the streams, and
// replaces the stored ones with the result.
//
// It promises:
//
//   - Live processing continues, also of the replayed saga: a replay exchanges an instance in one
//     change set, on top of every input it has taken by then, or not at all.
//   - A replay exchanges nothing before it has built everything: one that cannot be done changes
//     nothing.
//   - A replay is a row of the store and continues after a crash. Instances that it has exchanged
//     come out the same again.
//   - The same versions on the same history give the same state, to the byte.
//   - No work goes out unless the request asks for it. Work that has gone out by the records goes
//     out again only when the request asks for all of it.
//
// It refuses to remove an instance, and to build one without the input that started it.
package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
	"edda/saga"
	"edda/store"
)

const (
	// maxWaiting bounds the replays that wait for the running one.
	maxWaiting = 16
	// maxKept bounds the replays kept in the store and in memory.
	maxKept = 100
	// failedAgain is the wait before a retry, after the store or the streams have failed.
	failedAgain = time.Second
	// maxFailures bounds the consecutive retries of one replay.
	maxFailures = 20
)

// Exchanger replaces one cell outside the streams' order. The engine implements it, see
// [edda/engine.Engine.Exchange].
type Exchanger interface {
	Exchange(ctx context.Context, k edda.Key, change func(edda.Cell) (edda.Cell, []edda.Transition)) error
}

// Options of a replayer. The zero value works.
type Options struct {
	Log *zap.Logger
	// Registry registers the metrics; with nil they are not exported.
	Registry prometheus.Registerer
	// Now dates plans and marks; time.Now when nil. No saga sees it.
	Now func() time.Time
	// Shard has the keys of the store: events of others start no instance here.
	Shard edda.Shard
	// Room reports whether the outbox takes more work; nil means always. A replay that sends work
	// waits for it.
	Room func() bool
	// Reached, if set, gets the point that a replay has reached. Crash tests use it.
	Reached func(point string)
}

func (o *Options) validate() {
	if o.Room == nil {
		o.Room = func() bool { return true }
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Reached == nil {
		o.Reached = func(string) {}
	}
}

// Replayer runs one replay after the other. Its methods may be called concurrently.
type Replayer struct {
	db       *store.DB
	engine   Exchanger
	streams  Streams
	programs Programs
	options  Options
	log      *zap.Logger
	metrics  *metrics
	wake     chan struct{} // capacity 1

	beginning sync.Mutex // held by Begin from its look at the ids until the replay has its own

	mu      sync.Mutex // guards the fields below
	reports []*Report  // oldest first
	loaded  bool
}

// New makes a replayer. It does nothing before Run.
func New(db *store.DB, engine Exchanger, streams Streams, programs Programs, o Options) *Replayer {
	o.validate()
	return &Replayer{
		db: db, engine: engine, streams: streams, programs: programs, options: o, log: o.Log,
		metrics: newMetrics(o.Registry), wake: make(chan struct{}, 1),
	}
}

// Run resumes the replays that a restart interrupted, then runs those that Begin records, until
// ctx ends.
func (r *Replayer) Run(ctx context.Context) error {
	if err := r.load(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		report := r.next()
		if report != nil {
			r.replay(ctx, report)
			continue
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// load reads the stored replays, once.
func (r *Replayer) load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded {
		return nil
	}
	rows, err := r.db.Replays()
	if err != nil {
		return fmt.Errorf("read the replays: %w", err)
	}
	for _, row := range rows {
		report := &Report{Replay: row}
		if len(row.Summary) > 0 {
			if err := json.Unmarshal(row.Summary, &report.Progress); err != nil {
				return fmt.Errorf("read the replay %s: %w", row.ID, err)
			}
		}
		if row.State == StateRunning {
			r.log.Info("a replay that was interrupted goes on", fields(report)...)
		}
		r.reports = append(r.reports, report)
	}
	// The rows are in the order of their ids, which a caller may choose.
	slices.SortStableFunc(r.reports, func(a, b *Report) int { return a.Begun.Compare(b.Begun) })
	r.loaded = true
	return nil
}

// next returns the oldest replay that is to run; nil when there is none.
func (r *Replayer) next() *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, report := range r.reports {
		if report.State == StateRunning {
			return report
		}
	}
	return nil
}

// Begin validates and records a replay and returns its report; Run executes it. A dry run is not
// recorded, because it changes nothing: it ends with the process. If the request has the id of a replay
// that has begun, Begin returns that one, so a call can be repeated.
func (r *Replayer) Begin(ctx context.Context, q Request) (Report, error) {
	if err := q.validate(); err != nil {
		return Report{}, err
	}
	if err := r.load(); err != nil {
		return Report{}, err
	}
	r.beginning.Lock()
	defer r.beginning.Unlock()
	if begun, ok, err := r.begun(q); ok || err != nil {
		return begun, err
	}
	if err := r.checkStream(q.Stream); err != nil {
		return Report{}, err
	}
	pin, err := r.resolve(q)
	if err != nil {
		return Report{}, err
	}
	report := &Report{Replay: q.plan(pin, r.options.Now()), DryRun: q.DryRun, Progress: Summary{Phase: PhaseWaiting}}
	if err := r.room(); err != nil {
		return Report{}, err
	}
	if err := r.db.Commit(ctx, r.beginChange(report)); err != nil {
		return Report{}, fmt.Errorf("record the replay: %w", err)
	}
	// gofail: var replayBegun struct{}
	out := *report
	r.mu.Lock()
	r.reports = append(r.reports, report)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return out, nil
}

// begun returns the report of the replay with the same id, if there is one. It fails if that one is another replay.
func (r *Replayer) begun(q Request) (out Report, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.reports, func(other *Report) bool { return other.ID == q.ID })
	if i < 0 {
		return Report{}, false, nil
	}
	if out = r.reports[i].copy(); !out.of(q) {
		return Report{}, false, edda.Classify(edda.Permanent, "the id %s is that of another replay: leave it out", q.ID)
	}
	return out, true, nil
}

// of reports whether a replay is that of a request. The newest version may be another one by now.
func (r *Report) of(q Request) bool {
	pin := saga.Pin{Version: q.Version, Hash: r.Hash}
	if q.Newest {
		pin.Version = r.Version
	}
	is, asked := r.Replay, q.plan(pin, r.Begun)
	for _, p := range []*store.Replay{&is, &asked} { // what differs between two calls
		p.By, p.Reason, p.Ended, p.State, p.Error, p.Summary = "", "", time.Time{}, "", "", nil
	}
	return r.DryRun == q.DryRun && reflect.DeepEqual(is, asked)
}

// checkStream refuses a stream that was never read. No instance took an input from it, so a
// mistyped name would give a replay that finds nothing to do.
func (r *Replayer) checkStream(stream string) error {
	if stream == "" || stream == aggregateEvents {
		return nil
	}
	positions, err := r.db.Checkpoints()
	if err != nil {
		return fmt.Errorf("read the positions: %w", err)
	}
	names := []string{}
	for _, p := range positions {
		if p.Stream == stream {
			return nil
		}
		names = append(names, p.Stream)
	}
	return edda.Classify(edda.Permanent, "no stream %s was read here: want one of %s", stream, strings.Join(names, ", "))
}

// resolve returns the pin of the version to apply. It fails if the saga or the version is unknown.
func (r *Replayer) resolve(q Request) (saga.Pin, error) {
	v, err := newVersions(r.programs, q.Saga)
	switch {
	case err != nil:
		return saga.Pin{}, err
	case q.Newest:
		return v.newest(), nil
	case q.Version == 0:
		return saga.Pin{}, nil
	}
	pin, err := v.find(saga.Pin{Version: q.Version})
	if err == nil && !q.DryRun && !v.loaded(pin) {
		err = edda.Classify(edda.Permanent, "version %d of saga %s is kept and does not run here: load its manifest, or only compare with a dry run", q.Version, q.Saga)
	}
	return pin, err
}

func (r *Replayer) room() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, report := range r.reports {
		if report.State == StateRunning {
			n++
		}
	}
	if n > maxWaiting {
		return edda.Classify(edda.Temporary, "%d replays wait already: come again when some are done", n)
	}
	return nil
}

// beginChange makes the change that records a replay: the audit row, and the plan unless it is a
// dry run. It drops the oldest finished replays beyond maxKept.
func (r *Replayer) beginChange(report *Report) store.Change {
	detail := report.describe()
	c := store.Change{Audits: []store.Audit{{
		Time: report.Begun, By: report.By, Verb: edda.VerbReplay, Key: edda.Key{Tenant: report.Tenant, Saga: report.Saga, Correlation: report.Correlation},
		Reason: report.Reason, Detail: detail,
	}}}
	if !report.DryRun {
		c.Replays = []store.Replay{report.Replay}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.reports) >= maxKept && r.reports[0].State != StateRunning {
		if !r.reports[0].DryRun {
			c.DropReplays = append(c.DropReplays, r.reports[0].ID)
		}
		r.reports = r.reports[1:]
	}
	return c
}

// describe returns the replay in words, for the audit.
func (r *Report) describe() string {
	from := "the beginning"
	switch {
	case r.FromSeq > 0:
		from = fmt.Sprintf("%s %d", r.Stream, r.FromSeq)
	case !r.FromTime.IsZero():
		from = edda.FormatTime(r.FromTime)
	}
	out := fmt.Sprintf("%s: from %s, emit %s", r.ID, from, r.Emit)
	if r.Version > 0 {
		out += fmt.Sprintf(", with version %d", r.Version)
	}
	if r.DryRun {
		out += ", dry run"
	}
	return out
}

// Reports returns copies of the remembered replays, newest first.
func (r *Replayer) Reports() ([]Report, error) {
	if err := r.load(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Report
	for _, report := range slices.Backward(r.reports) {
		out = append(out, report.copy())
	}
	return out, nil
}

func (r *Report) copy() Report {
	c := *r
	s := &c.Progress
	s.Differences, s.Work, s.Notes = slices.Clone(s.Differences), slices.Clone(s.Work), slices.Clone(s.Notes)
	return c
}

// note changes the progress of a report under the lock, because others read it.
func (r *Replayer) note(report *Report, change func(*Summary)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&report.Progress)
}

// replay executes one replay, retries it when the store or the streams fail, and records how it
// ended. When the process stops it records nothing, so that the next start resumes it.
func (r *Replayer) replay(ctx context.Context, report *Report) {
	begun := time.Now()
	r.log.Info("replay begins", fields(report)...)
	r.metrics.running.Set(1)
	defer r.metrics.running.Set(0)
	var err error
	for n := 0; ; n++ {
		err = r.attempt(ctx, report)
		if err == nil || ctx.Err() != nil || errors.Is(err, errStopping) || errors.Is(err, edda.Permanent) || n >= maxFailures {
			break
		}
		r.log.Warn("replay failed, trying again", append(fields(report), zap.Error(err))...)
		_ = backoff.Wait(ctx, failedAgain)
	}
	if ctx.Err() != nil || errors.Is(err, errStopping) {
		<-ctx.Done() // the engine stops before ctx ends
		return
	}
	r.finish(ctx, report, err, time.Since(begun))
}

// finish records the end of a replay, then shows it in the report.
func (r *Replayer) finish(ctx context.Context, report *Report, cause error, took time.Duration) {
	done := r.final(report, cause)
	// gofail: var replayDone struct{}
	if err := r.record(ctx, done); err != nil {
		r.log.Error("the end of a replay is not recorded: it is done again after a restart, and finds nothing to change", append(fields(report), zap.Error(err))...)
	}
	// gofail: var replayRecorded struct{}
	r.mu.Lock()
	*report = done
	r.mu.Unlock()
	s := done.Progress
	r.metrics.done(&done, took)
	r.log.Info("replay ends", append(fields(report), zap.String("state", done.State), zap.Duration("took", took), zap.NamedError("cause", cause),
		zap.Int("events", s.EventsDone), zap.Int("same", s.Same), zap.Int("changed", s.Changed), zap.Int("exchanged", s.Exchanged),
		zap.Int("new_work", s.NewWork), zap.Int("sent", s.Sent))...)
}

// final returns the report of a replay that has ended.
func (r *Replayer) final(report *Report, cause error) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := report.copy()
	done.Ended, done.State, done.Progress.Phase = r.options.Now().UTC(), StateDone, ""
	if cause != nil {
		done.State, done.Error = StateFailed, cause.Error()
	}
	return done
}

// record stores the end of a replay, unless it is a dry run.
func (r *Replayer) record(ctx context.Context, done Report) error {
	if done.DryRun {
		return nil
	}
	row := done.Replay
	var err error
	if row.Summary, err = done.Progress.stored(); err != nil {
		return err
	}
	return r.db.Commit(ctx, store.Change{Replays: []store.Replay{row}})
}

func fields(r *Report) []zap.Field {
	return []zap.Field{
		zap.String("replay", r.ID), zap.String("tenant", r.Tenant), zap.String("saga", r.Saga), zap.String("emit", r.Emit),
		zap.Bool("dry_run", r.DryRun), zap.String("by", r.By),
	}
}

// metrics have no label but the final state, because replays are few and GET /admin/replay lists
// them.
type metrics struct {
	running prometheus.Gauge
	ends    *prometheus.CounterVec
	events  prometheus.Counter
	sent    prometheus.Counter
	seconds prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		running: f.NewGauge(prometheus.GaugeOpts{Name: "edda_replay_running", Help: "1 while a replay runs."}),
		ends: f.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_replay_ends_total", Help: "Replays that ended, by how.",
		}, []string{"state"}),
		events:  f.NewCounter(prometheus.CounterOpts{Name: "edda_replay_events_total", Help: "Events that replays applied again."}),
		sent:    f.NewCounter(prometheus.CounterOpts{Name: "edda_replay_sent_total", Help: "Work that replays sent."}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{Name: "edda_replay_seconds", Help: "How long replays took.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10)}),
	}
}

func (m *metrics) done(r *Report, took time.Duration) {
	m.ends.WithLabelValues(r.State).Inc()
	m.seconds.Observe(took.Seconds())
}
