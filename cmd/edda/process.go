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
)

// settings are everything a process is told.
type settings struct {
	config
	// dev: one folder, an embedded NATS, a default tenant, manifests that may
	// change their text under one version, effects that may call loopback.
	dev      bool
	here     bool   // nobody named manifests: those of the folder that edda dev was started in
	natsAddr string // where the embedded NATS listens
	// syncStreams makes the embedded NATS sync each message by itself, which
	// costs a disk's write each; without it, it syncs every five seconds.
	syncStreams bool
	// standIn makes a stand-in for Mycelium within this process.
	standIn bool
	env     func(name string) string
	// reread reads the configuration again for a reload; nil where there is none.
	reread func() (config, error)
}

// tenant is meant where a call names none.
func (s settings) tenant() string {
	if s.dev && s.Tenancy.Enabled {
		return devTenant
	}
	return ""
}

// devTenant is the tenant of edda dev and edda send unless told otherwise.
const devTenant = "default"

// process is one running Edda: it holds everything and knows how it goes together.
type process struct {
	settings settings
	log      *zap.Logger
	metrics  *prometheus.Registry
	started  time.Time
	run      string // tells this start from all others
	db       *store.DB
	restored bool // the store is a backup that has still to catch up
	server   *server.Server
	guards   guards
	group    *lifecycle.Group
	tracing  tracing
	pulse    *pulse
	// letters keeps two acts on one dead letter from both looking first.
	letters     sync.Mutex
	quarantine  *quarantine
	strays      *stream.Strays
	resumed     *prometheus.CounterVec      // times that a stream had lost its handled end
	remade      prometheus.Counter          // times that the shared ledger was lost and made again
	republished prometheus.Counter          // messages that the server had lost
	synced      atomic.Bool                 // the server syncs before it acknowledges
	tail        atomic.Pointer[stream.Tail] // nil: it is not known yet what was published last
	// redis is nil where nothing talks to it; embeddedRedis is edda dev's own.
	redis         *redisdb.DB
	embeddedRedis *embeddedRedis
	hero          heroSide
	upkeep        *upkeep
	// line is what works on the streams; nil until JetStream was reached.
	line   atomic.Pointer[line]
	joined chan struct{}         // closed once there is a line
	apart  atomic.Pointer[error] // why there is none yet; nil until it was tried
	// announce, where set, is told once the line works.
	announce func()

	draining atomic.Bool // a caller asked for the stop; the audit has it once

	hearing  atomic.Pointer[saga.Set]        // says which facts are heard
	versions atomic.Pointer[map[text]string] // the names of texts that have one of their own

	said []string // which sagas are caught up since the start; set before the line works

	serving sync.RWMutex // guards tenants
	tenants stream.Tenants

	reloading sync.Mutex // one reload at a time; guards what follows
	set       *saga.Set
	effects   []*effects.Effect
}

// newProcess opens what must be had before anything starts: the address, the
// folder and the file. Nothing runs yet, and manifests are known to compile.
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
	if err := errors.Join(p.openRedis(), p.buildHero(), p.buildUpkeep()); err != nil {
		return nil, errors.Join(err, p.server.Close(), p.db.Close())
	}
	p.metrics.MustRegister(&instanceCollector{p.db}, &queueCollector{p.db, s.Dead.MaxBytes}, &parkedCollector{p.db, s.Parked.Max})
	p.metrics.MustRegister(writtenCounters(p.db)...)
	p.pulse = newPulse(p.loops()...)
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
		Process: p, Instances: p, DeadLetters: p, Inbox: p, Records: p, Upkeep: p, Replays: p.replaysServed(),
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

// callersVariable says, where the address to listen on is a URL that came from
// EDDA_ADDR, that the variable names no server to call.
func (s settings) callersVariable(err error) error {
	if addr := s.env(envAddr); addr != s.Addr || !strings.Contains(addr, "://") {
		return err
	}
	return fmt.Errorf("%s=%s: it says where edda run and edda dev listen, as host:port; the server that commands call is named by %s", envAddr, s.Addr, envURL)
}

// addrVariables names the variables that the addresses come from, which whoever
// gave no flag would look for in vain. edda dev reads the first alone.
func (s settings) addrVariables() (out string) {
	for _, v := range []struct{ key, addr string }{{"addr", s.Addr}, {"probe_addr", s.ProbeAddr}} {
		if name := envName(v.key); (!s.dev || v.key == "addr") && v.addr != "" && s.env(name) == v.addr {
			out += "; " + name + " names " + v.addr
		}
	}
	return out
}

