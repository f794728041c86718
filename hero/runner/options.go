package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda/hero/mycelium"
	"edda/hero/script"
)

// Options of a runner. The zero value works.
type Options struct {
	// Contexts are those whose queues it takes jobs from. It registers itself there
	// if need be. None means every context whose runner:<id> says local.
	Contexts []uint32
	// Concurrency is how many jobs run at once; as many as there are processors
	// unless said.
	Concurrency int
	// Drain is how long running jobs may go on once the runner stops (20 s); then
	// they are interrupted and wait in their queues again.
	Drain time.Duration
	// Alive is how long after its last heartbeat a runner counts as dead (6 s).
	Alive time.Duration
	// Look is how often it looks for requests to stop, dead runners and new
	// contexts (500 ms; the latter two ten times as slow).
	Look time.Duration
	// Hub, where set, brings jobs by Topic, runner<id> unless said.
	Hub   *mycelium.Hub
	Topic string
	// Secrets are what callers on the topic must give one of. With none, every node that
	// reaches the topic may send jobs.
	Secrets []string
	Metrics prometheus.Registerer
	Log     *zap.Logger
	// At is told where a job stands: "taken", "begun", "ran", "recorded". Tests kill
	// the process there.
	At func(point, job string)
}

// Scripts runs them: a *script.Host.
type Scripts interface {
	// Run runs one to its end. Concurrent calls are bounded by the runner.
	Run(ctx context.Context, s script.Script) (script.Outcome, error)
	// Types are those that it runs.
	Types() []string
	// Sweep clears away what an earlier process left.
	Sweep() (int, error)
}

const (
	defaultDrain = 20 * time.Second // a pod has 30 s
	defaultAlive = 6 * time.Second
	defaultLook  = 500 * time.Millisecond
	// beats is how many heartbeats may be lost before a runner counts as dead.
	beats = 4
	// slowly is how many looks go by between two for dead runners and for contexts.
	slowly = 10
	// takeWait is how long one request for a job waits.
	takeWait = 5 * time.Second
	// pauseFirst and pauseLast bound the pauses while Redis does not answer.
	pauseFirst = 50 * time.Millisecond
	pauseLast  = 2 * time.Second
)

func (o *Options) validate() error {
	if o.Concurrency == 0 {
		o.Concurrency = runtime.NumCPU()
	}
	if o.Drain == 0 {
		o.Drain = defaultDrain
	}
	if o.Alive == 0 {
		o.Alive = defaultAlive
	}
	if o.Look == 0 {
		o.Look = defaultLook
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.At == nil {
		o.At = func(string, string) {}
	}
	switch {
	case o.Concurrency < 0:
		return fmt.Errorf("runner: %d jobs at once are not possible: give at least 1", o.Concurrency)
	case o.Drain < 0 || o.Alive < 100*time.Millisecond || o.Look <= 0:
		return errors.New("runner: times must be positive, and a heartbeat is heard for 100 ms at least")
	}
	for _, c := range o.Contexts {
		if c == 0 {
			return errors.New("runner: context 0 is the actors' database: contexts begin at 1")
		}
	}
	return nil
}
