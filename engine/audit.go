package engine

import (
	"cmp"
	"encoding/json"
	"strings"

	"edda"
	"edda/store"
)

// audits is the record of an operator's verb, written with what it changed. A
// parent saga that cancels its child is no operator.
func audits(it *item) []store.Audit {
	ev := it.event
	if ev.Kind != edda.KindOperator || ev.Malformed != "" || ev.CommandID != "" {
		return nil
	}
	return []store.Audit{{Time: ev.Time, By: cmp.Or(ev.By, "unknown"), Verb: ev.Type, Key: ev.Key, Reason: ev.Why, Detail: detail(it)}}
}

// detail is what the verb was about and what came of it, never a payload.
func detail(it *item) string {
	out := []string{}
	if it.event.Step != "" {
		out = append(out, "step "+it.event.Step)
	}
	if id := letterOf(it.event); id != "" {
		out = append(out, "dead letter "+id)
	}
	o := it.outcome()
	out = append(out, string(o.Fate))
	for _, line := range o.Outputs {
		if line.Word == "refused" {
			out = append(out, "refused: "+line.Reason)
			break
		}
	}
	for _, r := range o.Released {
		if r.Dead != nil { // it was tried
			out = append(out, "dead letter "+r.Dead.ID+" ("+r.Dead.Reason+")")
			break
		}
	}
	return strings.Join(out, "; ")
}

// letterOf is the dead letter that a verb speaks of.
func letterOf(ev edda.Event) string {
	var r edda.Redrive
	if len(ev.Payload) == 0 || json.Unmarshal(ev.Payload, &r) != nil {
		return ""
	}
	return r.DeadLetter
}
