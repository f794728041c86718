package node

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
	// beatEvery is the interval between two checks of a loop: short enough for /live,
	// long enough that an idle disk stays idle.
	beatEvery = 10 * time.Second
	// stuckAfter is how long a loop may leave a check unanswered before /live reports
	// it as stuck. The largest batch, the slowest sync of a working disk and every
	// evaluation take much less.
	stuckAfter = time.Minute
)

// liveness checks the loops that all progress depends on. It is safe for concurrent use.
type liveness struct {
	loops []checkedLoop

	mu    sync.Mutex           // guards asked
	asked map[string]time.Time // start of the unanswered check of each loop
}

// checkedLoop is one checked loop. ask returns when the loop has handled the check; an error is
// an answer too.
type checkedLoop struct {
	name string
	ask  func(context.Context) error
	// waited returns when the loop last waited for NATS; nil if it never does. A restart of this process would not
	// end such a wait, so it does not count.
	waited func() time.Time
}

func newLiveness(loops ...checkedLoop) *liveness {
	return &liveness{loops: loops, asked: map[string]time.Time{}}
}

// loops lists the checked loops: the committer and, in a saga process, the evaluator.
func (p *process) loops() []checkedLoop {
	loops := []checkedLoop{{
		name: "the committer", waited: p.stay.waitedForLog,
		ask: func(ctx context.Context) error { return p.db.Commit(ctx, store.Change{}) },
	}}
	if p.settings.sagas() {
		loops = append(loops, checkedLoop{name: "the evaluator", ask: func(ctx context.Context) error {
			l := p.pipeline.Load()
			if l == nil {
				return nil // the engine has not started
			}
			return l.engine.Ping(ctx)
		}})
	}
	return loops
}

// Run checks the loops until ctx ends.
func (p *liveness) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range p.loops {
		g.Go(func() error { p.beat(ctx, l); return nil })
	}
	return g.Wait()
}

func (p *liveness) beat(ctx context.Context, l checkedLoop) {
	for backoff.Wait(ctx, beatEvery) == nil {
		p.owes(l.name, true)
		_ = l.ask(ctx) // any answer counts; /health reports errors
		p.owes(l.name, false)
	}
}

func (p *liveness) owes(name string, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if yes {
		p.asked[name] = time.Now()
		return
	}
	delete(p.asked, name)
}

// stuck lists the loops without an answer for stuckAfter; empty if there are none.
func (p *liveness) stuck() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, l := range p.loops {
		since, asked := p.asked[l.name]
		if !asked {
			continue
		}
		if l.waited != nil && l.waited().After(since) {
			since = l.waited()
		}
		if took := time.Since(since); took >= stuckAfter {
			out = append(out, fmt.Sprintf("%s has not answered for %s", l.name, took.Round(time.Second)))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}
