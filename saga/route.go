package saga

import (
	"cmp"
	"slices"

	"edda"
	"edda/expression"
	"edda/manifests"
)

// Target is one key that an event goes to.
type Target struct {
	Key edda.Key
	// Versions of the saga that route the event here.
	Versions []int
	// Dead is set when the event has no target (no key, malformed). It is the dead letter to
	// commit, and there is no cell to load.
	Dead *edda.DeadLetter
	// Crowded says that the tenant may park no more: an event to park becomes a dead letter.
	Crowded bool
	// Room is an empty list of the caller's. Apply puts the transitions there if it is large
	// enough.
	Room []edda.Transition
	// payload is the event's, if finding the key has decoded it. Only the first target has it,
	// because targets may be applied concurrently.
	payload *decoded
}

// routing is one event being routed, and the environment of a key's expression. It decodes the
// payload at most once.
type routing struct {
	p       *Program // whose key is evaluated
	ev      edda.Event
	payload *decoded
}

func routingOf(ev edda.Event) *routing { return &routing{ev: ev, payload: &decoded{raw: ev.Payload}} }

// Route returns the targets of an event, one for each saga and key. Without a target the event is
// ignored.
func (s *Set) Route(ev edda.Event) []Target {
	switch {
	case ev.Malformed != "":
		return []Target{{Key: ev.Key, Dead: deadLetter(ev, ev.Key, ev.Malformed, ev.Error)}}
	case ev.Kind == edda.KindEvent:
		return s.routeEvent(ev)
	}
	newest := s.Newest(ev.Key.Saga)
	switch { // the other kinds name their saga, and all but schedules their instance
	case ev.Kind == edda.KindSchedule && newest == nil:
		return nil
	case ev.Kind == edda.KindSchedule:
		return routeSaga([]*Program{newest}, routingOf(ev))
	case ev.Kind == edda.KindOperator && isRelease(ev) && (newest == nil || ev.Key.Correlation == ""):
		return s.routeRedriven(ev)
	case newest != nil:
		return []Target{{Key: ev.Key, Versions: s.allVersions(ev.Key.Saga)}}
	case ev.Kind == edda.KindResult:
		return nil
	}
	return []Target{{Key: ev.Key, Dead: deadLetter(ev, ev.Key, edda.DeadNoInstance, "no saga "+ev.Key.Saga+" is loaded")}}
}

// routeRedriven finds the key of a dead letter that had none. It asks only its saga, because other
// sagas may have applied the event. If there is still no key, it makes no second dead letter.
func (s *Set) routeRedriven(ev edda.Event) []Target {
	want := redriveOf(ev)
	if want.Event == nil || ev.Type != edda.VerbRedrive || want.Lacks() != nil {
		return nil
	}
	in := routingOf(redriven(*want.Event, want.Data))
	targets := routeSaga(s.versions[ev.Key.Saga], in)
	for _, t := range targets {
		want.KeepCut(t.Dead)
	}
	return targets
}

// allVersions returns the set's own list; do not change it.
func (s *Set) allVersions(saga string) []int { return s.numbers[saga] }

func (s *Set) routeEvent(ev edda.Event) []Target {
	var out []Target
	in := routingOf(ev)
	for _, name := range s.names {
		if targets := routeSaga(s.versions[name], in); out == nil {
			out = targets
		} else {
			out = append(out, targets...)
		}
	}
	if len(out) > 0 && out[0].Dead == nil {
		out[0].payload = in.payload
	}
	return out
}

// Unheard tells whether an event that Route gives no target may have a misspelt type, and the most
// similar trigger of the newest versions. A saga's own fact may be for others.
func (s *Set) Unheard(ev edda.Event) (near string, suspicious bool) {
	if ev.FullType == "" && s.versions[ev.AggregateType] != nil {
		return "", false
	}
	var triggers []string
	for _, name := range s.names {
		if s.ended[name] {
			continue
		}
		triggers = append(triggers, s.Newest(name).outerTriggers()...)
	}
	for _, name := range namesOf(ev) {
		if near := manifests.Nearest(name, triggers); near != "" && name != "" {
			return near, true
		}
	}
	return "", true
}

