package main

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

	"edda"
	"edda/effects"
	"edda/engine"
	"edda/hero/msgout"
	"edda/internal/backoff"
	"edda/outbox"
	"edda/replay"
	"edda/scheduler"
	"edda/store"
	"edda/stream"
)

// joinAgain is the wait between attempts to use a JetStream that is not there (yet).
const joinAgain = time.Second

// releaseWithin bounds giving the lease back: without it the next process on
// another host waits some seconds.
const releaseWithin = time.Second

// line is everything that works on the streams.
type line struct {
	embedded *stream.Embedded  // edda dev
	nats     stream.Connection // how conn was made
	conn     *nats.Conn
	js       jetstream.JetStream
	durable  []stream.Durability
	lease    *stream.Lease // of the saga process on its tenants
	// workerLease is the effect worker's, on its commands.
	workerLease *stream.Lease
	fences      fences       // of both
	tail        *stream.Tail // nil: the server syncs before it acknowledges
	watch       *stream.Watch
	warned      bool // that commands outlive their claims
	codec       stream.Codec
	publisher   *stream.Publisher
	source      *stream.Source
	engine      *engine.Engine
	scheduler   *scheduler.Scheduler
	replayer    *replay.Replayer
	relay       *outbox.Relay
	handoff     *stream.Handoff // nil: effect commands go through their stream
	worker      *effects.Worker
	ledger      *stream.Ledger // nil: the store's
	commands    commandSource  // of the worker
	providers   map[string]effects.Provider
}

