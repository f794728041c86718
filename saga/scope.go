package saga

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"edda"
	"edda/expression"
	"edda/internal/jsonvalue"
)

// scope is what the expressions of one handler's run may refer to. Names are
// looked up when an expression asks, each let once.
type scope struct {
	r    *run
	h    *handler
	vars map[string]any // items of each; input, result and id of an undo
	// kept holds what was kept for a seq or an undo that runs later.
	kept  *edda.Scope
	known *knownValues // of what was kept
	// old is the state and steps that let, when and set see; nil once do runs.
	old   *view
	lets  *letValues
	event *decoded
}

// view is the part of an instance that a handler changes as it runs.
type view struct {
	state  *document
	steps  []edda.Step
	groups []edda.Group
}

// letValues are the lets of one run of a handler, evaluated when first asked
// for and always against the old state.
type letValues struct {
	old    view
	vars   map[string]any // the handler's, not those of an each in which a let is first asked for
	path   string
	values map[string]any
}

// decoded is a JSON value, decoded when first asked for.
type decoded struct {
	raw  json.RawMessage
	v    any
	done bool
}

// is tells whether it is of these very bytes.
func (d *decoded) is(raw json.RawMessage) bool { return bytes.Equal(d.raw, raw) }

func (d *decoded) value() (any, error) {
	if d == nil || d.done {
		return d.get(), nil
	}
	v, err := jsonvalue.Decode(d.raw)
	if err != nil {
		return nil, err
	}
	d.v, d.done = v, true
	return v, nil
}

// document is a state, decoded when first asked for. It never changes: what sets
// something makes another.
type document struct{ decoded }

func documentOf(object map[string]any) *document {
	return &document{decoded{v: object, done: true}}
}

// object is the map that a state is; nothing at all is an empty one.
func (d *document) object() (map[string]any, error) {
	v, err := d.value()
	if object, ok := v.(map[string]any); ok || err != nil {
		return object, err
	}
	return map[string]any{}, nil
}

// bytes is the JSON of a state that was set.
func (d *document) bytes() (json.RawMessage, error) {
	if len(d.raw) > 0 {
		return d.raw, nil
	}
	state, err := d.object()
	if err != nil {
		return nil, err
	}
	return jsonvalue.Encode(state)
}

func (d *decoded) get() any {
	if d == nil {
		return nil
	}
	return d.v
}

// within gives the scope with more names.
func (sc *scope) within(vars map[string]any) *scope {
	out := *sc
	out.vars = maps.Clone(sc.vars)
	if out.vars == nil {
		out.vars = map[string]any{}
	}
	maps.Copy(out.vars, vars)
	return &out
}

// now gives the scope as do sees it: the new state.
func (sc *scope) afterSet() *scope {
	out := *sc
	out.old = nil
	return &out
}

// asking is what one expression asks in a scope.
type asking struct {
	*scope
	p *expression.Program
}

func (a *asking) Lazy(name string) (any, error) { return a.lookup(a.p, name) }

func (a *asking) UUID(name string) (string, bool) { return a.r.uuid(name), true }

func (sc *scope) env(p *expression.Program) expression.Env {
	return expression.Env{Source: &asking{sc, p}, Budget: sc.r.evaluation()}
}

func (sc *scope) eval(p *expression.Program) (any, error) {
	return sc.evalWithin(p, sc.r.evaluation())
}

func (sc *scope) evalWithin(p *expression.Program, b *expression.Budget) (any, error) {
	env := sc.env(p)
	env.Budget = b
	v, err := p.Share(env)
	if err != nil {
		return nil, sc.failed(p, err)
	}
	return v, nil
}

// true evaluates a condition; one that is not there is true.
func (sc *scope) isTrue(p *expression.Program) (bool, error) {
	if p == nil {
		return true, nil
	}
	ok, err := p.True(sc.env(p))
	if err != nil {
		return false, sc.failed(p, err)
	}
	return ok, nil
}

// failed turns an expression's error into poison that shows its inputs.
func (sc *scope) failed(p *expression.Program, err error) error {
	if poison := (*poisonError)(nil); errors.As(err, &poison) {
		return poison
	}
	return &poisonError{path: sc.r.path, source: p.Source(), inputs: bounded(sc.inputs(p)), message: err.Error()}
}

// inputs are the names that an expression refers to, as an object for people: what each
// stands for may be nested as deep as a value may be, and lies a level further in.
func (sc *scope) inputs(p *expression.Program) string {
	out := []byte{'{'}
	for _, name := range p.Names() {
		v, err := sc.lookup(p, name)
		if err != nil {
			continue
		}
		raw, err := jsonvalue.Encode(v)
		if err != nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), name...), `":`...), raw...)
	}
	return string(append(out, '}'))
}

func (sc *scope) lookup(p *expression.Program, name string) (any, error) {
	if v, ok := sc.vars[name]; ok {
		return v, nil
	}
	if v, ok, err := sc.keptValue(name); ok || err != nil {
		return v, err
	}
	if sc.h != nil && sc.h.lets[name] != nil {
		return sc.let(name)
	}
	return sc.base(p, name)
}