// routeSaga asks every version of one saga for its key and groups the results.
func routeSaga(versions []*Program, in *routing) []Target {
	var out []Target
	var dead *edda.DeadLetter
	for _, p := range versions {
		hs := p.match(in.ev)
		if len(hs) == 0 {
			continue
		}
		correlation, err := p.correlation(hs[0], in)
		if err != nil || correlation == "" {
			if dead == nil {
				dead = p.noKey(hs[0], in.ev, err)
			}
			continue
		}
		k := keyOf(p, in.ev.Tenant, correlation)
		i := slices.IndexFunc(out, func(t Target) bool { return t.Key == k })
		if i < 0 {
			out = append(out, Target{Key: k, Versions: []int{p.Version()}})
		} else if !slices.Contains(out[i].Versions, p.Version()) {
			out[i].Versions = append(out[i].Versions, p.Version())
		}
	}
	if len(out) == 0 && dead != nil {
		out = append(out, Target{Key: dead.Key, Dead: dead})
	}
	return out
}

// match lists the handlers that an event triggers: that of its most precise name which has one,
// then each A & B in document order.
func (p *Program) match(ev edda.Event) []*handler {
	var out []*handler
	names := namesOf(ev)
	for _, name := range names {
		if h := p.outer(ev, name); h != nil {
			out = append(out, h)
			break
		}
	}
	for _, h := range p.handlers {
		if len(h.src.Trigger.Parts) > 1 && h.part(names) != "" {
			out = append(out, h)
		}
	}
	return out
}

// outerTriggers are the triggers of events from outside the instance, with the parts of A & B.
func (p *Program) outerTriggers() []string {
	var out []string
	for _, h := range p.handlers {
		for _, part := range h.src.Trigger.Parts {
			if !p.inner[part] {
				out = append(out, part)
			}
		}
	}
	return out
}

// outer returns the handler of an event. An aggregate's event named charge.ok does not trigger the
// handler of a step's result.
func (p *Program) outer(ev edda.Event, trigger string) *handler {
	if ev.Kind == edda.KindEvent && p.inner[trigger] {
		return nil
	}
	return p.plain[trigger]
}

// eventNames are the names by which a trigger may call an event, the most precise first. Some may be
// empty, which is the name of no trigger.
type eventNames [4]string

// namesOf returns the full type of a CloudEvent with and without its version, then the event with
// and without its aggregate's type.
func namesOf(ev edda.Event) eventNames {
	if ev.Kind == edda.KindSchedule {
		return eventNames{"schedule." + ev.Type}
	}
	names := eventNames{ev.FullType, edda.TypeWithoutVersion(ev.FullType), "", ev.Type}
	if names[1] == ev.Type { // one word is no more precise than with the aggregate's type
		names[1] = ""
	}
	if ev.AggregateType != "" {
		names[2] = ev.AggregateType + "." + ev.Type
	}
	return names
}

// part is the part of an A & B that is the event's most precise name of all parts, or empty.
func (h *handler) part(names eventNames) string {
	for _, name := range names {
		if slices.Contains(h.src.Trigger.Parts, name) {
			return name
		}
	}
	return ""
}

// correlation evaluates the key for an event; no state is in scope.
func (p *Program) correlation(h *handler, in *routing) (string, error) {
	prog := cmp.Or(h.key, p.key)
	if prog == nil {
		return in.ev.Correlation, nil
	}
	in.p = p
	v, err := prog.Share(expression.Env{Source: in})
	if err != nil {
		return "", err
	}
	return identifier(v)
}

// Lazy returns what a key's expression sees.
func (in *routing) Lazy(name string) (any, error) {
	switch name {
	case "event":
		return in.p.upcastValue(in.ev, in.payload)
	case "meta":
		return metaOf(in.ev), nil
	case "config":
		return in.p.config, nil
	case "now":
		return edda.FormatTime(in.ev.Time), nil
	}
	return nil, nil
}

// UUID derives no ids, because a key depends only on the event.
func (*routing) UUID(string) (string, bool) { return "", false }

func (p *Program) noKey(h *handler, ev edda.Event, err error) *edda.DeadLetter {
	d := deadLetter(ev, keyOf(p, ev.Tenant, ""), edda.DeadNoKey, "the key is null or empty")
	d.Path = h.trigger + "/key"
	prog := cmp.Or(h.key, p.key)
	if prog == nil {
		d.Error = "the event has no correlation_id, and the saga has no key:"
		return d
	}
	d.Source, d.Inputs = prog.Source(), bounded(string(ev.Payload))
	if err != nil {
		d.Error = err.Error()
	}
	return d
}

// deadLetter makes the dead letter of an event that cannot be applied. Its id is derived, so that
// the same event gives the same dead letter.
func deadLetter(ev edda.Event, k edda.Key, reason, why string) *edda.DeadLetter {
	return &edda.DeadLetter{
		ID:     deriveID(ev.Time, "dead", k.Tenant, k.Saga, k.Correlation, ev.ID, reason),
		Reason: reason, Key: k, Event: ev, Error: why, Time: clockMillis(ev.Time), Subject: ev.Subject,
	}
}
