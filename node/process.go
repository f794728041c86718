package node

import (
	"context"
	"errors"
	"fmt"
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
	"edda/effects/mockeffect"
	"edda/hero/redisdb"
	"edda/internal/lifecycle"
	"edda/node/operator"
	"edda/node/versions"
	"edda/saga"
	"edda/server"
	"edda/store"
	"edda/stream"
	"edda/stream/wire"
)

// Settings are the configuration of a process and what its command adds.
type Settings struct {
	Config
	// Dev means edda dev: one folder, an embedded NATS, a default tenant, versions whose
	// text may change, effects that may call loopback.
	Dev bool
	// Find lists the manifests of each load; nil means those of the configuration.
	Find     func() ([]string, error)
	NATSAddr string // where the embedded NATS listens
	// SyncStreams has the embedded NATS sync each message, which costs one disk write
	// per message. Without it the server syncs every five seconds.
	SyncStreams bool
	// StandIn starts a stand-in for Mycelium in this process.
	StandIn bool
	// Mock answers effects from the manifests' tests, and shows hints. It needs Dev.
	Mock bool
	Env  func(name string) string
	// Reread reads the configuration again; nil without a configuration. Its calls are never concurrent.
	Reread func() (Config, error)
	Build  server.Build // of this program
	// share is the shard that the store has, and front the server of its node; zero for a store with all keys.
	share edda.Share
	front *front
}

// tenant is the default tenant of a call.
func (s Settings) tenant() string {
	if s.Dev && s.Tenancy.Enabled {
		return DevTenant
	}
	return ""
}

// DevTenant is the default tenant of a process with [Settings.Dev].
const DevTenant = "default"

// process is one running Edda. It holds all parts and wires them together.
type process struct {
	settings Settings
	stay     *stay // in the cluster whose store this process owns; nil for a process that is alone
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
	// Quarantine is set when the store is open. The server calls it as [server.DeadLetters].
	*operator.Quarantine
	strays      *stream.Strays
	resumed     *prometheus.CounterVec      // how often a stream had lost a handled suffix
	remade      prometheus.Counter          // how often the shared ledger was lost and created again
	republished prometheus.Counter          // messages that the server had lost
	synced      atomic.Bool                 // the server syncs before it acknowledges
	tail        atomic.Pointer[stream.Tail] // what was published last; nil until it is known
	// redis is nil if nothing uses Redis. embeddedRedis is the one of edda dev.
	redis         *redisdb.DB
	embeddedRedis *embeddedRedis
	hero          heroSide
	maintenance   *operator.Maintenance
	// mock and guide are nil without [Settings.Mock].
	mock  *mockeffect.Provider
	guide *guide
	texts *versions.Texts
	// pipeline is nil until JetStream is reached.
	pipeline atomic.Pointer[pipeline]
	joined   chan struct{}         // closed when pipeline is set
	apart    atomic.Pointer[error] // last error of join; nil before the first attempt
	// announce may be nil. It is called when all parts have started.
	announce func()
	// stopping may be nil. It is called when a stop begins; cause is nil if it was asked for.
	stopping func(cause error)

	handsOver bool // the stop ends the ownership of a cluster's store; set when it begins

	draining atomic.Bool // a caller asked for the stop; it is audited once

	loadedSagas atomic.Pointer[saga.Set] // set, for readers that do not hold reloading
	names       atomic.Pointer[versions.Names]

	said []string // which sagas catch up since the start; set before the pipeline starts

	serving sync.RWMutex // guards tenants
	tenants wire.Tenants

	reloading sync.Mutex // one reload at a time; guards the fields below
	set       *saga.Set
	effects   []*effects.Effect
	tested    testedRevision // in a node with several shards that of its front
}

// newProcess acquires what every part needs: the address, the folder and the store. It
// starts nothing. The manifests in l must have compiled.
func newProcess(s Settings, l loaded, log *zap.Logger, t *stay) (*process, error) {
	if s.Mock && !s.Dev {
		return nil, configf("effects are answered without their services only in edda dev")
	}
	p := &process{settings: s, stay: t, log: log, metrics: prometheus.NewRegistry(), started: time.Now(), run: ulid.Make().String(), effects: l.effects, joined: make(chan struct{})}
	p.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.serve(s.Tenants)
	p.openMock(l)
	p.strays = &stream.Strays{Log: log.Named("stream")}
	p.resumed, p.remade, p.republished = resumedCounter(), remadeCounter(), republishedCounter()
	if t != nil {
		t.metrics.register(p.metrics)
	}
	p.metrics.MustRegister(strayCounter(p.strays), p.resumed, p.remade, p.republished)
	var err error
	if p.tracing, err = newTracing(context.Background(), s, log); err != nil {
		return nil, err
	}
	if err := p.listen(); err != nil {
		return nil, err
	}
	if err := p.open(); err != nil {
		return nil, errors.Join(err, p.server.Close())
	}
	if err := errors.Join(p.openRedis(), p.buildHero(), p.buildMaintenance(), p.writeHolder()); err != nil {
		return nil, errors.Join(err, p.server.Close(), p.db.Close())
	}
	p.metrics.MustRegister(&instanceCollector{p.db}, &parkedCollector{p.db, s.Parked.Max})
	p.metrics.MustRegister(writtenCounters(p.db)...)
	p.metrics.MustRegister(diskGauge(p.db), buildGauge(s.Build))
	p.liveness = newLiveness(p.loops()...)
	p.group = lifecycle.New(lifecycle.Options{Stopping: p.stopBegins, Abandon: p.replaced, Stopped: p.partStopped}, p.parts(l)...)
	p.metrics.MustRegister(p.readyGauge())
	return p, nil
}

