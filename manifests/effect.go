package manifests

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// providers are the kinds of calls an effect can make.
func providers() []string { return []string{"http", "grpc", "smtp", "sql", "job"} }

// effect reads an effect document.
func (r *reader) effect(n *yaml.Node) *Effect {
	e := &Effect{File: r.file, Pos: r.pos(n), Version: 1, Delivery: "at_least_once"}
	known := r.effectKeys(e)
	for _, p := range providers() {
		known[p] = func(n *yaml.Node) { r.provider(e, p, n) }
	}
	r.fields(n, "an effect", known)
	if e.Provider == "" {
		r.errorf(n, "the effect says nowhere how it is done: give it %s", oneOf(providers()))
	}
	return e
}

func (r *reader) effectKeys(e *Effect) keys {
	return keys{
		"effect":   func(n *yaml.Node) { e.Name = r.name(n, "an effect's name", r.forms.definition) },
		"version":  func(n *yaml.Node) { e.Version = r.integer(n, "version", 1) },
		"ok":       func(n *yaml.Node) { e.OK = r.expression(n, "ok") },
		"fail":     func(n *yaml.Node) { e.Fail = r.expression(n, "fail") },
		"result":   func(n *yaml.Node) { e.Result = r.value(n) },
		"timeout":  func(n *yaml.Node) { e.Timeout = r.duration(n, "timeout", false) },
		"retry":    func(n *yaml.Node) { e.Retry = r.retry(n) },
		"breaker":  func(n *yaml.Node) { e.Breaker = r.mapValue(n, "breaker") },
		"limit":    func(n *yaml.Node) { e.Limit = r.mapValue(n, "limit") },
		"check":    func(n *yaml.Node) { e.Check = r.check(n) },
		"delivery": func(n *yaml.Node) { e.Delivery = r.choice(n, "delivery", "at_least_once", "at_most_once") },
		"schema":   func(n *yaml.Node) { e.Schema = r.schema(n) },
		"upcast":   func(n *yaml.Node) { e.Upcast = r.upcasts(n) },
	}
}

func (r *reader) provider(e *Effect, name string, n *yaml.Node) {
	if e.Provider != "" {
		r.errorf(n, "an effect is done in one way, and this has %s and %s", e.Provider, name)
		return
	}
	e.Provider, e.Config = name, r.mapValue(n, name)
}

func (r *reader) mapValue(n *yaml.Node, what string) *Value {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "%s is a map, not %s", what, describe(n))
		return nil
	}
	return r.value(n)
}

// check reads a map whose ok and again are expressions without =, like those of the effect itself.
func (r *reader) check(n *yaml.Node) *Value {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "check is a map, not %s", describe(n))
		return nil
	}
	v := &Value{Pos: r.pos(n), Kind: Map}
	r.fields(n, "check", r.checkKeys(v, n))
	if !has(n, "ok") {
		r.errorf(n, "check needs ok: the expression that is true when the call did happen")
	}
	return v
}

func (r *reader) checkKeys(v *Value, n *yaml.Node) keys {
	add := func(name string, read func(*yaml.Node) *Value) func(*yaml.Node) {
		return func(f *yaml.Node) {
			v.Fields = append(v.Fields, Field{Name: name, Pos: r.keyPos(n, name), Value: read(f)})
		}
	}
	expr := func(n *yaml.Node) *Value { return r.expressionValue(n, "an outcome of check") }
	known := keys{"ok": add("ok", expr), "again": add("again", expr), "fail": add("fail", expr), "result": add("result", r.value)}
	for _, p := range providers() {
		known[p] = add(p, func(n *yaml.Node) *Value { return r.mapValue(n, p) })
	}
	return known
}

// keyPos is the position of a key of a map.
func (r *reader) keyPos(n *yaml.Node, key string) Pos {
	for i := 0; i < len(n.Content); i += 2 {
		if k := deref(n.Content[i]); k.Value == key {
			return r.pos(k)
		}
	}
	return r.pos(n)
}

func (r *reader) retry(n *yaml.Node) *Retry {
	y := &Retry{Pos: r.pos(n)}
	r.fields(n, "retry", keys{
		"max":     func(n *yaml.Node) { y.Max = r.integer(n, "retry.max", 1) },
		"backoff": func(n *yaml.Node) { r.backoff(y, n) },
		"jitter":  func(n *yaml.Node) { y.Jitter = r.boolean(n, "retry.jitter") },
	})
	return y
}

// backoff reads a range 1s..1m, or one duration for a constant one.
func (r *reader) backoff(y *Retry, n *yaml.Node) {
	text := r.text(n, "retry.backoff")
	if text == "" {
		return
	}
	from, to, ranged := strings.Cut(text, "..")
	if !ranged {
		to = from
	}
	var err, err2 error
	y.Min, err = ParseDuration(from)
	y.Cap, err2 = ParseDuration(to)
	if err != nil || err2 != nil || y.Min <= 0 || y.Cap < y.Min {
		r.errorf(n, "retry.backoff is a range of durations such as 1s..1m, not %s", describe(n))
	}
}
