package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/engine"
	"edda/manifests"
	"edda/server"
	"edda/stream"
)

// This file implements the interfaces of the HTTP server.

// Status returns the status of the components.
func (p *process) Status(ctx context.Context) server.ProcessStatus {
	s := server.ProcessStatus{Stuck: p.liveness.stuck(), Components: map[string]server.ComponentStatus{}}
	l := p.pipeline.Load()
	s.Components["storage"] = component(p.storage(l))
	p.heroHealth(ctx, s.Components)
	if p.settings.streams() {
		s.Components["jetstream"] = component(p.jetstreamState(l))
	}
	s.NotReady = p.notReady(l)
	return s
}

// notReady returns why the process takes no work; empty if it does.
func (p *process) notReady(l *pipeline) string {
	switch {
	case p.group.Progress().Draining:
		return "draining"
	case !p.settings.streams():
		return ""
	case l == nil:
		return "not connected to jetstream yet"
	}
	return component(p.jetstreamState(l)).Problem
}

func component(err error) server.ComponentStatus {
	if err != nil {
		return server.ComponentStatus{State: "down", Problem: err.Error()}
	}
	return server.ComponentStatus{State: "up"}
}

// storage returns why commits fail, such as a full or broken disk. Commits of the effect
// ledger count too.
func (p *process) storage(l *pipeline) error {
	if err := errors.Join(p.db.Healthy(), p.db.Damaged()); err != nil {
		return err
	}
	if l != nil && l.engine != nil {
		return l.engine.Healthy()
	}
	return nil
}

// sick returns why the store cannot be written. While a lease is not confirmed the store refuses commits for that alone:
// NATS does not answer, and no other node could do better. The engine is not asked, because its last error is older than
// the store's.
func (p *process) sick() error {
	if l := p.pipeline.Load(); l != nil && !l.fences.open() {
		return nil
	}
	return errors.Join(p.db.Healthy(), p.db.Damaged())
}

func (p *process) jetstreamState(l *pipeline) error {
	if l == nil {
		if why := p.apart.Load(); why != nil {
			return fmt.Errorf("not reached yet: %w", *why)
		}
		return errors.New("not reached yet")
	}
	if status := l.conn.Status(); status != nats.CONNECTED {
		return fmt.Errorf("the connection is %s", status)
	}
	if l.embedded != nil {
		if err := l.embedded.Healthy(); err != nil {
			return err
		}
	}
	problem := errors.Join(l.watch.Problem(), l.publisher.Failing())
	if l.source != nil {
		problem = errors.Join(problem, l.source.Failing())
	}
	return problem
}

// Drain begins the staged stop. A failure to write the audit does not delay the stop.
func (p *process) Drain(ctx context.Context, who server.Operator) server.Drain {
	if p.draining.CompareAndSwap(false, true) {
		p.audited(ctx, who, edda.ActDrain, "a staged stop begins")
	}
	p.group.Stop()
	progress := p.group.Progress()
	n, _ := p.db.OutboxSize()
	return server.Drain{Draining: true, Stage: progress.Stage, Stopped: progress.Stopped, Waiting: progress.Waiting, Outbox: n}
}

// auditWithin bounds how long a command waits for its audit entry, because a drain must
// not hang on a disk that does not respond.
const auditWithin = 5 * time.Second

// audited writes the audit entry of a command on the process. If that fails, it logs the
// entry.
func (p *process) audited(ctx context.Context, who server.Operator, verb, detail string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditWithin)
	defer cancel()
	if err := p.maintenance.Audit(ctx, who, verb, detail); err != nil {
		p.log.Error("the audit of an act cannot be written", zap.String("act", verb), zap.String("detail", detail),
			zap.String("by", who.By), zap.String("why", who.Why), zap.Error(err))
	}
}

// errNoPipeline refuses calls that need the streams before JetStream is reached.
var errNoPipeline = edda.Classify(edda.Temporary, "jetstream is not reached yet: see whether NATS runs, and --nats-url")

// mayRead returns nil if no other process can have the instances of the store.
func (p *process) mayRead(ctx context.Context) error {
	l := p.pipeline.Load()
	switch {
	case l != nil:
		return l.fences.pass(ctx)
	case p.settings.sagas():
		return errNoPipeline
	}
	return nil
}

// publisher returns what publishes to the streams.
func (p *process) publisher() (*stream.Publisher, error) {
	if l := p.pipeline.Load(); l != nil {
		return l.publisher, nil
	}
	return nil, errNoPipeline
}

// errNoSagas refuses calls that need a saga process.
var errNoSagas = edda.Classify(edda.Permanent, "this process runs no sagas: ask one with the role saga or combined")

