package dispatcher

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda/hero/list"
	"edda/internal/logthrottle"
)

const (
	// keepEvery is how often a keeper looks at the jobs that wait.
	keepEvery = time.Second
	// keepPages bounds one look: the next one goes on behind it, so that ten thousand
	// jobs that wait cost no more than a thousand.
	keepPages = 2
)

// Keeper releases the jobs that wait for others, where no worker of ours does that: the
// document's worker records a result, and looks at nobody else. Any number may run.
type Keeper struct {
	conn
	log      *zap.Logger
	released prometheus.Counter
	every    time.Duration
	cursor   uint64 // where the next look begins
}

// NewKeeper makes a keeper. The caller closes db.
func NewKeeper(db *redis.Client, reg prometheus.Registerer, log *zap.Logger) (*Keeper, error) {
	l, err := newConn(db, "", "")
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	return &Keeper{conn: l, log: log, released: m.swept.WithLabelValues("released"), every: keepEvery}, nil
}

// Run keeps until ctx ends. Where the user of Redis has no rights to the dispatcher's
// keys there is nothing to keep.
func (k *Keeper) Run(ctx context.Context) error {
	keeping, cancel := context.WithCancel(ctx)
	defer cancel()
	list.Every(keeping, k.every, newRetry(), logthrottle.New(k.log, "release the dispatcher's jobs that wait"), func(ctx context.Context) error {
		_, err := k.runOnce(ctx)
		if redis.HasErrorPrefix(err, "NOPERM") && ctx.Err() == nil {
			k.log.Info("the Redis user has no rights to hero:*: jobs of the dispatcher that wait are released by its workers and clients alone", zap.Error(err))
			cancel()
		}
		return err
	})
	<-ctx.Done()
	return nil
}

// runOnce looks at some of the jobs that wait.
func (k *Keeper) runOnce(ctx context.Context) (released int, err error) {
	for range keepPages {
		next, n, err := k.releasePage(ctx, k.cursor)
		k.cursor = next
		k.released.Add(float64(n))
		if released += n; err != nil || next == 0 {
			return released, err
		}
	}
	return released, nil
}
