package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"edda/internal/backoff"
	"edda/store"
)

const (
	// beatEvery is how often a loop is asked whether it still turns: often enough
	// for /live to be true, seldom enough that an idle disk stays idle.
	beatEvery = 10 * time.Second
	// stuckAfter is how long a loop may be busy with one thing before /live says
	// that it is stuck: far more than the largest batch or the slowest sync of a
	// disk that still works, and no evaluation takes so long.
	stuckAfter = time.Minute
)

// pulse asks the loops that all progress depends on for a sign of life, and
// knows who owes one. None of them waits for NATS.
type pulse struct {
	loops []loop

	mu    sync.Mutex           // guards asked
	asked map[string]time.Time // since when a loop owes its answer
}

// loop is one that must turn: ask returns once it has taken notice. An error is
// an answer too.
type loop struct {
	name string
	ask  func(context.Context) error
}

func newPulse(loops ...loop) *pulse { return &pulse{loops: loops, asked: map[string]time.Time{}} }

// loops are the committer, and the evaluator once there is one.
func (p *process) loops() []loop {
	loops := []loop{{"the committer", func(ctx context.Context) error { return p.db.Commit(ctx, store.Change{}) }}}
	if p.settings.sagas() {
		loops = append(loops, loop{"the evaluator", func(ctx context.Context) error {
			l := p.line.Load()
			if l == nil {
				return nil // it has not begun
			}
			return l.engine.Ping(ctx)
		}})
	}
	return loops
}

// Run asks until ctx ends.
func (p *pulse) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range p.loops {
		g.Go(func() error { p.beat(ctx, l); return nil })
	}
	return g.Wait()
}

func (p *pulse) beat(ctx context.Context, l loop) {
	for backoff.Wait(ctx, beatEvery) == nil {
		p.owes(l.name, true)
		_ = l.ask(ctx) // that it answered is what counts; /health tells of failures
		p.owes(l.name, false)
	}
}

func (p *pulse) owes(name string, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if yes {
		p.asked[name] = time.Now()
		return
	}
	delete(p.asked, name)
}

// stuck says who has not answered for too long; empty when all turn.
func (p *pulse) stuck() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for name, since := range p.asked {
		if took := time.Since(since); took >= stuckAfter {
			out = append(out, fmt.Sprintf("%s has not answered for %s", name, took.Round(time.Second)))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}
