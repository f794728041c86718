package saga

import (
	"fmt"
	"slices"

	"edda"
	"edda/manifests"
)

// Skew lists what may be lost or doubled while one shard runs this set and another still runs the set before:
//
//   - a shard with the set before ignores a fact that only this set takes, and refuses a start that only this set has;
//   - an event that both sets hear may reach two instances, in two shards, or none, if a saga gives it another key. It does
//     if another handler with another key takes it over, if the source of the key differs, or if a member of config, an
//     upcast or the with of a schedule differs that the key reads;
//   - an event that starts another saga than before may start both, or neither.
//
// An event that only one of the sets hears is no skew: each shard takes it or not, as before or after a deployment.
func (s *Set) Skew(before *Set) (out manifests.Problems) {
	for _, name := range s.names {
		p, old := s.Starts(name), before.Starts(name)
		if p == nil {
			continue
		}
		refuse := func(pos manifests.Pos, format string, args ...any) {
			out = append(out, manifests.Problem{File: p.m.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
		}
		if event := p.rekeyed(old); event != "" {
			refuse(p.m.Name.Pos, "saga %s has another key than in the revision before, for event %s: an event of this moment may reach two instances, or none. "+
				"The key may also differ by config, an upcast or the with of a schedule", name, event)
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

// former is another saga of the set before, that an event started which starts this one instead from now on; empty if there
// is none.
func (s *Set) former(p *Program, before *Set) string {
	now := before.Starts(p.Saga())
	if now != nil && now.Hash() == p.Hash() {
		return ""
	}
	for _, name := range before.names {
		old := before.Starts(name)
		if old == nil || name == p.Saga() {
			continue
		}
		if next := s.Starts(name); next != nil && next.Hash() == old.Hash() {
			continue
		}
		if slices.ContainsFunc(heardBy(p, old), func(ev edda.Event) bool {
			return hears(p, ev) == starts && hears(now, ev) < starts && hears(old, ev) == starts && hears(s.Starts(name), ev) < starts
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
