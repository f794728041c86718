package saga

import (
	"fmt"

	"edda"
	"edda/manifests"
)

// Skew returns what may go wrong while one process runs this set already and another one, with other keys, still runs the
// set before it, as the shards of a cluster do for a moment. What a saga emits in this set alone may come past the other
// process, which takes it only afterwards. An event whose start has another key may start in both or in neither.
func (s *Set) Skew(before *Set) (out manifests.Problems) {
	for _, name := range s.names {
		p, old := s.Starts(name), before.Starts(name)
		if p == nil {
			continue
		}
		warn := func(pos manifests.Pos, format string, args ...any) {
			out = append(out, manifests.Problem{File: p.m.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
		}
		if !p.sameKey(old) {
			warn(p.m.Name.Pos, "saga %s has another key than in the revision before: an event of this moment may start an instance in two shards, or in none. "+
				"Give the saga another name, or let no such events come meanwhile", name)
		}
		emitted := map[string]bool{} // and therefore nothing new
		if old != nil {
			old.m.Walk(manifests.Visitor{Action: func(a *manifests.Action) { emitted[a.Kind+" "+a.Name.Text] = true }})
		}
		p.m.Walk(manifests.Visitor{Action: func(a *manifests.Action) {
			switch {
			case a.Kind == "start" && s.startedBy(a) && !before.startedBy(a):
				warn(a.Pos, "saga %s starts saga %s as only this revision can, and a shard that has the one before would refuse that: deploy %s first, and then %s",
					name, a.Name.Text, a.Name.Text, name)
			case a.Kind == "event" && !emitted[a.Kind+" "+a.Name.Text]:
				fact := edda.Event{Kind: edda.KindEvent, AggregateType: name, Type: a.Name.Text}
				for _, other := range s.names {
					if hears(s.Starts(other), fact) && !hears(before.Starts(other), fact) {
						warn(a.Pos, "saga %s emits %s.%s from this revision on, and saga %s takes it only then: a shard that has the one before would ignore it. "+
							"Deploy %s first, and then %s", name, name, a.Name.Text, other, other, name)
					}
				}
			}
		}})
	}
	return out
}

// startedBy reports whether a saga of the set has the handler that an action starts.
func (s *Set) startedBy(a *manifests.Action) bool {
	ev := edda.Event{Kind: edda.KindStart}
	if a.Event != nil {
		ev.Type = a.Event.Text
	}
	return hears(s.Starts(a.Name.Text), ev)
}

func hears(p *Program, ev edda.Event) bool { return p != nil && len(p.candidates(ev)) > 0 }
