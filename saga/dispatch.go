package saga

import (
	"encoding/json"
	"fmt"
	"slices"

	"edda"
	"edda/expression"
)

// dispatch runs the part of the program that handles this kind of trigger.
func (r *run) dispatch() error {
	switch r.ev.Kind {
	case edda.KindResult:
		return r.result(r.ev.CommandID, outcomeOf(*r.ev))
	case edda.KindAnswer:
		return r.answer()
	case edda.KindOperator:
		return r.operator()
	case edda.KindTimer:
		return r.timer()
	}
	return r.events()
}

// versionError says that an event is newer than the manifest knows.
type versionError struct {
	name       string
	got, known int
}

func (e *versionError) Error() string {
	return fmt.Sprintf("%s version %d is newer than version %d, the newest this manifest knows: give the handler a newer: path, or load a manifest that knows it", e.name, e.got, e.known)
}

// events runs every handler that matches, as one transition.
func (r *run) events() error {
	payload, newer, err := r.p.upcast(*r.ev, r.event)
	if err != nil {
		return err
	}
	if !r.event.is(payload) {
		r.event = &decoded{raw: payload}
	}
	ran := false
	for _, h := range r.p.candidates(*r.ev) {
		if !r.mayRun(h) {
			continue
		}
		ran = true
		switch {
		case newer != nil:
			err = r.handleNewer(h, newer)
		case len(h.src.Trigger.Parts) == 1:
			err = r.handleNoting(h)
		default:
			err = r.join(h, payload)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case ran:
	case r.running():
		r.guarded++
		r.output(edda.Output{Word: "ignored", Name: nameOf(*r.ev)})
	default:
		r.late(nameOf(*r.ev))
	}
	return nil
}

// handleNoting runs a handler, and notes an output if its conditions were false.
func (r *run) handleNoting(h *handler) error {
	before := r.guarded
	if err := r.handle(h, nil); err != nil {
		return err
	}
	if r.guarded > before {
		r.output(edda.Output{Word: "guarded", Name: "true"})
	}
	return nil
}

// handleNewer runs the handler's newer: block, or fails if it has none.
func (r *run) handleNewer(h *handler, newer *versionError) error {
	if h.newer == nil {
		return newer
	}
	defer r.within(r.uniquePath(h.trigger + "/newer"))()
	sc := r.scope(h, nil)
	r.tr.Handlers = append(r.tr.Handlers, h.trigger)
	if err := r.assign(sc, h.newer.set, h.newer.unset); err != nil {
		return err
	}
	return r.do(h.newer.do, sc.afterSet())
}

// join stores a part of an A & B, and runs the handler once when all parts have come.
func (r *run) join(h *handler, payload json.RawMessage) error {
	if r.in.Seen == nil {
		r.in.Seen = map[string]json.RawMessage{}
	}
	part := h.part(namesOf(*r.ev))
	if _, err := r.event.value(); err != nil {
		return r.poison("payload: %v", err)
	}
	if len(payload) == 0 {
		payload = json.RawMessage("null")
	}
	r.in.Seen[part] = payload
	missing := func(part string) bool { _, came := r.in.Seen[part]; return !came }
	if slices.ContainsFunc(h.src.Trigger.Parts, missing) || slices.Contains(r.in.Joined, h.trigger) {
		r.tr.Handlers = append(r.tr.Handlers, h.trigger)
		return nil
	}
	before := len(r.tr.Handlers)
	if err := r.handleNoting(h); err != nil {
		return err
	}
	if len(r.tr.Handlers) > before {
		r.in.Joined = append(r.in.Joined, h.trigger)
	}
	return nil
}

// upcast brings an older payload up to the version that the manifest knows, and validates it.
// newer is set when the event is newer than the manifest.
func (p *Program) upcast(ev edda.Event, given *decoded) (payload json.RawMessage, newer *versionError, err error) {
	d := p.decl(ev)
	if d == nil || ev.Kind != edda.KindEvent {
		return ev.Payload, nil, nil
	}
	if ev.Version > d.src.Version {
		return ev.Payload, &versionError{name: ev.Type, got: ev.Version, known: d.src.Version}, nil
	}
	v, err := p.upcastValue(ev, given)
	if err != nil {
		return nil, nil, err
	}
	if err := validate(d.schema, v); err != nil {
		return nil, nil, &poisonError{path: "events/" + d.src.Name.Text, message: "the payload violates its schema: " + err.Error(), inputs: bounded(string(ev.Payload))}
	}
	payload, err = encode(v)
	return payload, nil, err
}

// upcastValue returns the payload in the newest version, not validated: enough to find the key.
// given is the payload as it came. The upcasts apply in order; an event without a version counts as
// version 1.
func (p *Program) upcastValue(ev edda.Event, given *decoded) (any, error) {
	v, err := given.value()
	if err != nil {
		return nil, &poisonError{path: "events/" + ev.Type, message: err.Error()}
	}
	d := p.decl(ev)
	if d == nil || ev.Kind != edda.KindEvent || ev.Version > d.src.Version {
		return v, nil
	}
	budget := expression.NewBudget(p.o.MaxEvaluation)
	for version := max(ev.Version, 1); ; version++ {
		u, ok := d.upcast[version]
		if !ok {
			return v, nil
		}
		object, isMap := v.(map[string]any)
		if v != nil && !isMap {
			return nil, &poisonError{path: "events/" + d.src.Name.Text, message: "the payload of an older version is no map"}
		}
		next, err := u.apply(p, ev, object, &budget)
		if err != nil {
			return nil, err
		}
		v = next
	}
}

func (p *Program) decl(ev edda.Event) *eventDecl {
	for _, name := range namesOf(ev) {
		if d := p.events[name]; d != nil {
			return d
		}
	}
	return nil
}

func (u upcast) apply(p *Program, ev edda.Event, object map[string]any, budget *expression.Budget) (map[string]any, error) {
	r := &run{p: p, ev: &ev, in: &edda.Instance{}, path: "events/" + ev.Type, key: edda.Key{Tenant: ev.Tenant}, now: ev.Time, budget: *budget}
	defer func() { *budget = r.budget }()
	sc := &scope{r: r, vars: map[string]any{"event": object}}
	r.state = documentOf(object)
	if err := r.assign(sc, u.set, u.unset); err != nil {
		return nil, err
	}
	return r.state.object()
}
