package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"edda"
	"edda/effects"
	"edda/engine"
	"edda/handoff"
	"edda/hero/msgout"
	"edda/internal/backoff"
	"edda/outbox"
	"edda/replay"
	"edda/scheduler"
	"edda/store"
	"edda/stream"
	"edda/stream/kv"
	"edda/stream/wire"
)

// joinAgain is the delay between attempts to reach JetStream.
const joinAgain = time.Second

const (
	// releaseWithin bounds the release of the lease. Without a release a process on another
	// host waits some seconds.
	releaseWithin = time.Second
	// leaveWithin bounds the release of the leases and the close of the connections together.
	leaveWithin = 3 * time.Second
)

// pipeline holds the parts that work on the streams, from the source to the effect worker.
// join builds it completely before it stores it in process.pipeline.
type pipeline struct {
	embedded *kv.Embedded  // only in edda dev
	nats     kv.Connection // options of conn
	conn     *nats.Conn
	js       jetstream.JetStream
	// streamsOf is the store for which it creates streams; see [stream.StreamOptions].
	streamsOf string
	durable   []kv.Durability
	lease     *kv.Lease // of the saga worker, on its tenants
	// workerLease is the lease of the effect worker, on its commands.
	workerLease *kv.Lease
	fences      fences       // of both leases
	tail        *stream.Tail // nil: the server syncs before it acknowledges
	watch       *stream.Watch
	warned      bool // checkRetention has logged its warning
	codec       wire.Codec
	publisher   *stream.Publisher
	source      *stream.Source
	engine      *engine.Engine
	scheduler   *scheduler.Scheduler
	replayer    *replay.Replayer
	relay       *outbox.Relay
	handoff     *handoff.Handoff // nil: effect commands go through their stream
	worker      *effects.Worker
	ledger      *kv.Ledger    // nil: the store's
	commands    commandSource // the source of the worker
	providers   map[string]effects.Provider
}

// join connects to JetStream and builds the pipeline. It returns an error that no retry
// can fix. Otherwise it retries until ctx ends, and /health shows the problem.
func (p *process) join(ctx context.Context) error {
	l := &pipeline{}
	if err := p.connect(ctx, l); err != nil {
		l.close()
		return err
	}
	for told := ""; ; {
		err := p.build(ctx, l)
		if err == nil {
			p.pipeline.Store(l)
			close(p.joined)
			return nil
		}
		if errors.Is(err, edda.Permanent) || p.settings.Dev && !errors.Is(err, stream.ErrAwaited) || ctx.Err() != nil {
			l.close()
			return err
		}
		p.apart.Store(&err)
		say := "waiting for NATS with JetStream: is it running? --nats-url, NATS_URL or NATS_CONTEXT say where"
		if errors.Is(err, stream.ErrAwaited) {
			say = "the streams are not made by this process"
		}
		if told != say {
			p.log.Warn(say, zap.Error(err))
			told = say
		}
		if backoff.Wait(ctx, joinAgain) != nil {
			l.close()
			return ctx.Err()
		}
	}
}

func (p *process) connect(ctx context.Context, l *pipeline) error {
	c := p.settings.Connection().FromEnv(p.settings.Env)
	c.Log = p.log.Named("nats")
	if p.settings.Dev {
		e, err := kv.StartEmbedded(ctx, kv.EmbeddedOptions{
			Dir: filepath.Join(p.settings.Data, "nats"), Addr: p.settings.NATSAddr, SyncAlways: p.settings.SyncStreams, MaxPayload: devPayload, Log: p.log.Named("nats"),
		})
		if err != nil {
			return err
		}
		l.embedded, c = e, kv.Connection{Server: e.Server(), Log: c.Log}
	}
	var err error
	l.nats = c
	l.conn, l.js, err = kv.Connect(c)
	return err
}

// Connection returns the configured NATS connection.
func (c Config) Connection() kv.Connection {
	n := c.NATS
	return kv.Connection{URL: n.URL, Context: n.Context, Creds: n.Creds, NKey: n.NKey, User: n.User,
		Password: n.Password, Token: n.Token, Cert: n.Cert, Key: n.Key, CA: n.CA}
}

func (c Config) codec() (wire.Codec, error) {
	mappings, err := c.mappings()
	return wire.Codec{Grammar: wire.Grammar{NoTenancy: !c.Tenancy.Enabled}, AsCloudEvents: c.Streams.CloudEvents, Mappings: mappings}, err
}

