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
	// Contexts names the contexts whose queues it takes jobs from. It registers itself
	// there. Empty means every context whose hash runner:<id> says local.
	Contexts []uint32
	// Concurrency bounds the jobs that run at once; 0 means the number of processors.
	Concurrency int
	// Drain is the time that running jobs have once the runner stops (20 s). Then it
	// interrupts them and queues them again.
	Drain time.Duration
	// Alive is the time after its last heartbeat at which a runner counts as dead (6 s).
	Alive time.Duration
	// Look is the interval between two looks for requests to stop (500 ms). Looks for dead
	// runners and new contexts are ten times as rare.
	Look time.Duration
	// Hub, where set, delivers jobs on Topic, which is runner<id> by default.
	Hub   *mycelium.Hub
	Topic string
	// Secrets are the secrets of callers on the topic. Without any, every node that reaches
	// the topic may send jobs.
	Secrets []string
	Metrics prometheus.Registerer
	Log     *zap.Logger
	// At is called at each step of a job: "taken", "begun", "ran", "recorded". Tests kill the
	// process there.
	At func(point, job string)
}

// Scripts runs scripts; a *script.Host does.
type Scripts interface {
	// Run runs a script to its end. The runner bounds concurrent calls.
	Run(ctx context.Context, s script.Script) (script.RunResult, error)
	// Types lists the script types that it runs.
	Types() []string
	// Sweep removes the processes and folders of an earlier process.
	Sweep() (int, error)
}

const (
	defaultDrain = 20 * time.Second // a pod has 30 s
	defaultAlive = 6 * time.Second
	defaultLook  = 500 * time.Millisecond
	// beats is the number of heartbeats in Alive.
	beats = 4
	// slowly is the number of looks per look for dead runners and for contexts.
	slowly = 10
	// takeWait is the timeout of one blocking take.
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
