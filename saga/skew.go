package saga

import (
	"fmt"
	"slices"

	"edda"
	"edda/manifests"
)

// Skew lists what may be lost or doubled while one shard runs this set and another still runs the set before. A shard with
// the set before ignores a fact that only this set takes, and refuses a start that only this set has. An event that starts
// an instance under another key, or of a saga with another name, may start it in two shards or in none.
func (s *Set) Skew(before *Set) (out manifests.Problems) {
	for _, name := range s.names {
		p, old := s.Starts(name), before.Starts(name)
		if p == nil {
			continue
		}
		refuse := func(pos manifests.Pos, format string, args ...any) {
			out = append(out, manifests.Problem{File: p.m.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
		}
		if !p.sameKey(old) {
			refuse(p.m.Name.Pos, "saga %s has another key than in the revision before: an event of this moment may start an instance in two shards, or in none", name)
		}
		if former := s.former(p, before); former != "" {
			refuse(p.m.Name.Pos, "saga %s takes the place of saga %s, whose keys are in other shards: an event of this moment may start both, or neither", name, former)
		}
		emitted := map[string]bool{} // and therefore nothing new
		if old != nil {
			old.m.Walk(manifests.Visitor{Action: func(a *manifests.Action) { emitted[a.Kind+" "+a.Name.Text] = true }})
		}
		p.m.Walk(manifests.Visitor{Action: func(a *manifests.Action) {
			switch {
			case a.Kind == "start" && s.startedBy(a) > before.startedBy(a):
				refuse(a.Pos, "saga %s starts saga %s, and the revision before has no handler for that start: a shard that has it would refuse. Deploy %s first, and then %s",
					name, a.Name.Text, a.Name.Text, name)
			case a.Kind == "event" && !emitted[a.Kind+" "+a.Name.Text]:
				fact := edda.Event{Kind: edda.KindEvent, AggregateType: name, Type: a.Name.Text}
				for _, other := range s.names {
					if hears(s.Starts(other), fact) > hears(before.Starts(other), fact) {
						refuse(a.Pos, "saga %s emits %s.%s from this revision on, and saga %s takes it only then: a shard that has the one before would ignore it. "+
							"Deploy %s first, and then %s", name, name, a.Name.Text, other, other, name)
					}
				}
			}
		}})
	}
	return out
}

// former is a saga of the set before that has gone, and that a trigger of this one started; empty if there is none.
func (s *Set) former(p *Program, before *Set) string {
	if before.Starts(p.Saga()) != nil {
		return ""
	}
	for _, name := range before.names {
		if old := before.Starts(name); old != nil && s.Starts(name) == nil && slices.ContainsFunc(p.handlers, func(h *handler) bool {
			return h.src.Start && slices.ContainsFunc(old.handlers, func(o *handler) bool { return o.src.Start && o.trigger == h.trigger })
		}) {
			return name
		}
	}
	return ""
}

// startedBy is what a saga of the set does with the start of a child.
func (s *Set) startedBy(a *manifests.Action) hearing {
	ev := edda.Event{Kind: edda.KindStart}
	if a.Event != nil {
		ev.Type = a.Event.Text
	}
	return hears(s.Starts(a.Name.Text), ev)
}

// hearing is what a program does with an event.
type hearing int

const (
	deaf hearing = iota
	takes
	starts
)

func hears(p *Program, ev edda.Event) (out hearing) {
	if p == nil {
		return deaf
	}
	for _, h := range p.candidates(ev) {
		if out = max(out, takes); h.src.Start {
			return starts
		}
	}
	return out
}