func (p *process) build(ctx context.Context, l *pipeline) error {
	s := p.settings
	codec, err := s.codec()
	if err != nil {
		return err
	}
	codec.MaxPayload = payloadLimit(s.Streams.MaxPayload, l.conn)
	if err := p.present(ctx, l); err != nil {
		return err
	}
	if !s.sagas() {
		if err := stream.Await(ctx, l.js); err != nil {
			return err
		}
	}
	if l.streamsOf, err = p.streamsOf(ctx, l.js); err != nil {
		return err
	}
	if l.durable, err = stream.EnsureStreams(ctx, l.js, stream.StreamOptions{
		Store: l.streamsOf, Grammar: codec.Grammar, Replicas: s.replicas(), MinReplicas: s.minReplicas(), Age: s.Streams.Age, Duplicates: s.Streams.Duplicates, SyncAlways: s.Dev && s.SyncStreams,
	}); err != nil {
		return err
	}
	p.logDurability(l)
	l.codec = codec
	l.publisher = stream.NewPublisher(l.js, codec)
	l.publisher.Fence(func(ctx context.Context) error { return l.fences.pass(ctx) }) // the leases come later
	if s.handoff() {
		l.handoff = handoff.New(codec, l.publisher, s.Tenants, p.log.Named("handoff"))
	}
	if s.sagas() {
		if err := p.buildSagas(ctx, l); err != nil {
			return err
		}
	}
	if s.effects() {
		if err := p.buildEffects(ctx, l); err != nil {
			return err
		}
	}
	var again func()
	if l.source != nil {
		again = l.source.Recheck
	}
	var remake func(context.Context) error
	if l.ledger != nil {
		remake = func(ctx context.Context) error { return p.remakeLedger(ctx, l.ledger) }
	}
	watched := codec.Mappings
	if !s.sagas() {
		watched = nil
	}
	l.watch = stream.NewWatch(l.js, watched, again, remake, p.log.Named("streams"))
	if l.tail != nil {
		l.watch.Follow(l.tail)
	}
	return nil
}

// present refuses the start if a stream with a checkpoint is missing. A new stream in its
// place would block its restore.
func (p *process) present(ctx context.Context, l *pipeline) error {
	if !p.settings.sagas() || p.settings.AcceptStreamLoss {
		return nil
	}
	held, err := p.db.Checkpoints()
	if err != nil {
		return edda.Classify(edda.Permanent, "read the positions: %w", err)
	}
	codec, err := p.settings.codec()
	if err != nil {
		return err
	}
	return stream.Present(ctx, l.js, codec, held)
}

// devPayload is the payload limit of the embedded NATS. It is larger than Edda's limit, so
// that a message that is too large becomes a dead letter.
const devPayload = 8 << 20

// payloadLimit is the configured limit, but at most the limit of the server.
func payloadLimit(configured int, conn *nats.Conn) int {
	limit := cmp.Or(configured, wire.DefaultMaxPayload)
	if max := int(conn.MaxPayload()); max > 0 {
		limit = min(limit, max)
	}
	return limit
}

func (p *process) logDurability(l *pipeline) {
	for _, d := range l.durable {
		if d.Note != "" {
			p.log.Info("stream", zap.String("stream", d.Stream), zap.Bool("created", d.Created), zap.String("note", d.Note))
		}
	}
}

func (p *process) buildSagas(ctx context.Context, l *pipeline) error {
	if err := p.acquire(ctx, l); err != nil {
		return err
	}
	if err := p.keepAdopted(ctx); err != nil {
		return err
	}
	if err := p.openSource(ctx, l); err != nil {
		return err
	}
	if err := p.followSent(ctx, l); err != nil {
		return err
	}
	routes, err := p.routes(l)
	if err != nil {
		return err
	}
	l.relay, err = outbox.New(p.db, outbox.Options{
		Routes: routes, Fence: l.mayPublish, Marks: l.marks, Rejecter: l.publisher, Max: p.settings.Outbox.Max, Log: p.log.Named("outbox"), Metrics: p.metrics,
		After: p.afterRestore(l),
	})
	if err != nil {
		return edda.Classify(edda.Permanent, "outbox: %w", err)
	}
	l.engine = engine.New(l.source, p.db, p.deciders(p.set), engine.Options{
		Destinations: destinations(routes), MaxOutbox: p.settings.Outbox.Max, MaxParked: p.settings.Parked.Max, Log: p.log.Named("engine"), Registry: p.metrics,
		Observe: p.observe(), CatchUp: p.catchingUp(l), UnheardLevel: p.unheardLevel(), Shard: p.settings.share.Shard,
	})
	l.replayer = p.replays(l)
	l.scheduler = scheduler.New(p.db, l.engine, scheduled{p.set, p.settings.Tenants, p.settings.tenant()}, scheduler.Options{Log: p.log.Named("scheduler")})
	l.conn.SetReconnectHandler(func(c *nats.Conn) {
		p.log.Info("nats is connected again", zap.String("url", l.nats.ConnectedTo(c)))
		l.source.Recheck()
		l.relay.Republish()
	})
	return nil
}