// open creates the folder and opens the store, which one process owns.
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

// servesAlone refuses to work for others on a store that has one tenant's rows:
// their instances would begin a second time, without their past.
func servesAlone(db *store.DB, tenants []string) error {
	of := db.Tenant()
	if of == "" || slices.Equal(tenants, []string{of}) {
		return nil
	}
	return edda.Classify(edda.Permanent, "this store was restored from a backup of the tenant %s and has nothing of others: run it with tenants: [%s] (--tenants %s), or name another --data", of, of, of)
}

// parts lists what runs. Each stage starts once the later ones are ready, so
// that Run of a part finds what those before it have made.
func (p *process) parts(l loaded) []lifecycle.Part {
	parts := []lifecycle.Part{
		{Name: "http", Stage: lifecycle.HTTP, Run: p.server.Run},
		{Name: "store", Stage: lifecycle.Store, Run: p.db.Run, Close: p.closeStore,
			Ready: func(context.Context) error { return p.adopt(l) }},
		{Name: "pulse", Stage: lifecycle.Connections, Run: p.pulse.Run},
		{Name: "upkeep", Stage: lifecycle.Connections, Run: p.upkeep.Run},
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
			Run:   func(ctx context.Context) error { return p.line.Load().worker.Run(ctx) }})
	}
	if p.settings.handoff() {
		parts = append(parts, lifecycle.Part{Name: "handoff", Stage: lifecycle.Flush,
			Run:    func(ctx context.Context) error { return p.line.Load().handoff.Run(ctx) },
			Finish: func(ctx context.Context) error { return p.line.Load().handoff.Flush(ctx) }})
	}
	return append(parts, lifecycle.Part{Name: "start", Stage: lifecycle.Intake, Run: p.announced})
}

// watchStreams looks at the streams once they are reached.
func (p *process) watchStreams(ctx context.Context) error {
	select {
	case <-p.joined:
		p.metrics.MustRegister(&streamCollector{p.line.Load().watch})
		return p.line.Load().watch.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

func (p *process) sagaParts() []lifecycle.Part {
	return []lifecycle.Part{
		{Name: "outbox", Stage: lifecycle.Flush,
			Run:    func(ctx context.Context) error { return p.line.Load().relay.Run(ctx) },
			Finish: p.flush},
		{Name: "source", Stage: lifecycle.InFlight,
			Run: func(ctx context.Context) error { return p.line.Load().source.Run(ctx) }},
		{Name: "engine", Stage: lifecycle.Intake,
			Run:    func(ctx context.Context) error { return p.line.Load().engine.Run(ctx) },
			Finish: func(ctx context.Context) error { return p.line.Load().engine.Drain(ctx) }},
		{Name: "scheduler", Stage: lifecycle.Intake, Run: p.schedule},
		{Name: "replay", Stage: lifecycle.Intake, Run: func(ctx context.Context) error { return p.line.Load().replayer.Run(ctx) }},
	}
}

// announced says that everything was started.
func (p *process) announced(ctx context.Context) error {
	if cut := p.db.CutLog(); cut != "" {
		p.audited(ctx, server.Actor{By: "edda"}, "open", cut)
	}
	if p.announce != nil {
		p.announce()
	}
	<-ctx.Done()
	return nil
}

// schedule runs the scheduler. It ends by itself when the engine takes no
// more, which is no failure of its own.
func (p *process) schedule(ctx context.Context) error {
	if err := p.line.Load().scheduler.Run(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// outboxWithin is less than its stage may take: the relay needs the rest to end.
const outboxWithin = 4 * time.Second

// flush carries out what can be; what a dead destination does not take stays
// in the outbox, which is no failure of a stop.
func (p *process) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, outboxWithin)
	defer cancel()
	if err := p.line.Load().relay.Flush(ctx); err != nil {
		rows, _ := p.db.OutboxSize()
		p.log.Warn("work stays in the outbox until the next start", zap.Int("rows", rows), zap.Error(err))
	}
	return nil
}

// Run runs the process until ctx ends, a drain, or a failure.
func (p *process) Run(ctx context.Context) error {
	defer p.tracing.close(p.log)
	return p.group.Run(ctx)
}

func (p *process) partStopped(part lifecycle.Part, took time.Duration, err error) {
	p.log.Info("stopped", zap.String("part", part.Name), zap.Duration("took", took), zap.Error(err))
}
