package saga

import (
	"maps"
	"slices"
	"strings"

	"edda/expression"
	"edda/manifests"
)

// shape is what a manifest says of the members of a value. An open one may have any.
type shape struct {
	open    bool
	members map[string]*shape
}

// shapeOf returns the shape of a value that is written in the manifest: open, unless it is a map of
// literals.
func shapeOf(v *manifests.Value) *shape {
	out := &shape{open: true}
	if v == nil || v.Kind != manifests.Map {
		return out
	}
	out.open = false
	for _, f := range v.Fields {
		out.add([]string{f.Name}, shapeOf(f.Value))
	}
	return out
}

// add says that a path may have a value.
func (s *shape) add(path []string, value *shape) {
	if s.open {
		return
	}
	if s.members == nil {
		s.members = map[string]*shape{}
	}
	name := path[0]
	inner := s.members[name]
	switch {
	case len(path) > 1:
		if inner == nil {
			inner = &shape{}
			s.members[name] = inner
		}
		inner.add(path[1:], value)
	case inner == nil || value.open:
		s.members[name] = value
	default:
		for member, v := range value.members {
			inner.add([]string{member}, v)
		}
	}
}

// or says that the value may have the other shape, too.
func (s *shape) or(other *shape) {
	s.open = s.open || other.open
	for name, inner := range other.members {
		s.add([]string{name}, inner)
	}
}

// missing returns the part of a path up to the first member that no value has, and the members
// beside it; ok is false if there is none.
func (s *shape) missing(path []string) (upTo, known []string, ok bool) {
	for i, name := range path {
		if s.open || strings.Contains(name, ".") {
			return nil, nil, false
		}
		inner := s.members[name]
		if inner == nil {
			return path[:i+1], sortedKeys(s.members), true
		}
		s = inner
	}
	return nil, nil, false
}

// stateShape returns what the saga sets in its state. Every path of a set is written out, so nothing
// else can be there.
func (c *compiler) stateShape() *shape {
	out := &shape{}
	if c.p.m.State != nil {
		out = shapeOf(c.p.m.State)
	}
	_, own := out.members["state"]
	add := func(set []assign) {
		for _, a := range set {
			if a.path[0] == "state" && len(a.path) > 1 && !own {
				c.warnf(a.value.src.Pos, "set writes into the state in any case, so this is state.%s: leave the first state out", strings.Join(a.path, "."))
			}
			out.add(a.path, shapeOf(a.value.src))
		}
	}
	for _, h := range c.p.handlers {
		add(h.set)
		for _, b := range append(slices.Clone(h.cases), h.newer) {
			if b != nil {
				add(b.set)
			}
		}
	}
	for _, a := range c.p.actions {
		add(a.set)
	}
	return out
}

// checkData warns of what an expression reads and nothing can give it.
func (c *compiler) checkData() {
	if c.p.o.Kept {
		return // nobody sees the warnings of a stored text
	}
	state, results := c.stateShape(), c.resultShapes()
	for _, u := range c.uses {
		for _, ref := range u.prog.Refs() {
			if ref[0] == "state" {
				c.checkState(u, state, ref[1:])
			}
			if d := c.declOf(u.handler); ref[0] == "event" && d != nil {
				c.checkEvent(u, d, ref[1:])
			}
			c.checkResult(u, results, ref)
		}
	}
	for _, h := range c.p.handlers {
		if d := c.declOf(h); d != nil {
			c.checkKey(h, d)
		}
	}
}

func (c *compiler) checkState(u use, state *shape, path []string) {
	if upTo, known, ok := state.missing(path); ok {
		c.warnf(u.expr.Pos, "no set and no state: gives state.%s a value, so it is null%s", strings.Join(upTo, "."), didYouMean(upTo[len(upTo)-1], known))
	}
}

// resultShapes returns what the effects of the steps give as results, by the steps' names.
func (c *compiler) resultShapes() map[string]*shape {
	out := map[string]*shape{}
	eachStep(c.p.verbs, c.p.m, func(a *manifests.Action, id string) {
		if out[id] == nil {
			out[id] = &shape{}
		}
		out[id].or(c.resultShape(a))
	})
	return out
}

// resultShape returns what the effect of an action gives as its result. It is open for an effect that
// is not known, or that passes an answer on.
func (c *compiler) resultShape(a *manifests.Action) *shape {
	e := c.p.o.Effects[a.Name.Text]
	if a.Kind != verbEffect || e == nil || a.Version > 0 && a.Version != e.Version {
		return &shape{open: true}
	}
	out := shapeOf(e.Result)
	if checked := e.Check.Field("result"); checked != nil {
		out.or(shapeOf(checked))
	}
	return out
}

