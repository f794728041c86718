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
	all := s.listeners(before)
	former := s.former(before, all)
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
		if former[name] != "" {
			refuse(p.m.Name.Pos, "saga %s takes the place of saga %s, whose keys are in other shards: an event of this moment may start both, or neither", name, former[name])
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
				for _, other := range all.of(fact) {
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

// former maps a saga to another one of the set before, if an event started that one which starts the first one instead from
// now on.
func (s *Set) former(before *Set, all listeners) map[string]string {
	begins := func(from, to *Set, name string, ev edda.Event) bool { // to start with the event
		return hears(to.Starts(name), ev) == starts && hears(from.Starts(name), ev) < starts
	}
	var moved []*Program
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.names, before.names)))) {
		programs := []*Program{s.Starts(name), before.Starts(name)}
		for ev := range heardBy(programs...) {
			if begins(before, s, name, ev) || begins(s, before, name, ev) {
				moved = append(moved, programs...)
				break
			}
		}
	}
	out := map[string]string{}
	for ev := range heardBy(moved...) {
		names := all.of(ev)
		come := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return out[name] != "" || !begins(before, s, name, ev) })
		if len(come) == 0 {
			continue
		}
		if gone := slices.IndexFunc(names, func(name string) bool { return begins(s, before, name, ev) }); gone >= 0 {
			for _, name := range come {
				out[name] = names[gone]
			}
		}
	}
	return out
}

// listeners has the sagas of two sets by the triggers of their texts that start.
type listeners map[string][]string

func (s *Set) listeners(before *Set) listeners {
	out := listeners{}
	for _, set := range []*Set{s, before} {
		for _, name := range set.names {
			if p := set.Starts(name); p != nil {
				for _, trigger := range slices.Concat(sortedKeys(p.plain), sortedKeys(p.joins)) {
					out[trigger] = append(out[trigger], name)
				}
			}
		}
	}
	return out
}

// of lists the sagas that may hear an event, sorted.
func (l listeners) of(ev edda.Event) (out []string) {
	for _, name := range namesOf(ev) {
		out = append(out, l[name]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
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
