package list

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda/hero/redisdb"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
)

// Loop serves one context. The loops of the router and of the runner embed it.
type Loop struct {
	DB      *redisdb.DB
	Redis   *redis.Client // the raw client of the context's database
	Context uint32
	Retry   Retrier
	Log     *zap.Logger
}

// NewLoop makes the loop of a context. The retry logs as what.
func NewLoop(db *redisdb.DB, context uint32, pause backoff.Exponential, log *zap.Logger, what string) (*Loop, error) {
	client, err := db.Client(context)
	if err != nil {
		return nil, err
	}
	log = log.With(zap.Uint32("context", context))
	return &Loop{DB: db, Redis: client, Context: context, Log: log, Retry: Retrier{Pause: pause, Log: logthrottle.New(log, what)}}, nil
}

// Consumer makes a consumer of a list of the context.
func (l *Loop) Consumer(from, into string, wait time.Duration, workers *Workers, work func(key string)) *Consumer {
	return &Consumer{DB: l.DB, Context: l.Context, From: from, Into: into, Wait: wait, Workers: workers, Work: work, Retry: &l.Retry, Log: l.Log}
}

// Every is the function Every with the loop's pauses; what is the name in the log.
func (l *Loop) Every(ctx context.Context, interval time.Duration, what string, do func(context.Context) error) {
	Every(ctx, interval, l.Retry.Pause, logthrottle.New(l.Log, what), do)
}

// Every calls do at once and then once per interval, until ctx ends. After an error it
// waits as pause says instead. The throttle logs the errors.
func Every(ctx context.Context, interval time.Duration, pause backoff.Exponential, log *logthrottle.Throttle, do func(context.Context) error) {
	for ctx.Err() == nil {
		next := time.Now().Add(interval)
		err := do(ctx)
		if ctx.Err() != nil {
			return
		}
		log.Note(err)
		if err == nil {
			pause.Reset()
		} else {
			next = time.Now().Add(pause.Next())
		}
		_ = backoff.Wait(ctx, time.Until(next))
	}
}

// Retrier repeats a step until it succeeds. It may be used concurrently.
type Retrier struct {
	Pause backoff.Exponential
	Log   *logthrottle.Throttle
	// Final reports whether an error ends the repetition; nil means that none does.
	Final func(error) bool
}

// Do calls do until it succeeds. It returns the error that is final, or why ctx ended.
func (r *Retrier) Do(ctx context.Context, what string, do func(context.Context) error) error {
	for pause := r.Pause; ; {
		err := do(ctx)
		switch {
		case err == nil:
			if pause.Failing() {
				r.Log.Worked()
			}
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case r.Final != nil && r.Final(err):
			return err
		}
		r.Log.Failed(err, zap.String("what", what))
		if err := backoff.Wait(ctx, pause.Next()); err != nil {
			return err
		}
	}
}
