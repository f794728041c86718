package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
)

// The bounds of the relay.
const (
	// maxHeld bounds the rows of one route in memory: enough to fill several batches, few enough
	// that a dead destination costs a few megabytes.
	maxHeld = 4096
	// maxHeldBytes bounds the payloads of one route in memory. One row always fits.
	maxHeldBytes = 16 << 20
	// defaultBatch is where the cost a row stops falling, in bbolt and in JetStream.
	defaultBatch = 512
	// scanRows bounds one read of the store, so that a long scan does not delay deliveries.
	scanRows = 1024
	// removeRows bounds the rows removed in one transaction.
	removeRows = 1024
	// removeWithin is how long the removal of delivered rows waits for a commit to join. So a
	// trickle of work does not cost a transaction a row, and new work does not wait behind one. A
	// crash in the meantime only causes a second delivery.
	removeWithin = 20 * time.Millisecond
	// lookEvery is the slow tick: a channel may wake the loop, only the store informs it.
	lookEvery = time.Second
	// highShare is how many high rows go before one normal row, where both wait.
	highShare = 4
	// downAfter consecutive failures make a route count as down. Then it sends one row at a time as
	// a probe.
	downAfter = 8
	// The backoff of a failed row, and of the probes of a route that is down.
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
	// sweepAfter is the age at which the relay publishes an effect without a result again. The age
	// doubles with every time, up to lastSweep.
	sweepAfter = time.Minute
	lastSweep  = time.Hour
	// stopWithin bounds the last removal after ctx has ended.
	stopWithin = 5 * time.Second
	// flushTries is how many failures make Flush count a row as undeliverable.
	flushTries = 3
)

// Options configure a relay. Routes are required; other fields may be zero.
type Options struct {
	Routes []Route
	// Rejecter tells a saga about rejected work that it waits for. Other rejected work, and all of
	// it without a Rejecter, becomes a dead letter.
	Rejecter Rejecter
	Log      *zap.Logger
	Metrics  prometheus.Registerer
	// Max is how many rows of one destination make it full, for the metrics.
	Max int
	// Jitter returns a number in [0, 1) that spreads retries.
	Jitter func() float64
	// Fence, if set, is called before each Deliver. An error says that this process may not act
	// now, or may not act any more.
	Fence func(context.Context) error
	// Marks, if set, returns the last message published to each stream. The relay commits those
	// that changed together with the rows that it removes.
	Marks func() []edda.Mark
	// After, if set, is closed when deliveries may start. The relay waits for it because a
	// restored store may hold work that is done already.
	After <-chan struct{}
}

func (o *Options) validate() error {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if len(o.Routes) == 0 {
		return errors.New("outbox: no routes")
	}
	return validateRoutes(o.Routes)
}

func validateRoutes(routes []Route) error {
	names, kinds := map[string]bool{}, map[edda.WorkKind]string{}
	for _, l := range routes {
		if l.Name == "" || l.Destination == nil || names[l.Name] {
			return fmt.Errorf("outbox: route %q needs a name of its own and a destination", l.Name)
		}
		names[l.Name] = true
		for _, k := range l.Kinds {
			if other, taken := kinds[k]; taken {
				return fmt.Errorf("outbox: routes %q and %q both take %s", other, l.Name, k)
			}
			kinds[k] = l.Name
		}
	}
	return nil
}

// retryPause doubles from firstBackoff to lastBackoff with the number of failures; its upper half
// is random.
func retryPause(failures int, jitter float64) time.Duration {
	d := backoff.Exponential{First: firstBackoff, Most: lastBackoff}.At(failures)
	return d/2 + time.Duration(jitter*float64(d/2))
}
