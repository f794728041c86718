package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"edda"
	"edda/effects"
	"edda/hero/redisdb"
	"edda/internal/lifecycle"
	"edda/saga"
	"edda/server"
	"edda/store"
	"edda/stream"
	"edda/stream/wire"
)

// settings are the configuration of a process and what its command adds.
type settings struct {
	config
	// dev means edda dev: one folder, an embedded NATS, a default tenant, versions whose
	// text may change, effects that may call loopback.
	dev      bool
	here     bool   // manifests come from the folder in which edda dev was started
	natsAddr string // where the embedded NATS listens
	// syncStreams has the embedded NATS sync each message, which costs one disk write
	// per message. Without it the server syncs every five seconds.
	syncStreams bool
	// standIn starts a stand-in for Mycelium in this process.
	standIn bool
	env     func(name string) string
	// reread reads the configuration again for a reload; nil without a configuration.
	reread func() (config, error)
}

// tenant is the default tenant of a call.
func (s settings) tenant() string {
	if s.dev && s.Tenancy.Enabled {
		return devTenant
	}
	return ""
}

// devTenant is the tenant of edda dev and edda send unless told otherwise.
const devTenant = "default"

// process is one running Edda. It holds all parts and wires them together.
type process struct {
	settings settings
	log      *zap.Logger
	metrics  *prometheus.Registry
	started  time.Time
	run      string // id of this start
	db       *store.DB
	restored bool // the store was restored from a backup and has not caught up
	server   *server.Server
	guards   guards
	group    *lifecycle.Group
	tracing  tracing
	liveness *liveness
	// deadLetters serializes the commands on dead letters without an instance.
	deadLetters sync.Mutex
	quarantine  *quarantine
	strays      *stream.Strays
	resumed     *prometheus.CounterVec      // how often a stream had lost a handled suffix
	remade      prometheus.Counter          // how often the shared ledger was lost and created again
	republished prometheus.Counter          // messages that the server had lost
	synced      atomic.Bool                 // the server syncs before it acknowledges
	tail        atomic.Pointer[stream.Tail] // own tail; nil until it is known
	// redis is nil if nothing uses Redis. embeddedRedis is the one of edda dev.
	redis         *redisdb.DB
	embeddedRedis *embeddedRedis
	hero          heroSide
	maintenance   *maintenance
	// pipeline is nil until JetStream is reached.
	pipeline atomic.Pointer[pipeline]
	joined   chan struct{}         // closed when pipeline is set
	apart    atomic.Pointer[error] // last error of join; nil before the first attempt
	// announce may be nil. It is called when all parts have started.
	announce func()

	draining atomic.Bool // a caller asked for the stop; it is audited once

	hearing  atomic.Pointer[saga.Set]        // says which facts have a handler
	versions atomic.Pointer[map[text]string] // names of the texts that are not the first of their version

	said []string // which sagas catch up since the start; set before the pipeline starts

	serving sync.RWMutex // guards tenants
	tenants wire.Tenants

	reloading sync.Mutex // one reload at a time; guards the fields below
	set       *saga.Set
	effects   []*effects.Effect
}

// newProcess acquires what every part needs: the address, the folder and the store. It
// starts nothing. The manifests in l must have compiled.
func newProcess(s settings, l loaded, log *zap.Logger) (*process, error) {
	p := &process{settings: s, log: log, metrics: prometheus.NewRegistry(), started: time.Now(), run: ulid.Make().String(), effects: l.effects, joined: make(chan struct{})}
	p.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.quarantine = newQuarantine(p.metrics, log)
	p.serve(s.Tenants)
	p.strays = &stream.Strays{Log: log.Named("stream")}
	p.resumed, p.remade, p.republished = resumedCounter(), remadeCounter(), republishedCounter()
	p.metrics.MustRegister(strayCounter(p.strays), p.resumed, p.remade, p.republished)
	var err error
	if p.tracing, err = newTracing(context.Background(), s.env, log); err != nil {
		return nil, err
	}
	if err := p.listen(); err != nil {
		return nil, err
	}
	if err := p.open(); err != nil {
		return nil, errors.Join(err, p.server.Close())
	}
	if err := errors.Join(p.openRedis(), p.buildHero(), p.buildMaintenance()); err != nil {
		return nil, errors.Join(err, p.server.Close(), p.db.Close())
	}
	p.metrics.MustRegister(&instanceCollector{p.db}, &queueCollector{p.db, s.Dead.MaxBytes}, &parkedCollector{p.db, s.Parked.Max})
	p.metrics.MustRegister(writtenCounters(p.db)...)
	p.liveness = newLiveness(p.loops()...)
	p.group = lifecycle.New(lifecycle.Options{Stopped: p.partStopped}, p.parts(l)...)
	return p, nil
}