// Send publishes a message and waits for its outcome.
func (p *process) Send(ctx context.Context, message edda.Event) (engine.EventResult, error) {
	l := p.pipeline.Load()
	switch {
	case l == nil:
		return engine.EventResult{}, errNoPipeline
	case l.engine == nil:
		return engine.EventResult{}, errNoSagas
	}
	return l.engine.Await(ctx, message.Tenant, message.ID, func(ctx context.Context) error {
		sent, err := l.publisher.Send(ctx, message)
		if err == nil && sent.Duplicate {
			return server.ErrDuplicate
		}
		return err
	})
}

// Publish stores an event in its stream.
func (p *process) Publish(ctx context.Context, event edda.Event) (server.Stored, error) {
	to, err := p.publisher()
	if err != nil {
		return server.Stored{}, err
	}
	return Publish(ctx, to, event)
}

// Publish stores an event in its stream.
func Publish(ctx context.Context, to *stream.Publisher, ev edda.Event) (server.Stored, error) {
	at, err := to.Send(ctx, ev)
	if err != nil {
		return server.Stored{}, err
	}
	return server.Stored{Stream: at.Stream, Subject: at.Subject, Seq: at.Seq, Duplicate: at.Duplicate}, nil
}

// Info describes what the process runs.
func (p *process) Info(ctx context.Context) (server.Info, error) {
	i := server.Info{
		Build: p.settings.Build, Roles: roleList(p.settings.Role), StoreID: p.db.ID(), Started: p.started,
		Sagas: p.sagaInfo(), Effects: p.effectInfo(),
		Streams: []server.StreamInfo{}, Consumers: []string{}, Positions: []server.StreamPosition{},
	}
	if err := p.positions(&i); err != nil {
		return i, err
	}
	if l := p.pipeline.Load(); l != nil {
		l.describe(ctx, &i)
	}
	i.Behind = p.SagasBehind(engine.AllTenants)
	return i, nil
}

func (p *process) sagaInfo() []server.SagaInfo {
	p.reloading.Lock()
	set := p.set
	p.reloading.Unlock()
	out := []server.SagaInfo{}
	if set == nil {
		return out
	}
	counts := p.db.Counts()
	for _, program := range set.Programs() {
		s := server.SagaInfo{Saga: program.Saga(), Version: program.Version(), Hash: program.Hash(),
			VersionName: p.VersionName(program.Saga(), program.Version(), program.Hash()), Newest: set.Starts(program.Saga()) == program}
		for _, c := range counts {
			if c.Saga == s.Saga && c.Version == s.Version && !c.Status.Finished() {
				s.Open += c.N
			}
		}
		out = append(out, s)
	}
	return out
}

func (p *process) positions(i *server.Info) error {
	shared, err := p.db.Checkpoints()
	if err != nil {
		return fmt.Errorf("read the positions: %w", err)
	}
	for _, c := range shared {
		i.Positions = append(i.Positions, server.StreamPosition{Checkpoint: c})
	}
	own, err := p.db.Positions()
	if err != nil {
		return fmt.Errorf("read the positions: %w", err)
	}
	for _, c := range own {
		i.Positions = append(i.Positions, server.StreamPosition{Tenant: c.Tenant, Saga: c.Saga, Checkpoint: c.Checkpoint})
	}
	return nil
}

// describe adds the streams that respond. It skips the others, so that /info works without
// NATS.
func (l *pipeline) describe(ctx context.Context, i *server.Info) {
	for _, d := range l.durable {
		if d.Note != "" {
			i.Durable = append(i.Durable, d.Stream+": "+d.Note)
		}
		s, err := l.js.Stream(ctx, d.Stream)
		if err != nil {
			continue
		}
		i.Streams = append(i.Streams, streamInfo(s, ""))
		names := s.ConsumerNames(ctx)
		for name := range names.Name() {
			i.Consumers = append(i.Consumers, d.Stream+" "+name)
		}
	}
	slices.Sort(i.Consumers)
	for _, name := range slices.Sorted(maps.Keys(l.codec.Mappings)) {
		if s, err := l.js.Stream(ctx, name); err == nil {
			i.Streams = append(i.Streams, streamInfo(s, l.codec.Mappings[name].Source()))
		}
	}
	if l.engine != nil {
		i.Unheard = l.engine.Unheard()
	}
}

func streamInfo(s jetstream.Stream, source string) server.StreamInfo {
	info := s.CachedInfo()
	return server.StreamInfo{Stream: info.Config.Name, Source: source, Messages: info.State.Msgs,
		First: info.State.FirstSeq, Last: info.State.LastSeq, Replicas: info.Config.Replicas}
}

// problemsOf converts manifest problems for the API.
func problemsOf(ps manifests.Problems) []server.Problem {
	var out []server.Problem
	for _, p := range ps {
		one := server.Problem{Line: p.Pos.Line, Column: p.Pos.Column, Warning: p.Warning, Message: p.Message}
		if p.File != nil {
			one.File = p.File.Name
		}
		out = append(out, one)
	}
	return out
}