// observe returns what gets every durable transition.
func (p *process) observe() func([]edda.Transition) {
	if p.guide == nil {
		return p.Quarantine.Observe
	}
	return func(ts []edda.Transition) {
		p.Quarantine.Observe(ts)
		p.guide.observe(ts)
	}
}

// unheardLevel is higher in development: in production sagas may hear few of many types.
func (p *process) unheardLevel() zapcore.Level {
	if p.settings.Dev {
		return zapcore.WarnLevel
	}
	return zapcore.InfoLevel
}

// acquire takes the lease that keeps a second saga process off the same tenants, because
// the file lock of the store does not reach other machines.
func (p *process) acquire(ctx context.Context, l *pipeline) error {
	if l.lease != nil {
		return l.lease.Renew(ctx) // an earlier attempt acquired it
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	l.lease, err = kv.AcquireLease(ctx, l.js, kv.LeaseOptions{
		Store: p.db.ID(), Host: host, Process: ulid.Make().String(), Epoch: p.stay.epoch(), File: p.lockedFile(), Tenants: p.settings.Tenants, Share: p.settings.share,
		MadeOf: p.db.MadeOf, AdoptEmpty: p.settings.AdoptEmpty,
		Replicas: p.settings.replicas(), MinReplicas: p.settings.minReplicas(), Memory: p.settings.Dev, Log: p.log.Named("lease"),
	})
	return p.fenced(l, "saga", l.lease, err)
}

// fenced adds the fence of a new lease. From now on every write must pass it.
func (p *process) fenced(l *pipeline, of string, lease *kv.Lease, err error) error {
	if err != nil {
		return err
	}
	p.metrics.MustRegister(leaseGauge(of, lease))
	l.fences = append(slices.Clip(l.fences), lease.Fence())
	if p.stay != nil && lease == l.lease {
		l.fences = append(l.fences, p.stay.nodes.Load().Fence())
	}
	p.db.Fence(l.fences.commits)
	return nil
}

// fences are the fences of all leases of a process.
type fences []*kv.Fence

// pass returns nil if all leases are held.
func (f fences) pass(ctx context.Context) error {
	for _, fence := range f {
		if err := fence.Pass(ctx); err != nil {
			return err
		}
	}
	return nil
}

// commits is pass for the commits of the store, which this process ends once another one has taken over.
func (f fences) commits(ctx context.Context) error {
	err := f.pass(ctx)
	if outlived(err) {
		return fmt.Errorf("%w: %w", store.ErrBroken, err)
	}
	return err
}

// open reports whether all leases are held, without asking the server.
func (f fences) open() bool {
	return !slices.ContainsFunc(f, func(fence *kv.Fence) bool { return !fence.Open() })
}

// keepLease renews the lease until ctx ends, then releases it. Without a connection nobody hears that, and a call would
// wait for the attempt to connect that is under way, as the close of the connection does next.
func (p *process) keepLease(ctx context.Context, conn *nats.Conn, lease *kv.Lease) error {
	if err := lease.Run(ctx); err != nil {
		return err
	}
	if !conn.IsConnected() {
		p.log.Warn("the lease runs out by itself", zap.Error(nats.ErrDisconnected))
		return nil
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	if err := lease.Release(release); err != nil {
		p.log.Warn("the lease runs out by itself", zap.Error(err))
	}
	return nil
}

// openSource checks the checkpoints against the streams and opens the source. It commits
// the start positions before the source takes the first event.
func (p *process) openSource(ctx context.Context, l *pipeline) error {
	held, err := p.db.Checkpoints()
	if err != nil {
		return edda.Classify(edda.Permanent, "read the positions: %w", err)
	}
	l.source, err = stream.OpenSource(ctx, l.js, held, stream.SourceOptions{
		Codec: l.codec, Name: p.db.ID(), Epoch: p.stay.epoch(), Tenants: p.settings.Tenants, From: p.from(), Begin: p.settings.begin(), Store: l.streamsOf, Agree: p.beginsWith(l.js),
		AcceptLoss: p.settings.AcceptStreamLoss, Committed: p.db.Checkpoints, Restored: p.restored, Log: p.log.Named("source"),
		Strays: p.strays, Fence: l.fences.pass,
	})
	if err != nil {
		return err
	}
	begin, err := p.begin(ctx, l, p.set, held)
	if err != nil {
		return err
	}
	begin.tell(p.log)
	p.said = begin.said
	change := begin.change()
	change.Checkpoints = l.source.Start()
	for _, what := range l.lease.Adopted() {
		p.log.Warn("tenants were taken over without their instances", zap.String("from", what))
		change.Audits = append(change.Audits, store.Audit{Time: time.Now(), By: "adopt-empty", Verb: "adopt", Detail: what})
	}
	losses := l.source.Losses()
	for _, loss := range losses {
		said, act := "accepted the loss of stream messages", store.Audit{Time: time.Now(), By: "accept-stream-loss", Verb: "accept", Detail: loss.Accepted()}
		if loss.Handled {
			said, act.By, act.Verb = "the NATS server lost the end of a stream, all of which was handled; reading goes on", "edda", "resume"
		}
		p.log.Warn(said, zap.String("what", loss.Accepted()), zap.Uint64("next", loss.Resume.Seq+1))
		change.Audits = append(change.Audits, act)
	}
	if err := p.db.Commit(ctx, change); err != nil {
		return fmt.Errorf("write the positions: %w", err)
	}
	for _, loss := range losses {
		if loss.Handled {
			p.resumed.WithLabelValues(loss.Checkpoint.Stream).Inc()
		}
	}
	return nil
}

// from is where reading begins in a stream without a checkpoint. It is the first message if
// the configuration or a saga says from: all.
func (p *process) from() stream.From {
	if p.settings.Streams.From != "" {
		return stream.From(p.settings.Streams.From)
	}
	for _, program := range p.set.Programs() {
		if program.Manifest().From == "all" {
			return stream.FromAll
		}
	}
	return stream.FromNow
}

// routes lists the destinations of the outbox and their kinds of work.
func (p *process) routes(l *pipeline) ([]outbox.Route, error) {
	var routes []outbox.Route
	if p.redis != nil {
		routes = append(routes, p.messages().Route())
	}
	routes = append(routes, outbox.Route{Name: "jetstream", Kinds: p.settings.published(), Destination: l.streams()})
	if p.settings.Gateway.URL == "" {
		return routes, nil
	}
	gateway, err := p.gateway()
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "gateway: %w", err)
	}
	return append(routes, gateway.Route()), nil
}