func (p *process) listen() error {
	var err error
	if p.guards, err = openGuards(p.settings.config, p.log); err != nil {
		return &usageError{err}
	}
	p.server, err = server.New(server.Options{
		Register: p.metrics,
		Tokens:   p.guards.tokens, Certificates: p.guards.certificates, TLSEnds: p.settings.TLS.Elsewhere,
		Addr: p.settings.Addr, ProbeAddr: p.settings.ProbeAddr, Build: build(), Log: p.log, Metrics: p.metrics,
		Tenant: p.settings.tenant(), NoTenancy: !p.settings.Tenancy.Enabled,
		Process: p, Instances: p, DeadLetters: p, Inbox: p, Records: p, Maintenance: p, Replays: p.replaysServed(),
	})
	if err != nil {
		return &usageError{p.settings.callersVariable(err)}
	}
	if err := p.server.Listen(); err != nil {
		flags := "--addr"
		if p.settings.ProbeAddr != "" {
			flags += " or --probe-addr"
		}
		return fmt.Errorf("%w; is another Edda running? Choose another %s%s", err, flags, p.settings.addrVariables())
	}
	return nil
}

// callersVariable explains an error if EDDA_ADDR holds a URL: the variable names the
// address to listen on, not the server to call.
func (s settings) callersVariable(err error) error {
	if addr := s.env(envAddr); addr != s.Addr || !strings.Contains(addr, "://") {
		return err
	}
	return fmt.Errorf("%s=%s: it says where edda run and edda dev listen, as host:port; the server that commands call is named by %s", envAddr, s.Addr, envURL)
}

// addrVariables names the variables that set the addresses, because a user without a flag
// does not know them. edda dev reads only EDDA_ADDR.
func (s settings) addrVariables() (out string) {
	for _, v := range []struct{ key, addr string }{{"addr", s.Addr}, {"probe_addr", s.ProbeAddr}} {
		if name := envName(v.key); (!s.dev || v.key == "addr") && v.addr != "" && s.env(name) == v.addr {
			out += "; " + name + " names " + v.addr
		}
	}
	return out
}

// open creates the folder and opens the store. Only one process can hold a store.
func (p *process) open() error {
	if err := os.MkdirAll(p.settings.Data, 0o750); err != nil {
		return fmt.Errorf("data folder: %w; choose another --data", err)
	}
	sealing, err := p.settings.sealing()
	if err != nil {
		return err
	}
	db, err := store.Open(filepath.Join(p.settings.Data, p.settings.storeFolder()), store.Options{Seal: sealing, KeepSent: p.keepSent(), MaxDeadBytes: p.settings.Dead.MaxBytes, Log: p.log.Named("store"), Observe: observeCommits(p.metrics)})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	if err := servesAlone(db, p.settings.Tenants); err != nil {
		return errors.Join(err, db.Close())
	}
	p.db = db
	return p.findRestored()
}

// servesAlone refuses other tenants on a store restored from one tenant's backup, because
// their instances would start a second time without their history.
func servesAlone(db *store.DB, tenants []string) error {
	of := db.Tenant()
	if of == "" || slices.Equal(tenants, []string{of}) {
		return nil
	}
	return edda.Classify(edda.Permanent, "this store was restored from a backup of the tenant %s and has nothing of others: run it with tenants: [%s] (--tenants %s), or name another --data", of, of, of)
}

