package router

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda/hero"
	"edda/hero/mycelium"
	"edda/hero/supervisor"
)

// Bounds of the router.
const (
	// defaultConcurrency bounds the messages of one context in delivery. A delivery is a
	// goroutine, which mostly waits for a job to end.
	defaultConcurrency = 512
	// defaultLook is the interval between two looks for contexts.
	defaultLook = 2 * time.Second
	// scanPace bounds the keys per second of the scans for runners that other programs
	// wrote. A scan takes Redis about half a microsecond per key.
	scanPace = 2000
	// defaultWatch is the interval between two looks at the hashes of local jobs, because
	// some runners write only those.
	defaultWatch = time.Second
	// defaultTimeout bounds the attempts to deliver a message without a timeout. A
	// supervisor takes less to restart.
	defaultTimeout = 2 * time.Minute
	// defaultAck bounds the time until a receiver has read a message.
	defaultAck = 2 * time.Minute
	// defaultResult bounds a job without a timeout.
	defaultResult = time.Hour
	// grace is added to a job's timeout, so that its runner can end it and report that.
	grace = 45 * time.Second
	// deadFor is the time for which pick skips a runner that was not reached.
	deadFor = 30 * time.Second
	// perMessage bounds the jobs of one message in delivery.
	perMessage = 8
	// takeWait bounds one BLMOVE, and so the time that a stop takes.
	takeWait = time.Second
	// The pauses between attempts.
	firstPause, lastPause = 100 * time.Millisecond, 5 * time.Second
	// The intervals between two questions to a supervisor about a job that it has. They
	// grow, to bound the questions about all jobs: half a minute matters little to a long job.
	firstAsk, lastAsk = 100 * time.Millisecond, 30 * time.Second
	// askWithin bounds one such question while a reply is expected.
	askWithin = 5 * time.Second
	// reportWait bounds the report that a message was acknowledged, which a flow does not
	// need.
	reportWait = 5 * time.Second
)

// FlowResults receives the reports of jobs for their flows.
type FlowResults interface {
	// Report returns once the report is durable. The error is edda.Permanent if there is no
	// such flow; after any other error the router repeats the report.
	Report(ctx context.Context, r hero.Report) error
}

// Mesh carries requests over Mycelium. A mycelium.Hub is one.
type Mesh = supervisor.Caller

// Options of a router. The zero value of each field works.
type Options struct {
	// Mesh reaches targets on Mycelium. Without it they are refused.
	Mesh Mesh
	// State returns the transport state of a message on Mycelium by its id, as a node's
	// Status does. With it a job that is still under way is not sent again.
	State func(ctx context.Context, messageID string) (mycelium.State, error)
	// Flows receives reports. Without it the router only answers the messages of flows.
	Flows FlowResults
	// Runs runs the flows of messages. Without it such messages are refused.
	Runs Runs
	// HTTP reaches supervisors with a URL. It must not follow redirects, because every
	// request carries a secret.
	HTTP *http.Client
	// Concurrency bounds the messages of one context in delivery.
	Concurrency int
	// Look is the interval between looks for contexts, Watch between looks at local jobs.
	Look, Watch time.Duration
	Metrics     prometheus.Registerer
	Log         *zap.Logger

	// at is called at each step of a delivery with the message's key. A test may end the
	// calling goroutine there.
	at func(step, key string)
}

func (o *Options) validate() error {
	if o.Concurrency < 0 || o.Look < 0 || o.Watch < 0 {
		return fmt.Errorf("router: bounds must not be negative")
	}
	if o.Concurrency == 0 {
		o.Concurrency = defaultConcurrency
	}
	o.Look = orElse(o.Look, defaultLook)
	o.Watch = orElse(o.Watch, defaultWatch)
	if o.HTTP == nil {
		o.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.at == nil {
		o.at = func(string, string) {}
	}
	return nil
}

func orElse(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return d
}

// seconds returns a message's own bound, or the other one if it has none.
func seconds(n uint32, other time.Duration) time.Duration {
	return orElse(time.Duration(n)*time.Second, other)
}
