package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/logthrottle"
)

// sweepBatch bounds the jobs that one sweep ends in one context.
const sweepBatch = 500

// Run ends expired jobs until ctx ends, even if no call waits for them. It repeats a sweep
// that failed.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(s.o.Sweep)
	defer tick.Stop()
	sweeping := logthrottle.New(s.o.Log, "supervisor: sweep")
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.runOnce(ctx); ctx.Err() == nil {
			sweeping.Note(err)
		}
	}
}

func (s *Server) runOnce(ctx context.Context) error {
	contexts, err := s.db.Contexts(ctx)
	if err != nil {
		return err
	}
	for _, c := range contexts {
		if err := s.sweep(ctx, c); err != nil {
			return fmt.Errorf("context %d: %w", c, err)
		}
	}
	return nil
}

// sweep ends the expired jobs of one context.
func (s *Server) sweep(ctx context.Context, context uint32) error {
	c, err := s.db.Client(context)
	if err != nil {
		return err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	late, err := c.ZRangeArgs(ctx, redis.ZRangeArgs{Key: supervisedKey, Start: "-inf", Stop: now, ByScore: true, Count: sweepBatch}).Result()
	if err != nil {
		return err
	}
	for _, key := range late {
		again, err := s.giveUpOn(ctx, context, key)
		if err != nil {
			return err
		}
		if again.IsZero() {
			err = c.ZRem(ctx, supervisedKey, key).Err()
		} else {
			err = c.ZAdd(ctx, supervisedKey, redis.Z{Score: float64(again.Unix()), Member: key}).Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// giveUpOn ends an expired job. For a job with time left it returns the time of the next
// look.
func (s *Server) giveUpOn(ctx context.Context, context uint32, key string) (again time.Time, err error) {
	caller, id, err := hero.ParseJobKey(key)
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // no key of a job; it is removed
	}
	j, err := s.db.Job(ctx, context, caller, id)
	var broken *hero.FieldError
	switch {
	case errors.Is(err, redisdb.ErrNotFound), errors.As(err, &broken), err == nil && j.Status.Ended():
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, err
	}
	until, why := s.until(j)
	if time.Now().Before(until) {
		if next := s.giveUp(j); next.Before(until) {
			return next, nil
		}
		return until, nil
	}
	_, err = s.end(ctx, j, why)
	return time.Time{}, err
}
