package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/effects"
	"edda/effects/dial"
	"edda/effects/grpceffect"
	"edda/effects/httpeffect"
	"edda/effects/mockeffect"
	"edda/effects/natseffect"
	"edda/effects/smtpeffect"
	"edda/effects/sqleffect"
	"edda/hero/jobeffect"
	"edda/internal/backoff"
	"edda/manifests"
	"edda/server"
	"edda/stream/kv"
)

// callsMayEnd is how long calls in flight may take at a stop. It is shorter than the limit
// of the stage, so that cancelled calls are still settled in order.
const callsMayEnd = 5 * time.Second

// provider is a way to call effects: its checks of a manifest, and its constructor.
type provider struct {
	kind effects.ProviderKind
	make func(p *process, l *pipeline, g *dial.Guard) effects.Provider
}

// providers lists the ways to call, by their words in a manifest. manifests/schema.json has the
// same words. Package effects says how to add one.
func providers() map[string]provider {
	return map[string]provider{
		"http": {httpeffect.Kind(), func(p *process, _ *pipeline, g *dial.Guard) effects.Provider {
			return httpeffect.New(httpeffect.Options{Guard: g, Tracer: p.tracing.provider(), Standard: p.settings.Effects.StandardHTTP})
		}},
		"grpc": {grpceffect.Kind(), func(p *process, _ *pipeline, g *dial.Guard) effects.Provider {
			return grpceffect.New(grpceffect.Options{Guard: g, TracerProvider: p.tracing.provider()})
		}},
		"smtp": {smtpeffect.Kind(), func(_ *process, _ *pipeline, g *dial.Guard) effects.Provider {
			return smtpeffect.New(smtpeffect.Options{Guard: g})
		}},
		"sql": {sqleffect.Kind(), func(_ *process, _ *pipeline, g *dial.Guard) effects.Provider {
			return sqleffect.New(sqleffect.Options{Guard: g})
		}},
		"job": {jobeffect.Kind(), func(p *process, _ *pipeline, _ *dial.Guard) effects.Provider { return jobeffect.New(p.redis) }},
		"nats": {natseffect.Kind(), func(p *process, l *pipeline, _ *dial.Guard) effects.Provider {
			return natseffect.New(natseffect.Options{Connect: l.connectEffects(p.log.Named("effects.nats"))})
		}},
	}
}

// compileEffects compiles every effect. Of duplicates, which the parser has reported, it
// compiles the first.
func (l *loaded) compileEffects() {
	seen, kinds := map[string]bool{}, map[string]effects.ProviderKind{}
	for word, p := range providers() {
		kinds[word] = p.kind
	}
	for _, m := range l.effectManifests() {
		if seen[m.Name.Text] {
			continue
		}
		seen[m.Name.Text] = true
		e, problems := effects.Compile(m, kinds)
		l.problems = append(l.problems, problems.Named(manifests.RuleEffect)...)
		if e != nil {
			l.effects, l.compiled = append(l.effects, e), append(l.compiled, m)
		}
	}
	l.problems = append(l.problems, effects.CheckBreakers(l.effects).Named(manifests.RuleEffect)...)
}

// secrets looks secrets up in the environment, and in the folder of effects.secrets.
func (c Config) secrets() effects.Secrets { return effects.Secrets{Dir: c.Effects.Secrets} }

func (p *process) buildEffects(ctx context.Context, l *pipeline) error {
	if err := p.acquireWorker(ctx, l); err != nil {
		return err
	}
	ledger, err := p.openLedger(ctx, l)
	if err != nil {
		return err
	}
	guard, err := dial.New(dial.Options{AllowLoopback: p.settings.Dev, Allow: p.settings.Effects.Allow, ListedOnly: p.settings.Effects.ListedOnly})
	if err != nil {
		return edda.Classify(edda.Permanent, "effects.allow: %w", err)
	}
	l.providers = map[string]effects.Provider{}
	for word, made := range providers() {
		l.providers[word] = made.make(p, l, guard)
	}
	if p.mock != nil {
		l.providers = map[string]effects.Provider{mockeffect.Word: p.mock} // nothing calls out
	}
	l.commands.now.Store(p.commands(l, p.settings.Tenants))
	o := effects.Options{
		Source:    &l.commands,
		Publisher: l.publisher, Providers: l.providers, Secrets: p.settings.secrets(), AwaitSecrets: p.settings.Dev,
		Ledger: ledger, Shard: p.settings.commandShard(), Retention: p.settings.Effects.Retention, Owner: p.run, HeldBytes: p.settings.Effects.HeldBytes,
		Grace: callsMayEnd, Fence: l.fences.pass, Log: p.log.Named("effects"), Metrics: p.metrics, Tracer: p.tracing.Tracer("edda/effects"),
	}
	if l.handoff != nil {
		o.Applier = l.handoff
	}
	if l.worker, err = effects.New(p.db, o, p.effects...); err != nil {
		return edda.Classify(edda.Permanent, "effects: %w", err)
	}
	if l.handoff != nil {
		l.handoff.Connect(l.worker, l.engine, l.source.CaughtUp())
	}
	return nil
}

// connectEffects returns a function that opens the connection of effects over NATS. It is another one
// than the pipeline's, whose client keeps messages for a reconnect.
func (l *pipeline) connectEffects(log *zap.Logger) func() (*nats.Conn, jetstream.JetStream, error) {
	c := l.nats
	c.Name, c.Unbuffered, c.Log = "edda effects", true, log
	return func() (*nats.Conn, jetstream.JetStream, error) { return kv.Connect(c) }
}

// recoverEffects has the worker claim the commands that a killed process may have called,
// before sagas add new work to the outbox. It waits while the store cannot be written.
func (p *process) recoverEffects(ctx context.Context) error {
	for told := false; ; told = true {
		err := p.pipeline.Load().worker.Recover(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !told {
			p.log.Error("the effects of the run before wait for the store", zap.Error(err))
		}
		_ = backoff.Wait(ctx, joinAgain)
	}
}

// checkSecrets reports missing secrets before anything is swapped.
func (s Settings) checkSecrets(list []*effects.Effect) error {
	if !s.effects() || s.Dev { // in edda dev the worker warns
		return nil
	}
	var errs []error
	for _, e := range list {
		for _, name := range e.Secrets() {
			if _, err := s.secrets().Get(name); err != nil {
				errs = append(errs, fmt.Errorf("effect %s: %w", e.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

func (p *process) swapEffects(l *pipeline, list []*effects.Effect) error {
	if !p.settings.effects() {
		return nil
	}
	if err := l.worker.Replace(list...); err != nil {
		return fmt.Errorf("swap effects: %w", err)
	}
	p.effects = list
	return nil
}

func (p *process) effectInfo() []server.EffectInfo {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	out := []server.EffectInfo{}
	if !p.settings.effects() {
		return out
	}
	for _, e := range p.effects {
		out = append(out, server.EffectInfo{Effect: e.Name(), Version: e.Version(), Hash: e.Hash(), Provider: e.Provider()})
	}
	return out
}
