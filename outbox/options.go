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
	// maxHeld rows of one lane are in memory at most: enough to fill several
	// batches, few enough that a dead destination costs a few megabytes.
	maxHeld = 4096
	// maxSpare items are kept when their rows are gone: two batches.
	maxSpare = 1024
	// maxHeldBytes of payload of one lane are in memory at most; one row always fits.
	maxHeldBytes = 16 << 20
	// defaultBatch is where bbolt's and JetStream's cost per row stops falling.
	defaultBatch = 512
	// scanRows are read from the store at a time, so that a long scan never
	// keeps deliveries waiting.
	scanRows = 1024
	// removeRows go in one clean-up transaction.
	removeRows = 1024
	// removeWithin is how long delivered rows wait for a commit to be removed with,
	// so that neither a trickle of work has a clean-up transaction for each row, nor
	// what comes next waits behind one. They would only be offered again after a crash.
	removeWithin = 20 * time.Millisecond
	// lookEvery is the slow tick: a channel may wake the loop, only the store informs it.
	lookEvery = time.Second
	// highShare high rows go before one normal row, where both wait.
	highShare = 4
	// downAfter failures in a row, with no success between, a lane counts as
	// down: then one row at a time asks whether it is back.
	downAfter = 8
	// The backoff of a row and of a lane that is down.
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
	// sweepAfter is the age at which an effect without a result is published
	// again, doubling with age up to lastSweep.
	sweepAfter = time.Minute
	lastSweep  = time.Hour
	// stopWithin bounds the last clean-up transaction after ctx has ended.
	stopWithin = 5 * time.Second
	// flushTries failures make a row count as not deliverable for Flush.
	flushTries = 3
)

// Options of a relay. Lanes are required; everything else may be zero.
type Options struct {
	Lanes []Lane
	// Rejecter is told of rejected work that a saga waits for; without one it
	// becomes a dead letter, as other rejected work does.
	Rejecter Rejecter
	Log      *zap.Logger
	Metrics  prometheus.Registerer
	// Max is how many rows of one destination make it full; [DefaultMax] when zero.
	Max int
	// Jitter gives a number in [0, 1) that spreads retries.
	Jitter func() float64
	// Fence, where set, is passed before each Deliver: an error says that this process may
	// not act now, or not any more.
	Fence func(context.Context) error
	// Marks, where set, returns the last message that was published to each stream. Those
	// that changed are committed with the rows that go.
	Marks func() []edda.Mark
	// After, where set, is closed when deliveries may begin: until then the store's
	// work may turn out to be done already.
	After <-chan struct{}
}

func (o *Options) validate() error {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.Max <= 0 {
		o.Max = DefaultMax
	}
	if len(o.Lanes) == 0 {
		return errors.New("outbox: no lanes")
	}
	return validateLanes(o.Lanes)
}

func validateLanes(lanes []Lane) error {
	names, kinds := map[string]bool{}, map[edda.WorkKind]string{}
	for _, l := range lanes {
		if l.Name == "" || l.Destination == nil || names[l.Name] {
			return fmt.Errorf("outbox: lane %q needs a name of its own and a destination", l.Name)
		}
		names[l.Name] = true
		for _, k := range l.Kinds {
			if other, taken := kinds[k]; taken {
				return fmt.Errorf("outbox: lanes %q and %q both take %s", other, l.Name, k)
			}
			kinds[k] = l.Name
		}
	}
	return nil
}

// retryPause doubles from firstBackoff to lastBackoff with the failures so far;
// the upper half of it is random.
func retryPause(failures int, jitter float64) time.Duration {
	d := backoff.Exponential{First: firstBackoff, Most: lastBackoff}.At(failures)
	return d/2 + time.Duration(jitter*float64(d/2))
}