// parts lists the parts of the process. A stage starts when the stages that stop after it
// are ready, so that a part can use what they have made.
func (p *process) parts(l loaded) []lifecycle.Part {
	parts := []lifecycle.Part{
		{Name: "http", Stage: lifecycle.HTTP, Run: p.server.Run},
		{Name: "store", Stage: lifecycle.Store, Run: p.db.Run, Close: p.closeStore,
			Ready: func(context.Context) error { return p.adopt(l) }},
		{Name: "pulse", Stage: lifecycle.Connections, Run: p.liveness.Run},
		{Name: "upkeep", Stage: lifecycle.Connections, Run: p.maintenance.Run},
	}
	if p.settings.streams() {
		parts = append(parts, lifecycle.Part{Name: "nats", Stage: lifecycle.Connections, Run: p.holdConnection, Ready: p.join},
			lifecycle.Part{Name: "streams", Stage: lifecycle.Connections, Run: p.watchStreams})
	}
	parts = append(parts, p.heroParts()...)
	if p.settings.sagas() {
		parts = append(parts, p.sagaParts()...)
	}
	if p.settings.sagas() && p.restored {
		parts = append(parts, p.restoredPart())
	}
	if p.settings.effects() {
		parts = append(parts, lifecycle.Part{Name: "effects", Stage: lifecycle.InFlight,
			Ready: p.recoverEffects,
			Run:   func(ctx context.Context) error { return p.pipeline.Load().worker.Run(ctx) }})
	}
	if p.settings.handoff() {
		parts = append(parts, lifecycle.Part{Name: "handoff", Stage: lifecycle.Flush,
			Run:    func(ctx context.Context) error { return p.pipeline.Load().handoff.Run(ctx) },
			Finish: func(ctx context.Context) error { return p.pipeline.Load().handoff.Flush(ctx) }})
	}
	return append(parts, lifecycle.Part{Name: "start", Stage: lifecycle.Intake, Run: p.announced})
}

// watchStreams watches the streams when JetStream is reached.
func (p *process) watchStreams(ctx context.Context) error {
	select {
	case <-p.joined:
		p.metrics.MustRegister(&streamCollector{p.pipeline.Load().watch})
		return p.pipeline.Load().watch.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

func (p *process) sagaParts() []lifecycle.Part {
	return []lifecycle.Part{
		{Name: "outbox", Stage: lifecycle.Flush,
			Run:    func(ctx context.Context) error { return p.pipeline.Load().relay.Run(ctx) },
			Finish: p.flush},
		{Name: "source", Stage: lifecycle.InFlight,
			Run: func(ctx context.Context) error { return p.pipeline.Load().source.Run(ctx) }},
		{Name: "engine", Stage: lifecycle.Intake,
			Run:    func(ctx context.Context) error { return p.pipeline.Load().engine.Run(ctx) },
			Finish: func(ctx context.Context) error { return p.pipeline.Load().engine.Drain(ctx) }},
		{Name: "scheduler", Stage: lifecycle.Intake, Run: p.schedule},
		{Name: "replay", Stage: lifecycle.Intake, Run: func(ctx context.Context) error { return p.pipeline.Load().replayer.Run(ctx) }},
	}
}

// announced announces that all parts have started.
func (p *process) announced(ctx context.Context) error {
	if cut := p.db.CutWAL(); cut != "" {
		p.audited(ctx, server.Actor{By: "edda"}, "open", cut)
	}
	if p.announce != nil {
		p.announce()
	}
	<-ctx.Done()
	return nil
}

// schedule runs the scheduler. The scheduler returns when the engine stops taking inputs;
// that is no failure, so schedule then waits for ctx.
func (p *process) schedule(ctx context.Context) error {
	if err := p.pipeline.Load().scheduler.Run(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// outboxWithin is less than the limit of the stage, because the relay needs time to end.
const outboxWithin = 4 * time.Second

// flush delivers the outbox. Work that a destination does not accept stays in the outbox
// until the next start; that is no failure of the stop.
func (p *process) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, outboxWithin)
	defer cancel()
	if err := p.pipeline.Load().relay.Flush(ctx); err != nil {
		rows, _ := p.db.OutboxSize()
		p.log.Warn("work stays in the outbox until the next start", zap.Int("rows", rows), zap.Error(err))
	}
	return nil
}

// Run runs the process until ctx ends, a drain begins or a part fails.
func (p *process) Run(ctx context.Context) error {
	defer p.tracing.close(p.log)
	return p.group.Run(ctx)
}

func (p *process) partStopped(part lifecycle.Part, took time.Duration, err error) {
	p.log.Info("stopped", zap.String("part", part.Name), zap.Duration("took", took), zap.Error(err))
}
