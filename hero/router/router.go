package router

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"edda/hero/list"
	"edda/hero/redisdb"
	"edda/hero/supervisor"
)

// Router delivers the messages of every context to supervisors and actors.
type Router struct {
	db      *redisdb.DB
	o       Options
	metrics *metrics
	prefix  string // of the ids of our requests, new in each process
	seq     atomic.Uint64

	mu          sync.Mutex // guards the fields below
	clients     map[target]*supervisor.Client
	unreachable map[runnerAt]time.Time // runners that pick skips until that time
	rotations   map[rotation]uint64    // picks so far
	filled      map[uint32]bool        // contexts whose msg_in takes no more results
	runners     map[uint32]known
}

// runnerAt is a runner of a context.
type runnerAt struct{ context, id uint32 }

// rotation is the round robin among a context's runners for one executor.
type rotation struct {
	context  uint32
	executor string
}

// maxClients bounds the cached clients. A client that is dropped costs one call, with
// parameters in the wrong shape.
const maxClients = 10_000

// New makes a router; nothing starts before Run.
func New(db *redisdb.DB, o Options) (*Router, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	return &Router{
		db: db, o: o, metrics: m, prefix: rand.Text()[:12],
		clients: map[target]*supervisor.Client{}, unreachable: map[runnerAt]time.Time{}, rotations: map[rotation]uint64{}, filled: map[uint32]bool{}, runners: map[uint32]known{},
	}, nil
}

// Run routes messages until ctx ends and all deliveries have stopped. A message that is not
// delivered stays in msg_out_coordinator for the next run.
func (r *Router) Run(ctx context.Context) error {
	s := list.Contexts{
		DB: r.db, Served: r.db.Contexts, Every: r.o.Look, Pause: newRetry(), Changed: r.forgetRunners, What: whatRetries, Log: r.o.Log,
		Run: r.run,
	}
	s.Serve(ctx)
	return nil
}

// client returns the cached client of a target. It knows the shape of parameters that the
// supervisor wants.
func (r *Router) client(t target) *supervisor.Client {
	key := t
	key.name, key.runner = "", 0
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.clients[key]; ok {
		return c
	}
	if len(r.clients) >= maxClients {
		clear(r.clients)
	}
	over := supervisor.Mycelium(r.o.Mesh, t.to, t.topic)
	if t.way == byHTTP {
		over = supervisor.HTTP(t.url, t.secret, r.o.HTTP)
	}
	c := supervisor.NewClient(over, t.secret, r.prefix+"."+rand.Text()[:6])
	r.clients[key] = c
	return c
}

// next returns the number of earlier picks among the runners of an executor.
func (r *Router) next(context uint32, executor string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := rotation{context, executor}
	n := r.rotations[t]
	r.rotations[t] = n + 1
	return n
}

func (r *Router) markUnreachable(context, runner uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unreachable[runnerAt{context, runner}] = time.Now().Add(deadFor)
}

// isUnreachable reports whether a runner was not reached within the last deadFor.
func (r *Router) isUnreachable(context, runner uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, ok := r.unreachable[runnerAt{context, runner}]
	if ok && time.Now().After(until) {
		delete(r.unreachable, runnerAt{context, runner})
		return false
	}
	return ok
}
