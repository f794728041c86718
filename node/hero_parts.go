package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/engine"
	"edda/hero"
	"edda/hero/coordinator"
	"edda/hero/dispatcher"
	"edda/hero/flow"
	"edda/hero/flowsaga"
	"edda/hero/mycelium"
	"edda/hero/router"
	"edda/internal/lifecycle"
	"edda/saga"
	"edda/server"
	"edda/store"
)

// heroSide holds the parts that the roles coordinator and runner add to a process.
type heroSide struct {
	flows       *flowsaga.Client
	coordinator *coordinator.Coordinator
	watch       *coordinator.JobWatch
	router      *router.Router
	releaser    *dispatcher.Releaser
	mesh        *mesh
	standIn     *StandIn
	works       *works
}

// tenantOfFlows returns the tenant of the flows' instances.
func (c Config) tenantOfFlows() string {
	if !c.Tenancy.Enabled {
		return ""
	}
	return c.Hero.Tenant
}

// deciders returns the sagas of the manifests, and the flows if they run in this process.
func (p *process) deciders(set *saga.Set) engine.Sagas {
	if !p.settings.coordinator() {
		return set
	}
	return flowsaga.With(set)
}

// buildHero makes the parts of the roles without running them. It binds their addresses, so
// that an address in use fails the start.
func (p *process) buildHero() error {
	if !p.settings.coordinator() && !p.settings.runner() {
		return nil
	}
	if err := p.openStandIn(); err != nil {
		return err
	}
	var err error
	p.hero.mesh = p.newMesh()
	if p.settings.coordinator() {
		if err := p.buildCoordinator(); err != nil {
			return err
		}
	}
	if p.settings.runner() {
		p.hero.works, err = p.newWorks()
	}
	return err
}

func (p *process) buildCoordinator() error {
	h := &p.hero
	tokens, err := readActorTokens(p.settings.Hero.API.Tokens)
	if err != nil {
		return &ConfigError{err}
	}
	if n := len(tokens.plain); n > 0 {
		p.log.Warn("hero.api.tokens has tokens in plain text, which whoever reads the file can use: that is for development; edda token create --actor N makes lines with hashes",
			zap.String("file", p.settings.Hero.API.Tokens), zap.Int("plain", n))
	}
	h.flows = flowsaga.NewClient(p.settings.tenantOfFlows(), p, p.db, func(err error) bool { return errors.Is(err, server.ErrDuplicate) })
	h.coordinator, err = coordinator.New(p.redis, h.flows, coordinator.Options{
		HTTPAddr: p.settings.Hero.API.httpAddr(), WSAddr: p.settings.Hero.API.wsAddr(), Tokens: tokens.plain, Hashes: tokens.hashes,
		Secrets: p.settings.Hero.Runner.Secrets, ScriptTypes: p.scriptTypes(), Mycelium: h.mesh.check, Version: p.settings.Build.Version,
		Log: p.log.Named("coordinator"), Metrics: p.metrics,
	})
	if err != nil {
		return &ConfigError{err}
	}
	h.watch = coordinator.NewWatch(p.redis, underWay{p}, h.flows, p.log.Named("watch"))
	o := router.Options{Flows: h.flows, Runs: h.coordinator, Metrics: p.metrics, Log: p.log.Named("router")}
	if h.mesh != nil {
		o.Mesh, o.State = h.mesh.hub, h.mesh.api.Status
	}
	if h.router, err = router.New(p.redis, o); err != nil {
		return err
	}
	if err := p.receiveMessages(); err != nil {
		return err
	}
	shared, err := p.redis.Client(0) // the database of the dispatcher's jobs
	if err != nil {
		return err
	}
	if h.releaser, err = dispatcher.NewReleaser(shared, p.metrics, p.log.Named("dispatcher")); err != nil {
		return err
	}
	if err := h.coordinator.Listen(); err != nil {
		return fmt.Errorf("%w; is another coordinator running? Choose another --api-http-port or --api-ws-port", err)
	}
	return nil
}

// receiveMessages receives messages of other nodes for actors of this Redis.
func (p *process) receiveMessages() error {
	if p.hero.mesh == nil {
		return nil
	}
	receiver, err := p.hero.router.Receiver()
	if err != nil {
		return err
	}
	return p.hero.mesh.hub.Serve(router.MessageTopic, receiver.HandleMessage)
}

// scriptTypes returns the types that the runner's interpreters add.
func (p *process) scriptTypes() []hero.ScriptType {
	var out []hero.ScriptType
	for name := range p.settings.Hero.Runner.Interpreters {
		out = append(out, hero.ScriptType(name))
	}
	return out
}

