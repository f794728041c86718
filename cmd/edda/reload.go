package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"edda"
	"edda/manifests"
	"edda/saga"
	"edda/server"
	"edda/stream"
)

// Reload reads the manifests again and swaps them in between two batches.
func (p *process) Reload(ctx context.Context, q server.ReloadOrder) (server.Reload, error) {
	check := testsMustPass
	if q.SkipTests {
		check = testsSkipped
	}
	problems, kept, err := p.reload(ctx, q.Actor, check)
	out := server.Reload{Problems: problemsOf(problems)}
	if kept != nil {
		out.Kept = kept.Error()
	}
	if err == nil && !problems.Failed() {
		out.Sagas, out.Effects = p.sagaInfo(), p.effectInfo()
	}
	if err != nil {
		err = errors.Join(err, kept) // the log has both
	}
	return out, err
}

// reload reads the files of those who may call, and the manifests. Each goes its
// own way: a token that was revoked must not live on because a manifest has an
// error. Kept says which of the former stays what it was, and why.
func (p *process) reload(ctx context.Context, who server.Actor, check testCheck) (problems manifests.Problems, kept, err error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	before := p.running()
	kept = p.guards.reload()
	problems, err = p.reloadManifests(ctx, check)
	p.audited(ctx, who, edda.ActReload, p.becameOf(before, check, problems, errors.Join(err, kept)))
	return problems, kept, err
}

// reloadManifests changes everything or, where there are errors, nothing.
func (p *process) reloadManifests(ctx context.Context, check testCheck) (manifests.Problems, error) {
	pipe := p.pipeline.Load()
	if pipe == nil {
		return nil, errNoPipeline
	}
	c, l, err := p.read()
	if err != nil || l.problems.Failed() {
		return l.problems, err
	}
	tests, err := l.runTests(ctx, check)
	if l.problems = append(tests, l.problems...); err != nil || l.problems.Failed() {
		return l.problems, err
	}
	if err := p.reserve(ctx, pipe, c.Tenants, l.effects); err != nil {
		if !errors.Is(err, edda.Permanent) {
			return l.problems, err
		}
		return append(l.problems, manifests.Problem{Message: err.Error()}), nil
	}
	problems, err := p.swap(ctx, pipe, c, l)
	if err != nil || problems.Failed() {
		return problems, errors.Join(err, p.giveBack(ctx, pipe, c.Tenants, l.effects))
	}
	p.move(pipe, c.Tenants)
	p.log.Info("manifests reloaded", zap.Int("sagas", len(l.programs)))
	return problems, nil
}

// read reads everything again: the configuration, where there is one, and the
// manifests.
func (p *process) read() (config, loaded, error) {
	c, problems := p.reread()
	if problems.Failed() {
		return c, loaded{problems: problems}, nil
	}
	l, err := startable(p.settings, c.Manifests)
	if err != nil {
		return c, l, err
	}
	l.problems = append(problems, l.problems...)
	if err := p.checkSecrets(l.effects); err != nil {
		l.problems = append(l.problems, manifests.Problem{Message: err.Error()})
	}
	return c, l, nil
}

// reread is the configuration as it is now. What a reload does not apply is
// said, and waits for the next start.
func (p *process) reread() (config, manifests.Problems) {
	if p.settings.reread == nil {
		return p.settings.config, nil
	}
	c, err := p.settings.reread()
	if err != nil {
		return c, manifests.Problems{{Message: err.Error()}}
	}
	var problems manifests.Problems
	for _, key := range p.settings.differs(c) {
		if key != "tenants" && key != "manifests" {
			problems = append(problems, manifests.Problem{Warning: true, Message: key + " changed in the configuration: it takes effect at the next start"})
		}
	}
	return c, problems
}

