package main

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"edda/manifests"
	"edda/server"
)

// Reload reads the manifests again and swaps them in between two batches.
func (p *process) Reload(ctx context.Context) (server.Reload, error) {
	problems, err := p.reload(ctx)
	out := server.Reload{Problems: problemsOf(problems)}
	if err == nil && !problems.Failed() {
		out.Sagas, out.Effects = p.sagaInfo(), p.effectInfo()
	}
	return out, err
}

// reload changes everything or, where there are errors, nothing.
func (p *process) reload(ctx context.Context) (manifests.Problems, error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	line := p.line.Load()
	if line == nil {
		return nil, errNoLine
	}
	l, err := startable(p.settings.Manifests)
	if err != nil || l.problems.Failed() {
		return l.problems, err
	}
	if err := p.checkSecrets(l.effects); err != nil {
		return append(l.problems, manifests.Problem{Message: err.Error()}), nil
	}
	if p.settings.sagas() {
		problems, err := p.swapSagas(ctx, line, l)
		if l.problems = append(l.problems, problems...); err != nil || problems.Failed() {
			return l.problems, err
		}
	}
	if err := p.swapEffects(line, l.effects); err != nil {
		return l.problems, err
	}
	p.log.Info("manifests reloaded", zap.Int("sagas", len(l.programs)))
	return l.problems, nil
}

func (p *process) swapSagas(ctx context.Context, line *line, l loaded) (manifests.Problems, error) {
	set, problems, err := p.prepare(ctx, l)
	if err != nil || problems.Failed() {
		return problems, err
	}
	if err := line.engine.Swap(ctx, set); err != nil {
		return nil, fmt.Errorf("swap sagas: %w", err)
	}
	line.scheduler.Swap(set)
	p.set = set
	return nil, nil
}
