package engine

import (
	"time"

	"go.uber.org/zap"

	"edda"
)

// announce counts, logs and reports what a durable change set holds. Only the loop calls it,
// in commit order.
func (e *Engine) announce(s *set) {
	for _, u := range s.units {
		for i := range u.transitions {
			e.report(&u.transitions[i])
		}
		if len(u.transitions) > 0 {
			e.opts.Observe(u.transitions)
		}
	}
	for i := range s.change.Dead {
		e.metrics.fate("", edda.FateDead)
		e.reportDead(&s.change.Dead[i])
	}
	s.ended(e.settle)
}

// report counts one transition, and logs its dead letter and incidents.
func (e *Engine) report(t *edda.Transition) {
	if t.Fate != "" {
		e.metrics.count(t)
	}
	if t.Event.Kind == edda.KindTimer && t.Fate != "" {
		e.metrics.late.Observe(time.Since(t.Event.Time).Seconds())
	}
	if t.Dead != nil {
		e.reportDead(t.Dead)
	}
	for _, o := range t.Outputs {
		if o.Word == "incident" {
			e.log.Warn("incident: an operator must choose", append(logFields(t.Key, &t.Event),
				zap.String("step", o.Name), zap.String("reason", o.Reason))...)
		}
	}
}

// reportDead counts and logs a dead letter, without its payload.
func (e *Engine) reportDead(d *edda.DeadLetter) {
	e.metrics.dead.WithLabelValues(d.Reason).Inc()
	e.log.Warn("dead letter", append(logFields(d.Key, &d.Event),
		zap.String("dead_letter", d.ID), zap.String("reason", d.Reason), zap.String("path", d.Path))...)
}

func logFields(k edda.Key, ev *edda.Event) []zap.Field {
	tenant := k.Tenant
	if tenant == "" {
		tenant = ev.Tenant
	}
	return []zap.Field{
		zap.String("tenant", tenant), zap.String("saga", k.Saga), zap.String("correlation", k.Correlation),
		zap.String("event", ev.ID), zap.String("trace", ev.Trace),
	}
}

// settle counts a durable item and answers those who wait for it.
func (e *Engine) settle(it *item) {
	if it.due != nil {
		it.due.handed.settle()
		return
	}
	ignored := len(it.targets) == 0
	if it.lag != nil {
		e.metrics.caught.Inc()
	} else {
		e.metrics.events.Inc()
		if ignored && !it.withheld && !it.elsewhere {
			e.metrics.fate("", edda.FateIgnored)
			e.reportUnheard(&it.event)
		}
	}
	if !ignored || it.lag == nil && !it.withheld && !it.elsewhere {
		e.waiters.notify(it)
	}
	e.answerHanded(it, nil)
}
