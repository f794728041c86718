package engine

import (
	"time"

	"go.uber.org/zap"

	"edda"
)

// announce tells everyone that a change set is durable. The evaluator calls it,
// in commit order.
func (e *Engine) announce(s *set) {
	for _, u := range s.units {
		for i := range u.transitions {
			e.account(&u.transitions[i])
		}
		if len(u.transitions) > 0 {
			e.opts.Observe(u.transitions)
		}
	}
	for i := range s.change.Dead {
		e.metrics.fate("", edda.FateDead)
		e.buried(&s.change.Dead[i])
	}
	s.ended(e.settle)
}

// account counts one transition and logs what a person should see.
func (e *Engine) account(t *edda.Transition) {
	if t.Fate != "" {
		e.metrics.became(t)
	}
	if t.Event.Kind == edda.KindTimer && t.Fate != "" {
		e.metrics.late.Observe(time.Since(t.Event.Time).Seconds())
	}
	if t.Dead != nil {
		e.buried(t.Dead)
	}
	for _, o := range t.Outputs {
		if o.Word == "incident" {
			e.log.Warn("incident: an operator must choose", append(ids(t.Key, &t.Event),
				zap.String("step", o.Name), zap.String("reason", o.Reason))...)
		}
	}
}

// buried logs a dead letter: which, not what was in it.
func (e *Engine) buried(d *edda.DeadLetter) {
	e.metrics.dead.WithLabelValues(d.Reason).Inc()
	e.log.Warn("dead letter", append(ids(d.Key, &d.Event),
		zap.String("dead_letter", d.ID), zap.String("reason", d.Reason), zap.String("path", d.Path))...)
}

func ids(k edda.Key, ev *edda.Event) []zap.Field {
	tenant := k.Tenant
	if tenant == "" {
		tenant = ev.Tenant
	}
	return []zap.Field{
		zap.String("tenant", tenant), zap.String("saga", k.Saga), zap.String("correlation", k.Correlation),
		zap.String("event", ev.ID), zap.String("trace", ev.Trace),
	}
}

// settle tells whoever waits for the item.
func (e *Engine) settle(it *item) {
	if it.due != nil {
		it.due.handed.settle()
		return
	}
	switch {
	case it.lag != nil:
		e.metrics.caught.Inc()
	default:
		e.metrics.events.Inc()
	}
	if len(it.targets) > 0 || it.lag == nil && !it.withheld {
		e.waiters.signal(it)
	}
	if len(it.targets) == 0 && it.lag == nil && !it.withheld {
		e.metrics.fate("", edda.FateIgnored)
	}
	e.answer(it, nil)
}
