package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"edda/effects"
	"edda/saga"
	"edda/stream"
	"edda/stream/wire"
)

// commandSource is the current source of effect commands. A reload with other tenants
// replaces it; a fetch in flight finishes with the previous source.
type commandSource struct {
	now atomic.Pointer[stream.Commands]
}

func (c *commandSource) Fetch(ctx context.Context, effect string, max int, wait time.Duration) ([]effects.Delivery, error) {
	return c.now.Load().Fetch(ctx, effect, max, wait)
}

func (p *process) commands(l *pipeline, tenants wire.Tenants) *stream.Commands {
	return stream.NewCommands(l.js, stream.CommandsOptions{Codec: l.codec, Tenants: tenants, AckWait: p.settings.Effects.AckWait, Sole: p.settings.Dev, Shard: p.settings.commandShard(), Strays: p.strays})
}

// scheduled is a set whose schedules start only for the tenants of this process. Another
// process starts the others.
type scheduled struct {
	*saga.Set
	tenants wire.Tenants
	// unsaid is the tenant of a schedule without one: the default tenant of edda dev, or
	// empty without tenancy. With tenancy a start refuses such a schedule.
	unsaid string
}

// Schedules lists the schedules of the served tenants.
func (s scheduled) Schedules() []saga.ScheduleSpec {
	var out []saga.ScheduleSpec
	for _, spec := range s.Set.Schedules() {
		spec.Tenants = slices.Clone(spec.Tenants)
		for i, t := range spec.Tenants {
			if t == "" {
				spec.Tenants[i] = s.unsaid
			}
		}
		spec.Tenants = slices.DeleteFunc(spec.Tenants, func(t string) bool { return !s.tenants.Match(t) })
		if len(spec.Tenants) > 0 {
			out = append(out, spec)
		}
	}
	return out
}

// reserve acquires the leases of the tenants and commands of a reload. It comes before any
// swap, because another process may hold them; then nothing has changed.
func (p *process) reserve(ctx context.Context, l *pipeline, tenants wire.Tenants, list []*effects.Effect) error {
	if err := servesAlone(p.db, tenants); err != nil {
		return err
	}
	if l.lease != nil && !slices.Equal(tenants, p.settings.Tenants) {
		if err := l.lease.Move(ctx, tenants); err != nil {
			return fmt.Errorf("change the tenants: %w", err)
		}
	}
	if l.workerLease == nil || !p.moves(tenants, list) {
		return nil
	}
	if err := l.workerLease.Move(ctx, tenants, effectNames(list)...); err != nil {
		return errors.Join(fmt.Errorf("change the tenants or effects: %w", err), p.giveBack(ctx, l, tenants, list))
	}
	return nil
}

// moves reports whether a reload changes the fetched commands.
func (p *process) moves(tenants wire.Tenants, list []*effects.Effect) bool {
	return !slices.Equal(tenants, p.settings.Tenants) || !slices.Equal(effectNames(list), effectNames(p.effects))
}

// giveBack undoes reserve after a failed reload.
func (p *process) giveBack(ctx context.Context, l *pipeline, tenants wire.Tenants, list []*effects.Effect) error {
	var errs []error
	if l.lease != nil && !slices.Equal(tenants, p.settings.Tenants) {
		errs = append(errs, l.lease.Move(ctx, p.settings.Tenants))
	}
	if l.workerLease != nil && p.moves(tenants, list) {
		errs = append(errs, l.workerLease.Move(ctx, p.settings.Tenants, effectNames(p.effects)...))
	}
	return errors.Join(errs...)
}

// serve sets the served tenants for readers that do not hold reloading.
func (p *process) serve(tenants wire.Tenants) {
	p.serving.Lock()
	defer p.serving.Unlock()
	p.tenants = tenants
}

// move switches to other tenants. Work in flight for the previous tenants is finished: the
// relay delivers the stored outbox, and calls in flight end.
func (p *process) move(l *pipeline, tenants wire.Tenants) {
	if slices.Equal(tenants, p.settings.Tenants) {
		return
	}
	if l.source != nil {
		l.source.SetTenants(tenants)
	}
	if l.commands.now.Load() != nil {
		l.commands.now.Store(p.commands(l, tenants))
	}
	if l.handoff != nil {
		l.handoff.SetTenants(tenants)
	}
	p.serve(tenants)
	if l.engine != nil { // a second read uses the current tenants
		if err := l.engine.Rejudge(context.Background()); err != nil {
			p.log.Warn("sagas that are behind are read for the former tenants", zap.Error(err))
		}
	}
	p.log.Info("tenants changed", zap.Strings("from", p.settings.Tenants), zap.Strings("to", tenants))
	p.settings.Tenants = tenants
}
