package main

import (
	"context"
	"fmt"
	"log"

	"edda/hero/dispatcher"
	"edda/hero/redisdb"
)

// dispatcherSystem is the hero: protocol, with results, replies and retries.
type dispatcherSystem struct {
	db     *redisdb.DB
	client *dispatcher.Client
}

func newDispatcher(addr string) *dispatcherSystem {
	db, err := redisdb.Open(redisdb.Options{Addr: addr})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := db.Client(0)
	if err != nil {
		log.Fatal(err)
	}
	client, err := dispatcher.New(conn, dispatcher.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return &dispatcherSystem{db, client}
}

func (*dispatcherSystem) name() string { return "edda hero:*" }

func (d *dispatcherSystem) enqueue(ctx context.Context) error {
	_, err := d.client.Dispatch(ctx, dispatcher.Job{WorkerID: "noop", Script: "x", Concurrent: true})
	return err
}

func (d *dispatcherSystem) process(ctx context.Context, concurrency int, done func()) error {
	conn, err := d.db.Client(0)
	if err != nil {
		return err
	}
	worker, err := dispatcher.NewWorker(conn, "noop", noop(done), dispatcher.WorkerOptions{Concurrency: concurrency})
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return worker.Run(ctx)
}

// noop is the script type that does nothing, in this process.
type noop func()

func (n noop) Execute(context.Context, dispatcher.Job, func(string)) dispatcher.JobResult {
	n()
	return dispatcher.JobResult{OK: true}
}
