package main

import (
	"context"

	"github.com/hibiken/asynq"
)

// asynqSystem is asynq as its documentation shows it.
type asynqSystem struct {
	to     asynq.RedisClientOpt
	client *asynq.Client
}

func newAsynq(addr string) *asynqSystem {
	to := asynq.RedisClientOpt{Addr: addr, PoolSize: 64}
	return &asynqSystem{to, asynq.NewClient(to)}
}

func (*asynqSystem) name() string { return "asynq" }

func (a *asynqSystem) enqueue(ctx context.Context) error {
	_, err := a.client.EnqueueContext(ctx, asynq.NewTask("noop", []byte("x")))
	return err
}

func (a *asynqSystem) process(ctx context.Context, concurrency int, done func()) error {
	server := asynq.NewServer(a.to, asynq.Config{Concurrency: concurrency, LogLevel: asynq.FatalLevel})
	err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		done()
		return nil
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}