// join reaches JetStream and builds the line. What will not change by waiting
// is an error; for everything else it tries again, while /health tells.
func (p *process) join(ctx context.Context) error {
	l := &line{}
	if err := p.connect(ctx, l); err != nil {
		l.close()
		return err
	}
	for told := ""; ; {
		err := p.build(ctx, l)
		if err == nil {
			p.line.Store(l)
			close(p.joined)
			return nil
		}
		if errors.Is(err, edda.Permanent) || p.settings.dev || ctx.Err() != nil {
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

func (p *process) connect(ctx context.Context, l *line) error {
	c := p.settings.connection().FromEnv(p.settings.env)
	c.Log = p.log.Named("nats")
	if p.settings.dev {
		e, err := stream.StartEmbedded(ctx, stream.EmbeddedOptions{
			Dir: filepath.Join(p.settings.Data, "nats"), Addr: p.settings.natsAddr, SyncAlways: p.settings.syncStreams, MaxPayload: devPayload, Log: p.log.Named("nats"),
		})
		if err != nil {
			return err
		}
		l.embedded, c = e, stream.Connection{Server: e.Server(), Log: c.Log}
	}
	var err error
	l.nats = c
	l.conn, l.js, err = stream.Connect(c)
	return err
}

// connection is where NATS is, as configured.
func (c config) connection() stream.Connection {
	n := c.NATS
	return stream.Connection{URL: n.URL, Context: n.Context, Creds: n.Creds, NKey: n.NKey, User: n.User,
		Password: n.Password, Token: n.Token, Cert: n.Cert, Key: n.Key, CA: n.CA}
}

func (c config) codec() stream.Codec {
	return stream.Codec{Grammar: stream.Grammar{NoTenancy: !c.Tenancy.Enabled}}
}

func (p *process) build(ctx context.Context, l *line) error {
	s := p.settings
	codec := s.codec()
	codec.Run = p.run
	codec.MaxPayload = payloadLimit(s.Streams.MaxPayload, l.conn)
	if err := p.present(ctx, l); err != nil {
		return err
	}
	if !s.sagas() {
		if err := stream.Await(ctx, l.js); err != nil {
			return err
		}
	}
	var err error
	if l.durable, err = stream.EnsureStreams(ctx, l.js, stream.StreamOptions{
		Grammar: codec.Grammar, Replicas: s.Streams.Replicas, Age: s.Streams.Age, Duplicates: s.Streams.Duplicates, SyncAlways: s.dev && s.syncStreams,
	}); err != nil {
		return err
	}
	p.logDurability(l)
	l.codec = codec
	l.publisher = stream.NewPublisher(l.js, codec)
	if s.handoff() {
		l.handoff = stream.NewHandoff(l.publisher, s.Tenants, p.log.Named("handoff"))
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
	l.watch = stream.NewWatch(l.js, again, remake, p.log.Named("streams"))
	if l.tail != nil {
		l.watch.Follow(l.tail)
	}
	return nil
}

// present refuses a start where a stream is gone that the store has read: what is made in
// its place would stand in the way of restoring it.
func (p *process) present(ctx context.Context, l *line) error {
	if !p.settings.sagas() || p.settings.AcceptStreamLoss {
		return nil
	}
	held, err := p.db.Checkpoints()
	if err != nil {
		return edda.Classify(edda.Permanent, "read the positions: %w", err)
	}
	return stream.Present(ctx, l.js, held)
}

// devPayload is what the embedded NATS takes: more than Edda does, so that a
// message that is too large is seen, and shown as a dead letter.
const devPayload = 8 << 20

// payloadLimit is what is configured, and no more than the server carries.
func payloadLimit(configured int, conn *nats.Conn) int {
	limit := cmp.Or(configured, stream.DefaultMaxPayload)
	if max := int(conn.MaxPayload()); max > 0 {
		limit = min(limit, max)
	}
	return limit
}

func (p *process) logDurability(l *line) {
	for _, d := range l.durable {
		if d.Note != "" {
			p.log.Info("stream", zap.String("stream", d.Stream), zap.Bool("created", d.Created), zap.String("note", d.Note))
		}
	}
}

func (p *process) buildSagas(ctx context.Context, l *line) error {
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
	lanes, err := p.lanes(l)
	if err != nil {
		return err
	}
	l.relay, err = outbox.New(p.db, outbox.Options{
		Lanes: lanes, Fence: l.mayPublish, Marks: l.marks, Rejecter: l.publisher, Max: p.settings.Outbox.Max, Log: p.log.Named("outbox"), Metrics: p.metrics,
		After: p.afterRestore(l),
	})
	if err != nil {
		return edda.Classify(edda.Permanent, "outbox: %w", err)
	}
	l.engine = engine.New(l.source, p.db, p.deciders(p.set), engine.Options{
		Full: l.relay.Full, Crowded: crowded(l.relay), Hold: l.source.Hold, MaxParked: p.settings.Parked.Max, Log: p.log.Named("engine"), Registry: p.metrics,
		Observe: p.quarantine.observe, CatchUp: p.catchingUp(l),
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

// acquire takes the lease that keeps a second saga process from the same
// tenants: the store's file lock cannot see another machine.
func (p *process) acquire(ctx context.Context, l *line) error {
	if l.lease != nil {
		return l.lease.Renew(ctx) // taken by an attempt that failed later
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	l.lease, err = stream.AcquireLease(ctx, l.js, stream.LeaseOptions{
		Store: p.db.ID(), Host: host, Process: ulid.Make().String(), File: p.lockedFile(), Tenants: p.settings.Tenants,
		MadeOf: p.db.MadeOf, AdoptEmpty: p.settings.AdoptEmpty,
		Replicas: p.settings.Streams.Replicas, Memory: p.settings.dev, Log: p.log.Named("lease"),
	})
	return p.fenced(l, "saga", l.lease, err)
}

// fenced has everything that is written from now on pass the fence of a new lease.
func (p *process) fenced(l *line, of string, lease *stream.Lease, err error) error {
	if err != nil {
		return err
	}
	p.metrics.MustRegister(leaseGauge(of, lease))
	l.fences = append(slices.Clip(l.fences), lease.Fence())
	p.db.Fence(l.fences.pass)
	return nil
}

// fences are those of the leases that a process has.
type fences []*stream.Fence

// pass is nil where the process may act, by all of its leases.
func (f fences) pass(ctx context.Context) error {
	for _, fence := range f {
		if err := fence.Pass(ctx); err != nil {
			return err
		}
	}
	return nil
}

// keepLease renews the lease while the process works, and gives it back.
func (p *process) keepLease(ctx context.Context, lease *stream.Lease) error {
	if err := lease.Run(ctx); err != nil {
		return err
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	if err := lease.Release(release); err != nil {
		p.log.Warn("the lease runs out by itself", zap.Error(err))
	}
	return nil
}

// openSource holds the store's positions against the streams, and makes the
// beginning durable before the first event is taken.
func (p *process) openSource(ctx context.Context, l *line) error {
	held, err := p.db.Checkpoints()
	if err != nil {
		return edda.Classify(edda.Permanent, "read the positions: %w", err)
	}
	l.source, err = stream.OpenSource(ctx, l.js, held, stream.SourceOptions{
		Codec: l.codec, Name: p.db.ID(), Tenants: p.settings.Tenants, From: p.from(),
		AcceptLoss: p.settings.AcceptStreamLoss, Committed: p.db.Checkpoints, Restored: p.restored, Log: p.log.Named("source"),
		Hears: func(saga, fact string) bool { return p.hearing.Load().Hears(saga, fact) }, Strays: p.strays,
	})
	if err != nil {
		return err
	}
	l.publisher.Tell(l.source.Published)
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

// from is where a stream without a position begins: at its beginning where the
// configuration or a saga asks for it.
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

// lanes say where each kind of work goes.
func (p *process) lanes(l *line) ([]outbox.Lane, error) {
	var lanes []outbox.Lane
	if p.redis != nil {
		lanes = append(lanes, p.messages().Lane())
	}
	lanes = append(lanes, outbox.Lane{Name: "jetstream", Kinds: p.published(), Destination: l.streams()})
	if p.settings.Gateway.URL == "" {
		return lanes, nil
	}
	gateway, err := p.gateway()
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "gateway: %w", err)
	}
	return append(lanes, gateway.Lane()), nil
}

// published are the kinds of work that go to the streams.
func (p *process) published() []edda.WorkKind {
	kinds := []edda.WorkKind{edda.WorkEffect, edda.WorkRevoke, edda.WorkFact, edda.WorkStart, edda.WorkCancel, edda.WorkEnd, edda.WorkResult}
	if p.settings.Gateway.URL == "" {
		kinds = append(kinds, edda.WorkCommand)
	}
	return kinds
}

// streams is where all work but messages goes: effect commands by way of the
// worker of this process, where it has one.
func (l *line) streams() outbox.Destination {
	if l.handoff != nil {
		return l.handoff
	}
	return l.publisher
}

// messages is where messages and flows go out.
func (p *process) messages() *msgout.Destination {
	if p.hero.flows == nil {
		return msgout.New(p.redis, nil)
	}
	return msgout.New(p.redis, p.hero.flows)
}

func (p *process) gateway() (*outbox.Gateway, error) {
	g := p.settings.Gateway
	tls, err := clientTLS(g.Cert, g.Key, g.CA)
	if err != nil {
		return nil, err
	}
	o := outbox.GatewayOptions{URL: g.URL, Path: g.Path, Timeout: g.Timeout, TLS: tls}
	if g.TokenFile != "" {
		o.Token = outbox.TokenFile(g.TokenFile)
	}
	return outbox.NewGateway(o)
}

// holdConnection keeps the connection, and with it the lease, until everything
// that uses them has stopped.
func (p *process) holdConnection(ctx context.Context) error {
	select {
	case <-p.joined:
	case <-ctx.Done():
	}
	l := p.line.Load()
	if l == nil {
		return nil // join closes what it opened
	}
	defer l.close()
	return p.keepLeases(ctx, l.leases()...)
}

// leases are those of this process.
func (l *line) leases() []*stream.Lease {
	return slices.DeleteFunc([]*stream.Lease{l.lease, l.workerLease}, func(lease *stream.Lease) bool { return lease == nil })
}

func (l *line) close() {
	for _, p := range l.providers {
		if p, keeps := p.(interface{ Close() }); keeps {
			p.Close() // the connections it keeps
		}
	}
	if l.conn != nil {
		l.conn.SetDisconnectErrHandler(nil) // it is meant
		l.conn.Close()
	}
	if l.embedded != nil {
		l.embedded.Close()
	}
}