// swap puts the manifests in place; problems are all there are, warnings too.
// What can be refused comes first, so that nothing has changed then.
func (p *process) swap(ctx context.Context, pipe *pipeline, c config, l loaded) (manifests.Problems, error) {
	var set *saga.Set
	if p.settings.sagas() {
		next, problems, err := p.prepare(ctx, l)
		if l.problems = append(l.problems, problems...); err != nil || problems.Failed() {
			return l.problems, err
		}
		set = next
	}
	begin, err := p.beginNow(ctx, pipe, set)
	if err != nil {
		return l.problems, err
	}
	if err := p.swapEffects(pipe, l.effects); err != nil {
		return l.problems, err
	}
	p.settings.Manifests = c.Manifests
	if set == nil {
		return l.problems, nil
	}
	return append(l.problems, begin.problems()...), p.swapSagas(ctx, pipe, set, begin, c.Tenants)
}

// beginNow finds where the sagas of a set begin, beside those that run.
func (p *process) beginNow(ctx context.Context, pipe *pipeline, set *saga.Set) (beginning, error) {
	if set == nil {
		return beginning{}, nil
	}
	held, err := p.db.Checkpoints()
	if err != nil {
		return beginning{}, fmt.Errorf("read the positions: %w", err)
	}
	return p.begin(ctx, pipe, set, held)
}

// swapSagas does not end with the call that asked for it: it would not know
// whether the engine has the new set. It fails only where the process stops.
func (p *process) swapSagas(ctx context.Context, pipe *pipeline, set *saga.Set, begin beginning, tenants stream.Tenants) error {
	ctx = context.WithoutCancel(ctx)
	p.loaded.Store(set)
	if begin.begun != nil {
		if err := p.db.Commit(ctx, begin.change()); err != nil {
			return fmt.Errorf("write where sagas begin: %w", err)
		}
		// gofail: var sagaBegun struct{}
		begin.tell(p.log)
	}
	if err := pipe.engine.Swap(ctx, p.deciders(set), begin.positions...); err != nil {
		return fmt.Errorf("swap sagas: %w", err)
	}
	pipe.scheduler.Swap(scheduled{set, tenants, p.settings.tenant()})
	return p.use(set)
}

// running are the texts that begin instances and the effects that are served, for
// the audit to say what a reload changed. The caller holds reloading.
func (p *process) running() map[string]string {
	out := map[string]string{}
	for t := range p.starting() {
		out["saga "+t.saga] = fmt.Sprintf("%d+%.8s", t.version, t.hash)
	}
	for _, e := range p.effects {
		out["effect "+e.Name()] = fmt.Sprintf("%d+%.8s", e.Version(), e.Hash())
	}
	return out
}

// maxChanges bounds how many changed texts one entry of the audit names.
const maxChanges = 50

// becameOf is what came of a reload, for the audit.
func (p *process) becameOf(before map[string]string, check testCheck, problems manifests.Problems, err error) string {
	var parts []string
	switch n := len(onlyErrors(problems)); {
	case problems.Failed():
		parts = append(parts, fmt.Sprintf("refused: %d errors in the manifests, the first: %s", n, onlyErrors(problems)[0].Message))
	case err == nil:
		parts = append(parts, "taken in: "+changes(before, p.running()))
	}
	if err != nil {
		parts = append(parts, "failed: "+err.Error())
	}
	if check == testsSkipped {
		parts = append(parts, "tests skipped")
	}
	return strings.Join(parts, "; ")
}

// changes names what is new, other, or gone.
func changes(before, after map[string]string) string {
	var out []string
	for _, name := range sortedKeys(after) {
		if before[name] != after[name] {
			out = append(out, name+" version "+after[name])
		}
	}
	for _, name := range sortedKeys(before) {
		if after[name] == "" {
			out = append(out, name+" gone")
		}
	}
	if len(out) == 0 {
		return "nothing changed"
	}
	if len(out) > maxChanges {
		out = append(out[:maxChanges], fmt.Sprintf("and %d more", len(out)-maxChanges))
	}
	return strings.Join(out, ", ")
}
