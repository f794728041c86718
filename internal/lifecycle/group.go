// Package lifecycle starts the parts of a process and stops them in stages: intake,
// inputs in flight, the flush of the outbox, connections, the store, the HTTP server.
// The HTTP server stops last, because it reports the progress of the stop. Parts start
// in the opposite order.
//
// Every stage has a time limit. A panic in a part stops the process like an error, so
// that the other parts still stop in order.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Component is one long-running part of a process.
type Component struct {
	Name  string
	Stage Stage
	// Run works until ctx ends, finishes its current work and returns. If Run
	// returns earlier, with or without an error, the process stops.
	Run func(ctx context.Context) error
	// Ready may be nil. It returns when the part can be used. Parts of the stages
	// that start later wait for it. An error stops the process.
	Ready func(ctx context.Context) error
	// Finish may be nil. It is called while Run still works, before Run's ctx ends,
	// for example to flush. Its ctx ends with the stage's time limit.
	Finish func(ctx context.Context) error
	// Close may be nil. It is called after Run has returned.
	Close func() error
}

// Panic is the panic of a part as an error.
type Panic struct {
	Part  string
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("%s: panic: %v\n%s", p.Part, p.Value, p.Stack) }

// Options configure a group. The zero value works.
type Options struct {
	// Limit overrides the time limit of each stage.
	Limit func(Stage) time.Duration
	// Stopping is called once, before the first part is stopped. cause is nil if the
	// stop was asked for.
	Stopping func(cause error)
	// Abandon reports whether a stop for a cause leaves everything as it is: Finish
	// is not called. nil means never.
	Abandon func(cause error) bool
	// Stopped is called for every stopped part, in order.
	Stopped func(part Component, took time.Duration, err error)
}

// Group starts and stops the parts of one process.
type Group struct {
	options Options
	parts   []*running
	abandon bool       // no part finishes; set before the stages stop
	failed  chan error // first failure; later ones are dropped
	stop    chan struct{}
	once    sync.Once

	mu       sync.Mutex // guards progress
	progress Progress
}

// Progress is the progress of a stop.
type Progress struct {
	Draining bool     `json:"draining"`
	Stage    string   `json:"stage,omitempty"`   // being stopped now
	Stopped  []string `json:"stopped,omitempty"` // parts, in order
	Waiting  []string `json:"waiting,omitempty"` // running parts of this stage
}

type running struct {
	Component
	cancel context.CancelFunc
	done   chan struct{} // closed when Run has returned
	// err is the error of Run. cause is set if it stopped the process. Read both
	// only after done is closed.
	err   error
	cause bool
}

// New makes a group of parts; nothing starts before Run.
func New(o Options, parts ...Component) *Group {
	if o.Limit == nil {
		o.Limit = Stage.limit
	}
	if o.Stopping == nil {
		o.Stopping = func(error) {}
	}
	if o.Abandon == nil {
		o.Abandon = func(error) bool { return false }
	}
	if o.Stopped == nil {
		o.Stopped = func(Component, time.Duration, error) {}
	}
	g := &Group{options: o, failed: make(chan error, 1), stop: make(chan struct{})}
	for _, p := range parts {
		g.parts = append(g.parts, &running{Component: p})
	}
	return g
}

// Stop starts the staged stop; Run returns when it is complete. It is safe for
// concurrent use and may be called repeatedly.
func (g *Group) Stop() { g.once.Do(func() { close(g.stop) }) }

// Progress returns the progress of the stop.
func (g *Group) Progress() Progress {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.progress
	p.Stopped = append([]string(nil), p.Stopped...)
	p.Waiting = append([]string(nil), p.Waiting...)
	return p
}

// Run starts every part and waits until ctx ends, Stop is called or a part returns.
// Then it stops all parts in stages. It returns the errors, the cause first.
func (g *Group) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx) // parts end by stages, not all at once
	cause := g.start(ctx, base)
	if cause == nil {
		cause = g.wait(ctx)
	}
	g.options.Stopping(cause)
	g.abandon = g.options.Abandon(cause)
	errs := []error{cause}
	for s := Intake; s < stages; s++ {
		errs = append(errs, g.stopStage(base, s)...)
	}
	return errors.Join(errs...)
}

func (g *Group) start(ctx, base context.Context) error {
	for s := stages - 1; s >= Intake; s-- {
		for _, r := range g.in(s) {
			g.launch(base, r)
		}
		if err := g.ready(ctx, s); err != nil || g.stopping(ctx) {
			return err
		}
	}
	return nil
}

func (g *Group) stopping(ctx context.Context) bool {
	select {
	case <-g.stop:
		return true
	default:
		return ctx.Err() != nil
	}
}

func (g *Group) launch(base context.Context, r *running) {
	ctx, cancel := context.WithCancel(base)
	r.cancel, r.done = cancel, make(chan struct{})
	go func() {
		defer close(r.done)
		r.err = guarded(r.Name, func() error { return r.Run(ctx) })
		if ctx.Err() == nil {
			r.cause = g.fail(early(r))
		}
	}()
}

// early returns the error of a part whose Run returned before its ctx ended.
func early(r *running) error {
	if r.err != nil {
		return named(r.Name, r.err)
	}
	return fmt.Errorf("%s ended by itself", r.Name)
}