// published lists the kinds of work that go to the streams.
func (c Config) published() []edda.WorkKind {
	kinds := []edda.WorkKind{edda.WorkEffect, edda.WorkRevoke, edda.WorkFact, edda.WorkStart, edda.WorkCancel, edda.WorkEnd, edda.WorkResult}
	if c.Gateway.URL == "" {
		kinds = append(kinds, edda.WorkCommand)
	}
	return kinds
}

// streams returns the destination of published work. With a hand-off, effect commands go
// to the worker of this process.
func (l *pipeline) streams() outbox.Destination {
	if l.handoff != nil {
		return l.handoff
	}
	return l.publisher
}

// messages returns the destination of Hero messages and of flows.
func (p *process) messages() *msgout.Destination {
	if p.hero.flows == nil {
		return msgout.New(p.redis, nil)
	}
	return msgout.New(p.redis, p.hero.flows)
}

func (p *process) gateway() (*outbox.Gateway, error) {
	g := p.settings.Gateway
	tls, err := ClientTLS(g.Cert, g.Key, g.CA)
	if err != nil {
		return nil, err
	}
	o := outbox.GatewayOptions{URL: g.URL, Path: g.Path, Timeout: g.Timeout, TLS: tls}
	if g.TokenFile != "" {
		o.Token = outbox.TokenFile(g.TokenFile)
	}
	return outbox.NewGateway(o)
}

// holdConnection keeps the connection and the leases until the parts that use them have
// stopped.
func (p *process) holdConnection(ctx context.Context) error {
	select {
	case <-p.joined:
	case <-ctx.Done():
	}
	l := p.pipeline.Load()
	if l == nil {
		return nil // join has closed the connection
	}
	defer l.closeEmbedded()
	ended := make(chan error, 1)
	go func() {
		err := p.keepLeases(ctx, l.conn, l.leases()...)
		l.closeConnections()
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// An attempt to connect holds the client's lock for 2 s. Until then nothing is released or closed, whatever its context
	// says. A stop has no time for several attempts; what waits for them ends by itself.
	select {
	case err := <-ended:
		return err
	case <-time.After(leaveWithin):
		p.log.Warn("the connection to NATS is left as it is: the client is connecting, and leases run out by themselves")
		return nil
	}
}

// leases lists the held leases.
func (l *pipeline) leases() []*kv.Lease {
	return slices.DeleteFunc([]*kv.Lease{l.lease, l.workerLease}, func(lease *kv.Lease) bool { return lease == nil })
}

func (l *pipeline) close() {
	l.closeConnections()
	l.closeEmbedded()
}

func (l *pipeline) closeConnections() {
	for _, p := range l.providers {
		if p, keeps := p.(interface{ Close() }); keeps {
			p.Close() // close its connections
		}
	}
	if l.conn != nil {
		hangUp(l.conn)
	}
}

func (l *pipeline) closeEmbedded() {
	if l.embedded != nil {
		l.embedded.Close()
	}
}
