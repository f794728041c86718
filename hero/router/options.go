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
	// defaultConcurrency bounds the messages of one context that are on their
	// way at once. Most of that is waiting for jobs to end, which costs a goroutine.
	defaultConcurrency = 512
	// defaultLook is how often contexts are looked for.
	defaultLook = 2 * time.Second
	// scanPace is how many keys of a database may be passed each second to find runners
	// that other programs wrote: a scan takes Redis about half a microsecond a key.
	scanPace = 2000
	// defaultWatch is how often the hashes of local jobs are looked at, for runners
	// that write only those.
	defaultWatch = time.Second
	// defaultTimeout is how long an undeliverable message is tried, when it
	// says nothing: a supervisor that restarts is back by then.
	defaultTimeout = 2 * time.Minute
	// defaultAck is how long a receiver may take to read a message.
	defaultAck = 2 * time.Minute
	// defaultResult is how long a job without a timeout may run.
	defaultResult = time.Hour
	// grace goes on top of a job's timeout: its runner ends it and says so.
	grace = 45 * time.Second
	// deadFor is how long a runner that was not reached is passed over.
	deadFor = 30 * time.Second
	// perMessage bounds the jobs of one message that are on their way at once.
	perMessage = 8
	// takeWait is how long one BLMOVE blocks: also how long stopping may take.
	takeWait = time.Second
	// The pauses between tries.
	firstPause, lastPause = 100 * time.Millisecond, 5 * time.Second
	// A supervisor is asked about a job that it has less and less often: a router that asks every
	// job all the time asks much, and a long job is not late for half a minute.
	firstAsk, lastAsk = 100 * time.Millisecond, 30 * time.Second
	// askWithin bounds one such question beside a reply that is waited for.
	askWithin = 5 * time.Second
	// reportWait bounds telling a flow that its message was acknowledged, which
	// it can do without.
	reportWait = 5 * time.Second
)

// FlowResults are told what became of their messages.
type FlowResults interface {
	// Report returns once the report is durable. An error is edda.Permanent where
	// there is no such flow, else the same report is made again.
	Report(ctx context.Context, r hero.Report) error
}

// Mesh carries requests over Mycelium; a mycelium.Hub is one.
type Mesh = supervisor.Caller

// Options of a router. The zero value of each field works.
type Options struct {
	// Mesh is how Mycelium is reached; without it such targets are not.
	Mesh Mesh
	// State tells how far a message of Mycelium is, by its id, as a node's Status
	// does; it keeps a job that is still under way from being sent again.
	State func(ctx context.Context, messageID string) (mycelium.State, error)
	// Flows get the reports; without them messages of flows are answered only.
	Flows FlowResults
	// Runs has the flows run that messages carry; without it such messages are refused.
	Runs Runs
	// HTTP reaches supervisors with a URL. Redirects must not be followed: a
	// secret goes with every request.
	HTTP *http.Client
	// Concurrency bounds the messages of one context that are on their way.
	Concurrency int
	// Look is how often contexts are looked for, Watch how often local jobs.
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

// seconds is a message's own bound, or the other where it has none.
func seconds(n uint32, other time.Duration) time.Duration {
	return orElse(time.Duration(n)*time.Second, other)
}