// checkResult warns of a member that the result of an effect does not have: of step.x.result, of
// event where x.ok runs, and of result in an undo.
func (c *compiler) checkResult(u use, results map[string]*shape, ref []string) {
	var of *shape
	var step string
	var path []string
	switch {
	case ref[0] == "step" && len(ref) > 3 && ref[2] == "result":
		of, step, path = results[ref[1]], ref[1], ref[3:]
	case ref[0] == "result" && u.undoes != nil:
		of, step, path = c.resultShape(u.undoes), stepID(u.undoes), ref[1:]
	case ref[0] == "event" && u.handler != nil && c.p.inner[u.handler.trigger]:
		if id, outcome, _ := cutLast(u.handler.trigger, "."); outcome == "ok" {
			of, step, path = results[id], id, ref[1:]
		}
	}
	if of == nil {
		return
	}
	if upTo, known, ok := of.missing(path); ok {
		c.warnf(u.expr.Pos, "the result of %s has no %s, so %s is null%s", step, strings.Join(upTo, "."), strings.Join(ref, "."), didYouMean(upTo[len(upTo)-1], known))
	}
}

// declOf returns the declaration of the one event that triggers a handler; nil if it is not clear
// which that is, or if there is no schema.
func (c *compiler) declOf(h *handler) *eventDecl {
	if h == nil || len(h.src.Trigger.Parts) > 1 || c.p.inner[h.trigger] {
		return nil
	}
	d := c.p.events[h.trigger]
	if _, last, dotted := cutLast(h.trigger, "."); d == nil && dotted {
		d = c.p.events[last]
	}
	if d == nil || d.src.Schema == nil {
		return nil
	}
	return d
}

// checkEvent warns of a member that the schema of the event forbids. An upcast may set it all the
// same.
func (c *compiler) checkEvent(u use, d *eventDecl, path []string) {
	schema, _ := d.src.Schema.Const()
	for i, name := range path {
		known, others, plain := schemaMembers(schema)
		if !plain {
			return
		}
		if next, ok := known[name]; ok {
			schema = next
			continue
		}
		if others != false || d.upcasts(path[:i+1]) {
			return
		}
		c.warnf(u.expr.Pos, "the schema of %s forbids event.%s, so it is null%s", d.src.Name.Text, strings.Join(path[:i+1], "."), didYouMean(name, sortedKeys(known)))
		return
	}
}

// upcasts reports whether an upcast sets a path, or a part of it.
func (d *eventDecl) upcasts(path []string) bool {
	for _, u := range d.upcast {
		if slices.ContainsFunc(u.set, func(a assign) bool {
			n := min(len(a.path), len(path))
			return slices.Equal(a.path[:n], path[:n])
		}) {
			return true
		}
	}
	return false
}

// schemaMembers returns the schemas of an object's members by name, and that of all others. plain is false
// if other words of the schema may say something about members.
func schemaMembers(schema any) (known map[string]any, others any, plain bool) {
	object, _ := schema.(map[string]any)
	for word := range object {
		if slices.Contains(mixing, word) {
			return nil, nil, false
		}
	}
	all, _ := object["properties"].(map[string]any)
	known = maps.Clone(all)
	maps.DeleteFunc(known, func(_ string, schema any) bool { return schema == false })
	return known, object["additionalProperties"], object != nil
}

// mixing are the words of JSON Schema by which a schema is made of others. Read only.
var mixing = []string{
	"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas", "dependencies",
	"unevaluatedProperties",
}

// checkKey warns of a key that a valid event may lack.
func (c *compiler) checkKey(h *handler, d *eventDecl) {
	prog, pos := h.key, manifests.Pos{}
	if h.src.Key != nil {
		pos = h.src.Key.Pos
	} else if c.p.m.Key != nil {
		prog, pos = c.p.key, c.p.m.Key.Pos
	}
	name, path, ok := readsMember(prog)
	if !ok || name != "event" {
		return
	}
	schema, _ := d.src.Schema.Const()
	for i, name := range path {
		known, _, plain := schemaMembers(schema)
		inner, described := known[name]
		if !plain || !described {
			return
		}
		object, _ := schema.(map[string]any)
		required, _ := object["required"].([]any)
		if !slices.Contains(required, any(name)) {
			c.warnf(pos, "the key can be missing: the schema of %s does not require %s, and an event without it is a dead letter no-key; add it to required", d.src.Name.Text, strings.Join(path[:i+1], "."))
			return
		}
		schema = inner
	}
}

// readsMember returns the member that an expression reads, if it does nothing else.
func readsMember(p *expression.Program) (name string, path []string, ok bool) {
	if p == nil {
		return "", nil, false
	}
	return p.Path()
}
