package router

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/backoff"
)

// strayWatches is how many looks at local jobs one round through a context's keys takes
// at least: jobs that others let wait and nobody releases are found without a hurry.
const strayWatches = 15

// strays releases the jobs outside of flows that clients and workers of others let wait.
// The documents leave that to the coordinator. A job that is seen ready in two rounds is
// released: in between, who let it wait had the time to do so.
func (l *contextLoop) strays(ctx context.Context) {
	seen := map[string]bool{} // ready at the last round
	l.every(ctx, strayWatches*l.r.o.Watch, "look for jobs that nobody releases", func(ctx context.Context) error {
		ready, err := l.strayRound(ctx, seen)
		if err == nil {
			seen = ready
		}
		return err
	})
}

// strayRound goes once through the context's keys, a page each look. It returns the jobs
// that are ready and were not seen before.
func (l *contextLoop) strayRound(ctx context.Context, seen map[string]bool) (map[string]bool, error) {
	ready := map[string]bool{}
	for cursor := uint64(0); ; {
		found, next, err := l.r.db.Strays(ctx, l.context, cursor)
		if err != nil {
			return nil, err
		}
		var again []hero.Job
		for _, j := range found {
			if seen[j.Key()] {
				again = append(again, j)
			} else {
				ready[j.Key()] = true
			}
		}
		if err := l.adopt(ctx, again); err != nil {
			return nil, err
		}
		if cursor = next; cursor == 0 || backoff.Wait(ctx, l.r.o.Watch) != nil {
			return ready, ctx.Err()
		}
	}
}

// adopt has the next look of watch release the jobs.
func (l *contextLoop) adopt(ctx context.Context, jobs []hero.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	flows, err := l.r.db.InFlows(ctx, l.context, jobs)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if flows[j.Key()] {
			continue
		}
		denied := l.r.db.MayRun(ctx, l.context, j.CallerID)
		switch {
		case errors.Is(denied, redisdb.ErrDenied):
			_, _, err = l.r.db.MoveJob(ctx, l.context, j.CallerID, j.ID, hero.JobError, map[string]string{hero.ResultError: denied.Error()})
			if errors.Is(err, edda.Permanent) {
				err = nil // it ended, or was begun
			}
			l.log.Warn("router: a job that another program let wait is refused", zap.String("job", j.Key()), zap.Error(denied))
			l.r.metrics.strays.WithLabelValues(fateDenied).Inc()
		case denied != nil:
			return denied
		default:
			var adopted bool
			if adopted, err = l.r.db.Adopt(ctx, l.context, j); adopted {
				l.log.Info("router: a job that another program let wait may run", zap.String("job", j.Key()), zap.String("queue", j.ScriptType.Queue()))
				l.r.metrics.strays.WithLabelValues("released").Inc()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
