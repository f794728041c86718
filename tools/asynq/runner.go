package main

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/runner"
	"edda/hero/script"
)

// The context, the actor and the script type of the measurement.
const (
	inContext = 1
	actor     = 2
	kind      = hero.ScriptType("noop")
)

// runnerSystem is queue:<type>: jobs of a context, with the result message that
// goes to whoever sent the job.
type runnerSystem struct {
	db   *redisdb.DB
	made atomic.Uint64
}

func newRunner(addr string) *runnerSystem {
	db, err := redisdb.Open(redisdb.Options{Addr: addr})
	if err != nil {
		log.Fatal(err)
	}
	return &runnerSystem{db: db}
}

func (*runnerSystem) name() string { return "edda queue:*" }

func (r *runnerSystem) enqueue(ctx context.Context) error {
	n := r.made.Add(1)
	_, _, err := r.db.Create(ctx, inContext, fmt.Sprintf("bench-%d", n), hero.Job{CallerID: actor, ContextID: inContext, Script: "x", ScriptType: kind}, kind.Queue())
	return err
}

func (r *runnerSystem) process(ctx context.Context, concurrency int, done func()) error {
	if err := r.db.PutContext(ctx, hero.Context{ID: inContext, Admins: []uint32{actor}, Executors: []uint32{actor}}); err != nil {
		return err
	}
	run, err := runner.New(1, r.db, noScripts(done), runner.Options{Contexts: []uint32{inContext}, Concurrency: concurrency})
	if err != nil {
		return err
	}
	return run.Run(ctx)
}

// noScripts is the script type that does nothing, in this process.
type noScripts func()

func (n noScripts) Run(context.Context, script.Script) (script.RunResult, error) {
	n()
	return script.RunResult{OK: true}, nil
}
func (noScripts) Types() []string     { return []string{string(kind)} }
func (noScripts) Sweep() (int, error) { return 0, nil }
