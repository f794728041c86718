package operator

import (
	"cmp"
	"encoding/json"
	"slices"

	"go.uber.org/zap"

	"edda"
	"edda/engine"
)

// verbs are the values of the label; any other verb counts as "other".
var verbs = []string{edda.VerbCancel, edda.VerbTerminate, edda.VerbRetry, edda.VerbSkip, edda.VerbResolve, edda.VerbRedrive, edda.VerbDrop}

func oneOf(known []string, word string) string {
	if slices.Contains(known, word) {
		return word
	}
	return "other"
}

// settle counts a command that removed a dead letter.
func (q *Quarantine) settle(verb, reason string) {
	q.commands.WithLabelValues(oneOf(verbs, verb)).Inc()
	q.settled.WithLabelValues(oneOf(verbs, verb), oneOf(edda.DeadReasons, reason)).Inc()
}

// Observe counts and logs the operator commands among durable transitions. It does not block.
func (q *Quarantine) Observe(ts []edda.Transition) {
	for i := range ts {
		if t := &ts[i]; t.Event.Kind == edda.KindOperator && t.Event.CommandID == "" && t.Fate != "" && !t.Event.Redriven {
			q.acted(t, engine.Became(ts[i:]))
		}
	}
}

// acted counts and logs an operator command from the stream with its outcome, without its
// payload.
func (q *Quarantine) acted(t *edda.Transition, became string) {
	ev := &t.Event
	q.commands.WithLabelValues(oneOf(verbs, ev.Type)).Inc()
	var r edda.Redrive
	if len(ev.Payload) > 0 {
		_ = json.Unmarshal(ev.Payload, &r) // an unreadable payload names no dead letter
	}
	for range t.Resolved {
		q.settled.WithLabelValues(oneOf(verbs, ev.Type), oneOf(edda.DeadReasons, cmp.Or(r.Reason, edda.DeadPoison))).Inc()
	}
	q.log.Info("an operator acted", zap.String("verb", ev.Type), zap.String("step", ev.Step), zap.String("dead_letter", r.DeadLetter),
		zap.String("tenant", t.Key.Tenant), zap.String("saga", t.Key.Saga), zap.String("correlation", t.Key.Correlation),
		zap.String("by", ev.By), zap.String("why", ev.Why), zap.String("fate", became))
}