func (p *process) listen() error {
	var err error
	if p.guards, err = p.settings.openGuards(p.log); err != nil {
		return &ConfigError{err}
	}
	p.server, err = server.New(server.Options{
		Register: p.metrics,
		Tokens:   p.guards.tokens, Certificates: p.guards.certificates, TLSEnds: p.settings.TLS.Elsewhere,
		Addr: p.settings.Addr, ProbeAddr: p.settings.ProbeAddr, Build: p.settings.Build, Log: p.log, Metrics: p.metrics,
		Tenant: p.settings.tenant(), NoTenancy: !p.settings.Tenancy.Enabled, MaxPayload: p.settings.Streams.MaxPayload,
		Fence: p.mayRead, Process: p, DeadLetters: p, Inbox: p, Maintenance: p, Replays: p.replaysServed(), Mocks: p.mocksServed(), Cluster: p.stay.served(),
		Front: p.settings.front.shared(), Shard: p.settings.share.Index,
	})
	if err != nil {
		return &ConfigError{p.settings.callersVariable(err)}
	}
	return p.settings.listen(p.server)
}

// listen binds the addresses of a server.
func (s Settings) listen(on *server.Server) error {
	err := on.Listen()
	if err == nil {
		return nil
	}
	flags := "--addr"
	if s.ProbeAddr != "" {
		flags += " or --probe-addr"
	}
	return fmt.Errorf("%w; is another Edda running? Choose another %s%s", err, flags, s.addrVariables())
}

// callersVariable explains an error if EDDA_ADDR holds a URL: the variable names the
// address to listen on, not the server to call.
func (s Settings) callersVariable(err error) error {
	if addr := s.Env(envName("addr")); addr != s.Addr || !strings.Contains(addr, "://") {
		return err
	}
	return fmt.Errorf("%s=%s: it says where edda run and edda dev listen, as host:port; the server that commands call is named by EDDA_URL", envName("addr"), s.Addr)
}

// addrVariables names the variables that set the addresses, because a user without a flag
// does not know them. edda dev reads only EDDA_ADDR.
func (s Settings) addrVariables() (out string) {
	for _, v := range []struct{ key, addr string }{{"addr", s.Addr}, {"probe_addr", s.ProbeAddr}} {
		if name := envName(v.key); (!s.Dev || v.key == "addr") && v.addr != "" && s.Env(name) == v.addr {
			out += "; " + name + " names " + v.addr
		}
	}
	return out
}

// parts lists the parts of the process. A stage starts when the stages that stop after it
// are ready, so that a part can use what they have made.
func (p *process) parts(l loaded) []lifecycle.Component {
	parts := []lifecycle.Component{
		{Name: "http", Stage: lifecycle.HTTP, Run: p.server.Run},
		{Name: "store", Stage: lifecycle.Store, Run: p.db.Run, Close: p.closeStore,
			Ready: func(context.Context) error { return p.adopt(l) }},
		{Name: "pulse", Stage: lifecycle.Connections, Run: p.liveness.Run},
		{Name: "upkeep", Stage: lifecycle.Connections, Run: p.maintenance.Run},
	}
	if p.settings.streams() {
		parts = append(parts, lifecycle.Component{Name: "nats", Stage: lifecycle.Connections, Run: p.holdConnection, Ready: p.join},
			lifecycle.Component{Name: "streams", Stage: lifecycle.Connections, Run: p.watchStreams})
	}
	if p.stay != nil {
		parts = append(parts, lifecycle.Component{Name: "ownership", Stage: lifecycle.Connections, Run: p.keepOwning},
			lifecycle.Component{Name: "log", Stage: lifecycle.Connections, Run: p.stay.trim})
	}
	if p.guide != nil {
		parts = append(parts, lifecycle.Component{Name: "guide", Stage: lifecycle.Connections, Run: p.guide.run})
	}
	parts = append(parts, p.heroParts()...)
	if p.settings.sagas() {
		parts = append(parts, p.sagaParts()...)
	}
	if p.settings.sagas() && p.restored {
		parts = append(parts, p.restoredPart())
	}
	if p.settings.effects() {
		parts = append(parts, lifecycle.Component{Name: "effects", Stage: lifecycle.InFlight,
			Ready: p.recoverEffects,
			Run:   func(ctx context.Context) error { return p.pipeline.Load().worker.Run(ctx) }})
	}
	if p.settings.handoff() {
		parts = append(parts, lifecycle.Component{Name: "handoff", Stage: lifecycle.Flush,
			Run:    func(ctx context.Context) error { return p.pipeline.Load().handoff.Run(ctx) },
			Finish: func(ctx context.Context) error { return p.pipeline.Load().handoff.Flush(ctx) }})
	}
	return append(parts, lifecycle.Component{Name: "start", Stage: lifecycle.Intake, Run: p.announced})
}

// keepOwning ends the process when its node does not own the store any more.
func (p *process) keepOwning(ctx context.Context) error {
	return p.stay.keepOwning(ctx, p.sick, p.stay.bestCopy)
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

func (p *process) sagaParts() []lifecycle.Component {
	return []lifecycle.Component{
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
		p.audited(ctx, server.Operator{By: "edda"}, "open", cut)
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

func (p *process) stopBegins(cause error) {
	p.db.EndLinger()
	if p.stopping != nil {
		p.stopping(cause)
	}
}

// replaced reports whether the process stops because another node owns the store, or is to. Then it can commit
// nothing any more, and the sooner it ends, the sooner its node follows the log again.
func (p *process) replaced(cause error) bool {
	return p.stay != nil && (outlived(cause) || errors.Is(cause, errSick))
}

func (p *process) partStopped(part lifecycle.Component, took time.Duration, err error) {
	p.log.Info("stopped", zap.String("part", part.Name), zap.Duration("took", took), zap.Error(err))
}