// fail records the failure and reports whether it is the first one: the cause.
func (g *Group) fail(err error) bool {
	select {
	case g.failed <- err:
		return true
	default:
		return false
	}
}

// ready waits until the parts of one stage are ready, or a stop begins.
func (g *Group) ready(ctx context.Context, s Stage) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, r := range g.in(s) {
		if r.Ready == nil {
			continue
		}
		answer := make(chan error, 1)
		go func() { answer <- guarded(r.Name, func() error { return r.Ready(asking) }) }()
		select {
		case err := <-answer:
			if err != nil && ctx.Err() == nil {
				return named(r.Name, err)
			}
		case err := <-g.failed:
			return err
		case <-ctx.Done():
		case <-g.stop:
			return nil
		}
	}
	return nil
}

func (g *Group) wait(ctx context.Context) error {
	select {
	case err := <-g.failed:
		return err
	case <-ctx.Done():
	case <-g.stop:
	}
	return nil
}

func (g *Group) stopStage(base context.Context, s Stage) []error {
	started := g.started(s)
	g.note(s, started)
	ctx, cancel := context.WithTimeout(base, g.options.Limit(s))
	defer cancel()
	errs := make([]error, len(started))
	var wg sync.WaitGroup
	for i, r := range started {
		wg.Go(func() { errs[i] = g.stopPart(ctx, r) })
	}
	wg.Wait()
	return errs
}

func (g *Group) stopPart(ctx context.Context, r *running) error {
	begin := time.Now()
	err := g.end(ctx, r)
	g.stopped(r, time.Since(begin), err)
	return err
}

// end calls Finish unless the stop abandons everything, cancels the part, waits for
// Run within the stage's limit and calls Close.
func (g *Group) end(ctx context.Context, r *running) error {
	var finish error
	if r.Finish != nil && !g.abandon && !ended(r) {
		finish = within(ctx, r.Name, func() error { return r.Finish(ctx) })
	}
	r.cancel()
	select {
	case <-r.done:
	case <-ctx.Done():
		return errors.Join(finish, fmt.Errorf("%s did not stop in time (%s)", r.Name, r.Stage))
	}
	var run, closing error
	if !r.cause && !errors.Is(r.err, context.Canceled) {
		run = named(r.Name, r.err)
	}
	if r.Close != nil {
		closing = within(ctx, r.Name, r.Close)
	}
	return errors.Join(finish, run, closing)
}

func ended(r *running) bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// within calls do. It returns when ctx ends, even if do still runs.
func within(ctx context.Context, name string, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- guarded(name, do) }()
	select {
	case err := <-done:
		return named(name, err)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", name, ctx.Err())
	}
}

// guarded turns a panic into an error that carries the stack.
func guarded(name string, do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{Part: name, Value: v, Stack: debug.Stack()}
		}
	}()
	return do()
}

func named(name string, err error) error {
	var p *Panic
	if err == nil || errors.As(err, &p) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

func (g *Group) in(s Stage) []*running {
	var out []*running
	for _, r := range g.parts {
		if r.Stage == s {
			out = append(out, r)
		}
	}
	return out
}

// started lists the parts of a stage that were launched.
func (g *Group) started(s Stage) []*running {
	var out []*running
	for _, r := range g.in(s) {
		if r.done != nil {
			out = append(out, r)
		}
	}
	return out
}

func (g *Group) note(s Stage, parts []*running) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.progress.Draining, g.progress.Stage = true, s.String()
	g.progress.Waiting = nil
	for _, r := range parts {
		g.progress.Waiting = append(g.progress.Waiting, r.Name)
	}
}

func (g *Group) stopped(r *running, took time.Duration, err error) {
	g.options.Stopped(r.Component, took, err)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.progress.Stopped = append(g.progress.Stopped, r.Name)
	for i, name := range g.progress.Waiting {
		if name == r.Name {
			g.progress.Waiting = append(g.progress.Waiting[:i:i], g.progress.Waiting[i+1:]...)
			return
		}
	}
}

// Stage says when a part stops. Parts of one stage start and stop together.
type Stage int

// The stages in the order in which they stop.
const (
	Intake Stage = iota
	InFlight
	Flush
	Connections
	Store
	HTTP
	stages // number of stages
)

// String returns the stage's name, for messages and for the progress of a drain.
func (s Stage) String() string {
	return [...]string{"intake", "in flight", "outbox flush", "connections", "store", "http"}[s]
}

// MaxStop is how long the stop of all stages may take.
func MaxStop() (sum time.Duration) {
	for s := Intake; s < stages; s++ {
		sum += s.limit()
	}
	return sum
}

// limit is how long a stage may take to stop. The sum stays below the 30 s that
// Kubernetes grants a pod from the start of its preStop hook.
func (s Stage) limit() time.Duration {
	return [...]time.Duration{
		Intake:      7 * time.Second, // a batch in flight commits much faster
		InFlight:    6 * time.Second, // effect calls in flight; the next start settles those that were cut
		Flush:       6 * time.Second, // undelivered work stays in the outbox
		Connections: 5 * time.Second, // the release of leases, and the close of connections
		Store:       3 * time.Second, // one transaction
		HTTP:        2 * time.Second,
	}[s]
}