// keptValue finds what was kept when the handler ran.
func (sc *scope) keptValue(name string) (any, bool, error) {
	raw, ok, err := sc.keptBytes(name)
	if !ok || err != nil {
		return nil, false, err
	}
	v, err := sc.known.of(name, raw).value()
	return v, true, err
}

// knownValues are those that were kept and asked for, each decoded once.
type knownValues struct{ list []knownValue }

type knownValue struct {
	name  string
	value *decoded
}

func (k *knownValues) of(name string, raw json.RawMessage) *decoded {
	for _, known := range k.list {
		if known.name == name {
			return known.value
		}
	}
	d := &decoded{raw: raw}
	k.list = append(k.list, knownValue{name, d})
	return d
}

// keptBytes finds the same as it was written.
func (sc *scope) keptBytes(name string) (json.RawMessage, bool, error) {
	if sc.kept == nil {
		return nil, false, nil
	}
	if why, broken := sc.kept.Broken[name]; broken {
		return nil, false, fmt.Errorf("let %s failed: %s", name, why)
	}
	raw, ok := sc.kept.Values[name]
	switch {
	case ok:
	case name == "event":
		raw, ok = sc.kept.Event, true
	case name == "meta" && sc.kept.Meta != nil:
		raw, ok = sc.kept.Meta, true
	}
	return raw, ok, nil
}

// let evaluates a let against the old state, once.
func (sc *scope) let(name string) (any, error) {
	if sc.lets == nil {
		return nil, nil // a resumed handler keeps only what it refers to
	}
	if v, ok := sc.lets.values[name]; ok {
		return v, nil
	}
	old := *sc
	old.old, old.vars = &sc.lets.old, sc.lets.vars
	defer sc.r.within(sc.lets.path)()
	v, err := old.eval(sc.h.lets[name])
	if err != nil {
		return nil, err
	}
	sc.lets.values[name] = v
	return v, nil
}

func (sc *scope) base(p *expression.Program, name string) (any, error) {
	switch name {
	case "event":
		return sc.event.value()
	case "meta":
		return sc.r.meta(), nil
	case "state":
		return sc.view().state.object()
	case "step":
		v, err := sc.view().stepValues(p)
		if err == nil {
			err = sc.r.spend(expression.Read(v))
		}
		return v, err
	case "key":
		return sc.r.key.Correlation, nil
	case "seen":
		return sc.r.seen()
	case "config":
		return sc.r.p.config, nil
	case "saga":
		return sc.r.sagaValue(), nil
	case "now":
		return edda.FormatTime(sc.r.now), nil
	}
	return nil, nil
}

func (sc *scope) view() view {
	if sc.old != nil {
		return *sc.old
	}
	return sc.r.view()
}

// keep saves the names that something running later may refer to. A let that
// fails now fails when it is used, if it ever is.
func (sc *scope) keep(needs []string) (*edda.Scope, error) {
	out := &edda.Scope{}
	if sc.h != nil {
		out.Handler = sc.h.trigger
	}
	for _, name := range needs {
		if err := sc.keepName(out, name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (sc *scope) keepName(out *edda.Scope, name string) error {
	_, isVar := sc.vars[name]
	if !isVar && !sc.isLet(name) && name != "event" && name != "meta" && !sc.isKept(name) {
		return nil // state, step and the like are looked up when it runs
	}
	if raw, ok, err := sc.keptBytes(name); ok && err == nil && len(raw) > 0 && !isVar {
		keepBytes(out, name, raw) // as it was written: a seq that waits again keeps the same
		return nil
	}
	v, err := sc.lookup(nil, name)
	if err != nil {
		if out.Broken == nil {
			out.Broken = map[string]string{}
		}
		out.Broken[name] = err.Error()
		return nil
	}
	raw, err := jsonvalue.Encode(v)
	if err != nil {
		return err
	}
	keepBytes(out, name, raw)
	return sc.r.spend(expression.Written(len(raw)))
}

func keepBytes(out *edda.Scope, name string, raw json.RawMessage) {
	switch name {
	case "event":
		out.Event = raw
	case "meta":
		out.Meta = raw
	default:
		if out.Values == nil {
			out.Values = map[string]json.RawMessage{}
		}
		out.Values[name] = raw
	}
}

func (sc *scope) isLet(name string) bool { return sc.h != nil && sc.h.lets[name] != nil }

func (sc *scope) isKept(name string) bool {
	if sc.kept == nil {
		return false
	}
	_, ok := sc.kept.Values[name]
	return ok || sc.kept.Broken[name] != ""
}

// resume is the scope of something that runs later than its handler.
func (r *run) resume(kept *edda.Scope) *scope {
	sc := &scope{r: r, kept: kept, known: &knownValues{}}
	if kept == nil {
		sc.kept = &edda.Scope{}
		return sc
	}
	sc.h = r.p.handlerNamed(kept.Handler)
	return sc
}

func (p *Program) handlerNamed(trigger string) *handler {
	for _, h := range p.handlers {
		if h.trigger == trigger {
			return h
		}
	}
	return nil
}
