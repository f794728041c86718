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

// scope has the names that the expressions of one handler run may refer to. Names are resolved on
// demand, each let once.
type scope struct {
	r    *run
	h    *handler
	vars map[string]any // items of each; input, result and id of an undo
	// kept has the values that were stored for a seq or an undo that runs later.
	kept  *edda.Scope
	known *knownValues // decoded values of kept
	// old is the state and steps for let, when and set; nil once do runs.
	old   *view
	lets  *letValues
	event *decoded
}

// view is the part of an instance that changes while a handler runs.
type view struct {
	state  *document
	steps  []edda.Step
	groups []edda.EachRound
}

// letValues are the lets of one run of a handler. Each is evaluated on demand and against the old
// state.
type letValues struct {
	old    view
	vars   map[string]any // the handler's, not those of an each whose body uses the let
	path   string
	values []letValue
}

type letValue struct {
	name string
	v    any
}

// decoded is a JSON value that is decoded on demand.
type decoded struct {
	raw  json.RawMessage
	v    any
	done bool
}

// is reports whether it was made of these bytes.
func (d *decoded) is(raw json.RawMessage) bool { return bytes.Equal(d.raw, raw) }

func (d *decoded) value() (any, error) {
	if d == nil {
		return nil, nil
	}
	if !d.done {
		v, err := jsonvalue.Decode(d.raw)
		if err != nil {
			return nil, err
		}
		d.v, d.done = v, true
	}
	return d.v, nil
}

// document is a state that is decoded on demand. It is immutable: a set makes another one.
type document struct{ decoded }

func documentOf(object map[string]any) *document {
	return &document{decoded{v: object, done: true}}
}

// object returns the state's map; an absent state is an empty one.
func (d *document) object() (map[string]any, error) {
	v, err := d.value()
	if object, ok := v.(map[string]any); ok || err != nil {
		return object, err
	}
	return map[string]any{}, nil
}

// bytes encodes a state.
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

// within returns the scope with more names.
func (sc *scope) within(vars map[string]any) *scope {
	out := *sc
	out.vars = maps.Clone(sc.vars)
	if out.vars == nil {
		out.vars = map[string]any{}
	}
	maps.Copy(out.vars, vars)
	return &out
}

// afterSet returns the scope that do sees: with the new state.
func (sc *scope) afterSet() *scope {
	out := *sc
	out.old = nil
	return &out
}

// asking is the environment of one expression.
type asking struct {
	*scope
	p *expression.Program
}

func (a *asking) Lazy(name string) (any, error) { return a.lookup(a.p, name) }

func (a *asking) UUID(name string) (string, bool) {
	return a.r.id("uuid/" + a.r.path + "/" + name), true
}

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

// isTrue evaluates a condition; a missing one is true.
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

// inputs encodes the names that an expression refers to as an object for people. A value may have
// the full depth, and is one level deeper here.
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
	switch raw, ok, err := sc.keptBytes(name); {
	case err != nil:
		return nil, err
	case ok:
		return sc.known.of(name, raw).value()
	case sc.isLet(name):
		return sc.let(name)
	}
	return sc.base(p, name)
}

// storedMember returns the JSON of a member of a stored value or of the stored state, if v reads
// nothing else. [jsonvalue.Encode] wrote both, so their bytes can be written again.
func (sc *scope) storedMember(v *value) (json.RawMessage, bool) {
	if v == nil || v.expr == nil {
		return nil, false
	}
	name, path, plain := v.expr.Path()
	if _, isVar := sc.vars[name]; !plain || isVar || len(path) == 0 {
		return nil, false
	}
	raw, ok, err := sc.keptBytes(name)
	if !ok && name == "state" && !sc.isLet(name) {
		state := sc.view().state
		raw, ok = state.raw, !state.done
	}
	if !ok || err != nil {
		return nil, false
	}
	return jsonvalue.Member(raw, path)
}

// knownValues are the stored values that were used, each decoded once.
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

// keptBytes returns a stored value as JSON.
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

// let evaluates a let once, against the old state.
func (sc *scope) let(name string) (any, error) {
	if sc.lets == nil {
		return nil, nil // a resumed handler keeps only the names that it refers to
	}
	for _, let := range sc.lets.values {
		if let.name == name {
			return let.v, nil
		}
	}
	old := *sc
	old.old, old.vars = &sc.lets.old, sc.lets.vars
	defer sc.r.within(sc.lets.path)()
	v, err := old.eval(sc.h.lets[name])
	if err != nil {
		return nil, err
	}
	sc.lets.values = append(sc.lets.values, letValue{name, v})
	return v, nil
}

func (sc *scope) base(p *expression.Program, name string) (any, error) {
	switch name {
	case "event":
		return sc.event.value()
	case "meta":
		return metaOf(*sc.r.ev), nil
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
		in := sc.r.in
		return map[string]any{
			"name": sc.r.p.Saga(), "status": string(in.Status), "reason": orNil(in.Reason),
			"gen": in.Generation, "version": in.Version,
		}, nil
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

// keep stores the names that a later part may refer to. A let that fails now fails only when it is
// used.
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
	stored := false
	if sc.kept != nil {
		_, stored = sc.kept.Values[name]
		stored = stored || sc.kept.Broken[name] != ""
	}
	if !isVar && !stored && !sc.isLet(name) && name != "event" && name != "meta" {
		return nil // state, step and the like are resolved later
	}
	if raw, ok, err := sc.keptBytes(name); ok && err == nil && len(raw) > 0 && !isVar {
		keepBytes(out, name, raw) // unchanged: a seq that waits again stores the same bytes
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

// resume returns the scope of a part that runs later than its handler.
func (r *run) resume(kept *edda.Scope) *scope {
	sc := &scope{r: r, kept: kept, known: &knownValues{}}
	if kept == nil {
		sc.kept = &edda.Scope{}
		return sc
	}
	for _, h := range r.p.handlers {
		if h.trigger == kept.Handler {
			sc.h = h
			break
		}
	}
	return sc
}
