package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"edda/effects"
	"edda/saga"
	"edda/stream"
)

// commandSource is where effect commands come from now: a reload with other
// tenants puts another source in place, while a fetch under way ends with the
// one it began with.
type commandSource struct {
	now atomic.Pointer[stream.Commands]
}

func (c *commandSource) Fetch(ctx context.Context, effect string, max int, wait time.Duration) ([]effects.Delivery, error) {
	return c.now.Load().Fetch(ctx, effect, max, wait)
}

func (p *process) commands(l *line, tenants stream.Tenants) *stream.Commands {
	return stream.NewCommands(l.js, stream.CommandsOptions{Codec: l.codec, Tenants: tenants, Sole: p.settings.dev})
}

// scheduled is a set whose schedules start for the tenants of this process
// alone: another one starts the others.
type scheduled struct {
	*saga.Set
	tenants stream.Tenants
	// unsaid is the tenant of a schedule that names none: dev's own, or none
	// where tenancy is off. Under tenancy a process refuses such a schedule.
	unsaid string
}

// Schedules leaves out the tenants that are not served here.
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

// reserve makes sure that no other saga process serves the tenants. It comes
// before anything is swapped: it may be refused.
func (p *process) reserve(ctx context.Context, l *line, tenants stream.Tenants) error {
	if slices.Equal(tenants, p.settings.Tenants) || l.lease == nil {
		return nil
	}
	if err := l.lease.SetTenants(ctx, tenants); err != nil {
		return fmt.Errorf("change the tenants: %w", err)
	}
	return nil
}

// giveBack undoes reserve where the reload was refused after all.
func (p *process) giveBack(ctx context.Context, l *line, reserved stream.Tenants) error {
	if slices.Equal(reserved, p.settings.Tenants) || l.lease == nil {
		return nil
	}
	return l.lease.SetTenants(ctx, p.settings.Tenants)
}

// move takes other tenants in from now on. What is in flight for those that are
// gone is finished: the outbox carries out what the store holds, and calls under
// way end.
func (p *process) move(l *line, tenants stream.Tenants) {
	if slices.Equal(tenants, p.settings.Tenants) {
		return
	}
	if l.source != nil {
		l.source.SetTenants(tenants)
	}
	if l.commands.now.Load() != nil {
		l.commands.now.Store(p.commands(l, tenants))
	}
	p.log.Info("tenants changed", zap.Strings("from", p.settings.Tenants), zap.Strings("to", tenants))
	p.settings.Tenants = tenants
}
