package manifests

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// effect reads an effect document.
func (r *reader) effect(n *yaml.Node) *Effect {
	e := &Effect{File: r.file, Pos: r.pos(n), Version: 1, Delivery: "at_least_once"}
	r.fields(n, "an effect", r.effectKeys(e))
	if e.Provider == "" && !r.lost {
		r.errorf(n, "the effect says nowhere how it is done: give it %s", oneOf(r.providers))
	}
	return e
}

func (r *reader) effectKeys(e *Effect) keys {
	known := keys{
		"effect":   func(n *yaml.Node) { e.Name = r.name(n, "an effect's name", "definition") },
		"version":  func(n *yaml.Node) { e.Version = r.positive(n, "version") },
		"ok":       func(n *yaml.Node) { e.OK = r.expression(n, "ok") },
		"fail":     func(n *yaml.Node) { e.Fail = r.expression(n, "fail") },
		"result":   func(n *yaml.Node) { e.Result = r.value(n) },
		"timeout":  func(n *yaml.Node) { e.Timeout = r.duration(n, "timeout", false) },
		"retry":    func(n *yaml.Node) { e.Retry = r.retry(n) },
		"breaker":  func(n *yaml.Node) { e.Breaker = r.mapValue(n, "breaker") },
		"limit":    func(n *yaml.Node) { e.Limit = r.mapValue(n, "limit") },
		"check":    func(n *yaml.Node) { e.Check = r.check(n) },
		"delivery": func(n *yaml.Node) { e.Delivery = r.choice(n, "effect", "delivery") },
		"schema":   func(n *yaml.Node) { e.Schema = r.schema(n) },
		"upcast":   func(n *yaml.Node) { e.Upcast = r.upcasts(n) },
	}
	for _, name := range r.providers {
		known[name] = func(n *yaml.Node) {
			if e.Provider != "" {
				r.errorf(n, "an effect is done in one way, and this has %s and %s", e.Provider, name)
				return
			}
			e.Provider, e.Config = name, r.mapValue(n, name)
		}
	}
	return known
}

func (r *reader) mapValue(n *yaml.Node, what string) *Value {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "%s is a map, not %s%s", what, describe(n), mapAdvice(what))
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
	known := r.Defs["check"].Properties
	r.entries(n, "check", func(k, f *yaml.Node) {
		field := Field{Name: k.Value, Pos: r.pos(k)}
		switch d := known[k.Value]; {
		case d == nil:
			r.unknown(k, "check", slices.Sorted(maps.Keys(known)))
			return
		case d.Ref == "#/$defs/expression":
			field.Value = r.expressionValue(f, "an outcome of check")
		case d.Ref == "#/$defs/value":
			field.Value = r.value(f)
		default: // a provider's map
			field.Value = r.mapValue(f, k.Value)
		}
		v.Fields = append(v.Fields, field)
	})
	if !has(n, "ok") {
		r.errorf(n, "check needs ok: the expression that is true when the call did happen")
	}
	return v
}

func (r *reader) retry(n *yaml.Node) *Retry {
	y := &Retry{Pos: r.pos(n)}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!int" {
		r.errorf(n, "retry is a map, not %s: write {max: %s}", describe(n), shorten(n.Value))
		return y
	}
	r.fields(n, "retry", keys{
		"max":     func(n *yaml.Node) { y.Max = r.positive(n, "retry.max") },
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
