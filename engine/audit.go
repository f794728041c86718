package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"edda"
	"edda/store"
)

// audits returns the audit entry of a person's act, which commits with what it changed: an
// operator's verb, an answer, and a signal or an event with a sender. Services send the many
// signals and events without one. A parent saga that cancels its child is no operator.
func audits(it *item) []store.Audit {
	ev := it.event
	verb := actOf(ev)
	if verb == "" || it.elsewhere || ev.Malformed != "" || ev.CommandID != "" {
		return nil
	}
	key := ev.Key
	if ev.Kind == edda.KindEvent {
		key = edda.Key{Tenant: ev.Tenant}
		if len(it.targets) > 0 {
			key = it.targets[0].Key
		}
	}
	return []store.Audit{{Time: ev.Time, By: cmp.Or(ev.By, "unknown"), Verb: verb, Key: key, Reason: ev.Why, Detail: detail(it)}}
}

// actOf is the audit's word for an event; empty if it is no person's act.
func actOf(ev edda.Event) string {
	switch ev.Kind {
	case edda.KindOperator:
		return ev.Type
	case edda.KindAnswer:
		return edda.ActAnswer
	case edda.KindSignal:
		if ev.By != "" {
			return edda.ActSignal
		}
	case edda.KindEvent:
		if ev.By != "" {
			return edda.ActSend
		}
	}
	return ""
}

// detail describes the subject and the outcome of the act, never a payload.
func detail(it *item) string {
	switch ev := it.event; ev.Kind {
	case edda.KindAnswer:
		return "ask " + clip(ev.Step, maxName) + ", choice " + clip(ev.Type, maxName) + "; " + outcomeText(it)
	case edda.KindSignal:
		return "signal " + clip(ev.Type, maxName) + "; " + outcomeText(it)
	case edda.KindEvent:
		return Cite(ev) + "; " + outcomeText(it)
	}
	out := []string{}
	if it.event.Step != "" {
		out = append(out, "step "+it.event.Step)
	}
	letter := letterOf(it.event)
	if letter.DeadLetter != "" {
		out = append(out, "dead letter "+letter.DeadLetter)
	}
	if it.about != nil {
		out = append(out, Cite(*it.about))
	}
	switch {
	case it.event.Type == edda.VerbRedrive && letter.ReadBack && len(letter.Data) > 0:
		out = append(out, FromStream)
	case it.event.Type == edda.VerbRedrive && len(letter.Data) > 0 || it.event.Type == edda.VerbRetry && len(it.event.Payload) > 0:
		out = append(out, Edited)
	}
	out = append(out, outcomeText(it))
	return strings.Join(out, "; ")
}

// Edited stands in the audit when an event was applied, or a step called again, with another
// payload.
const Edited = "edited payload"

// FromStream stands in the audit when the payload of a dead letter without one was read from
// the event's stream.
const FromStream = "payload from its stream"

// Cite names an event for the audit: its type, step, subject or kind, its id, and its position;
// never its payload.
func Cite(ev edda.Event) string {
	kind := cmp.Or(ev.Type, ev.Step, ev.Subject, string(ev.Kind))
	out := strings.Join(strings.Fields("event "+clip(kind, maxName)+" "+clip(ev.ID, maxName)), " ")
	if ev.Stream == "" {
		return out
	}
	return out + fmt.Sprintf(" (%s#%s)", ev.Stream, ev.Number())
}

// outcomeText is the outcome of the act for the first key that took it.
func outcomeText(it *item) string {
	for i, target := range it.targets {
		if target.Dead != nil {
			return diedAgain(it.event, target.Dead)
		}
		for j, t := range it.results[i] {
			if t.Event.ID == it.event.ID && t.Fate != "" {
				return Became(it.results[i][j:])
			}
		}
	}
	return string(edda.FateIgnored)
}

// Became describes the outcome of an operator's verb, whose transition is the first one. A
// refusal has its reason. A verb on a dead letter has the fate of the letter's event, which is
// another than that of the verb.
func Became(ts []edda.Transition) string {
	verb := &ts[0]
	switch {
	case verb.Dead != nil:
		return diedAgain(verb.Event, verb.Dead)
	case verb.Fate != edda.FateHandled || len(verb.Resolved) == 0:
		return refusedOr(verb)
	case verb.Event.Type == edda.VerbDrop || verb.Event.Type == edda.VerbSkip:
		return "dropped"
	case verb.Event.Type == edda.VerbRedrive && len(ts) > 1 && ts[1].Key == verb.Key && ts[1].Fate != "":
		return redriven(&ts[1])
	}
	return string(verb.Fate)
}

// redriven describes the outcome of the event that a redrive applied.
func redriven(t *edda.Transition) string {
	if t.Dead == nil {
		return string(t.Fate)
	}
	return "died again: " + t.Dead.Reason + ", dead letter " + t.Dead.ID
}

// diedAgain describes the outcome of a dead verb. A dead redrive of that letter means that the
// letter's event found no key this time either.
func diedAgain(verb edda.Event, d *edda.DeadLetter) string {
	if verb.Type == edda.VerbRedrive && d.ID == letterOf(verb).DeadLetter {
		return "died again: " + d.Reason + ", dead letter " + d.ID
	}
	return "dead: " + d.Reason + ", dead letter " + d.ID
}

func refusedOr(t *edda.Transition) string {
	for _, line := range t.Outputs {
		if line.Word == "refused" {
			return string(t.Fate) + "; refused: " + line.Reason
		}
	}
	return string(t.Fate)
}

// letterOf parses the payload of a verb that names a dead letter.
func letterOf(ev edda.Event) (r edda.Redrive) {
	if len(ev.Payload) == 0 || json.Unmarshal(ev.Payload, &r) != nil {
		return edda.Redrive{}
	}
	return r
}