// mesh connects this process to Mycelium.
type mesh struct {
	api mycelium.API
	hub *mycelium.Hub

	mu    sync.Mutex // guards the fields below
	asked time.Time
	last  error
}

// checkEvery is the least interval between two requests of the health check to Mycelium.
const checkEvery = time.Second

// newMesh returns nil if Mycelium is switched off, and for a runner alone without a secret,
// which takes no jobs from Mycelium.
func (p *process) newMesh() *mesh {
	c := p.settings.Hero.Mycelium
	if !c.Enabled || !p.settings.coordinator() && p.settings.Hero.Supervisor.Secret == "" {
		return nil
	}
	m := &mesh{api: mycelium.NewRPC(c.address())}
	if c.Protocol == protocolREST {
		m.api = mycelium.NewREST(c.address())
	}
	o := mycelium.Options{Log: p.log.Named("mycelium"), Count: p.countMessages()}
	if p.settings.coordinator() {
		o.Listen = []string{hero.SupervisorTopic, router.MessageTopic} // some supervisors answer on these topics
	}
	m.hub = mycelium.NewHub(m.api, o)
	return m
}

// openStandIn binds the addresses of edda dev's stand-in for Mycelium: one node, at
// Mycelium's own addresses.
func (p *process) openStandIn() error {
	if !p.settings.StandIn {
		return nil
	}
	at := func(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
	var err error
	p.hero.standIn, err = NewStandIn(StandInNode{Name: standInName, RPC: at(MyceliumPort), REST: at(MyceliumRESTPort)})
	if err != nil {
		return fmt.Errorf("%w; is Mycelium itself running? Then say --mycelium-port %d", err, MyceliumPort)
	}
	return nil
}

// check reports whether Mycelium answers.
func (m *mesh) check(ctx context.Context) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.asked) < checkEvery {
		return m.last
	}
	_, m.last = m.api.Status(ctx, unknownMessage)
	m.asked = time.Now()
	return m.last
}

// unknownMessage is the id of no message. A question about it shows whether Mycelium
// answers.
const unknownMessage = "0000000000000000"

// heroParts lists the loops of the roles coordinator and runner.
func (p *process) heroParts() []lifecycle.Component {
	var parts []lifecycle.Component
	if p.redis != nil {
		parts = append(parts, lifecycle.Component{Name: "redis", Stage: lifecycle.Store, Run: p.holdRedis})
	}
	h := &p.hero
	if h.standIn != nil {
		parts = append(parts, lifecycle.Component{Name: "stand-in for mycelium", Stage: lifecycle.Connections, Run: h.standIn.Run})
	}
	if h.mesh != nil {
		parts = append(parts, lifecycle.Component{Name: "mycelium", Stage: lifecycle.InFlight, Run: h.mesh.hub.Run})
	}
	if h.coordinator != nil {
		parts = append(parts,
			// It answers before NATS is reached: objects need Redis alone, and the start of a
			// flow fails with the reason.
			lifecycle.Component{Name: "coordinator", Stage: lifecycle.Connections, Run: h.coordinator.Run},
			lifecycle.Component{Name: "router", Stage: lifecycle.Intake, Run: h.router.Run},
			lifecycle.Component{Name: "dispatcher", Stage: lifecycle.Intake, Run: h.releaser.Run},
			lifecycle.Component{Name: "watch", Stage: lifecycle.Intake, Run: h.watch.Run})
	}
	if h.works != nil {
		parts = append(parts, h.works.parts()...)
	}
	return parts
}

// heroHealth adds the needs of the roles to the health of a process.
func (p *process) heroHealth(ctx context.Context, components map[string]server.ComponentStatus) {
	if p.redis != nil {
		components["redis"] = component(p.redis.Ping(ctx))
	}
	if p.hero.mesh != nil {
		components["mycelium"] = component(p.hero.mesh.check(ctx))
	}
}

// logHero logs the addresses of the roles.
func (p *process) logHero() {
	if c := p.hero.coordinator; c != nil {
		p.log.Info("coordinator listens", zap.String("http", c.HTTPAddr()), zap.String("websocket", c.WSAddr()))
	}
}

// flowsPage is the number of flows that are read at once.
const flowsPage = 1000

// underWay lists the running flows.
type underWay struct{ p *process }

// Running calls visit in the order of the keys.
func (r underWay) Running(ctx context.Context, visit func(flow.State) error) error {
	q := store.Query{Tenant: r.p.settings.tenantOfFlows(), Saga: flowsaga.Saga, Status: edda.StatusRunning, Limit: flowsPage}
	for {
		page, err := r.p.db.Instances(q)
		if err != nil {
			return fmt.Errorf("look for running flows: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		q.After = page[len(page)-1].Key
		if err := r.p.hero.flows.Running(page, visit); err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}
