package saga

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"slices"

	"edda"
	"edda/expression"
)

// rekeyed returns the name of an event that may have another key here than with another text of the saga; empty if there is
// none. Only events that both texts hear count. old may be nil.
func (p *Program) rekeyed(old *Program) string {
	if old == nil || old.Hash() == p.Hash() {
		return ""
	}
	for ev := range heardBy(p, old) {
		if hs, was := p.match(ev), old.match(ev); len(hs) > 0 && len(was) > 0 && !p.sameKey(ev, hs[0], old, was[0]) {
			return cmp.Or(namesOf(ev)[0], ev.Name())
		}
	}
	return ""
}

// heardBy yields one event of each kind that the triggers and declarations of programs tell apart. A program may be nil.
func heardBy(programs ...*Program) iter.Seq[edda.Event] {
	var alone []edda.Event // without a full type
	all, aggregates := map[string]bool{}, map[string][]string{}
	for _, p := range programs {
		if p == nil {
			continue
		}
		for _, name := range slices.Concat(p.outerTriggers(), sortedKeys(p.events)) {
			all[name] = true
		}
		for _, s := range p.m.Schedule {
			alone = append(alone, edda.Event{Kind: edda.KindSchedule, Type: s.Name.Text})
		}
	}
	names := sortedKeys(all)
	for _, name := range names {
		alone = append(alone, edda.Event{Kind: edda.KindEvent, Type: name})
		for i, c := range name {
			if c == '.' {
				aggregate, short := name[:i], name[i+1:]
				aggregates[short] = append(aggregates[short], aggregate)
				alone = append(alone, edda.Event{Kind: edda.KindEvent, AggregateType: aggregate, Type: short})
			}
		}
	}
	return func(yield func(edda.Event) bool) {
		for _, ev := range alone {
			if !yield(ev) {
				return
			}
		}
		for _, name := range names {
			full := edda.Event{Kind: edda.KindEvent, FullType: name}
			full.Type, _ = edda.ShortType(name)
			for _, full.AggregateType = range append([]string{""}, aggregates[full.Type]...) { // it is not in the type
				if !yield(full) {
					return
				}
			}
		}
	}
}

// sameKey reports whether two texts of a saga give an event the same key, each by its handler.
func (p *Program) sameKey(ev edda.Event, h *handler, old *Program, was *handler) bool {
	return reflect.DeepEqual(p.keyParts(ev, h), old.keyParts(ev, was))
}

// keyParts lists what decides the key that a handler gives an event: the expression, and what it reads of config, of the
// with of a schedule and of what upcasts set. Their values are followed in turn.
func (p *Program) keyParts(ev edda.Event, h *handler) []any {
	k := keyParts{p: p, with: p.withOf(ev), decl: p.decl(ev), seen: map[string]bool{}}
	key := cmp.Or(h.key, p.key)
	if key == nil {
		k.add(defaultKey)
	}
	k.expression(key)
	return k.parts
}

type keyParts struct {
	p     *Program
	with  any
	decl  *eventDecl // may be nil
	seen  map[string]bool
	parts []any
}

func (k *keyParts) add(parts ...any) { k.parts = append(k.parts, parts...) }

func (k *keyParts) expression(e *expression.Program) {
	if e == nil {
		return
	}
	k.add(e.Source())
	for _, ref := range e.Refs() {
		at, path := fmt.Sprintf("%q", ref), ref[1:]
		if k.seen[at] {
			continue
		}
		k.seen[at] = true
		switch ref[0] {
		case "config":
			k.add(memberAt(k.p.config, path))
		case "event":
			k.add(memberAt(k.with, path))
			k.upcasts(path)
		}
	}
}

// upcasts adds those that may change what a path of the event leads to, each with the versions that it is applied to: they
// apply in order, up to a gap.
func (k *keyParts) upcasts(path []string) {
	if k.decl == nil {
		return
	}
	from := 0
	for i, u := range k.decl.src.Upcast {
		if i == 0 || u.From > k.decl.src.Upcast[i-1].From+1 {
			from = u.From
		}
		applied := []any{from, min(u.From, k.decl.src.Version)}
		for _, a := range k.decl.upcast[u.From].set {
			if meet(a.path, path) {
				k.add(applied, a.path)
				k.value(a.value)
			}
		}
		for _, unset := range k.decl.upcast[u.From].unset {
			if meet(unset, path) {
				k.add(applied, unset)
			}
		}
	}
}

// value adds a value without its positions, and what it reads.
func (k *keyParts) value(v *value) {
	k.add(v.src.Kind, v.src.Scalar, len(v.parts), len(v.items), len(v.fields))
	k.expression(v.expr)
	for _, p := range v.parts {
		k.add(p.text, p.expr != nil)
		k.expression(p.expr)
	}
	for _, item := range v.items {
		k.value(item)
	}
	for _, f := range v.fields {
		k.add(f.name)
		k.value(f.value)
	}
}

// meet reports whether one of two paths is a part of the other.
func meet(a, b []string) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[:n], b[:n])
}

// withOf is the with of an event's schedule; nil for other events.
func (p *Program) withOf(ev edda.Event) any {
	for _, s := range p.m.Schedule {
		if ev.Kind == edda.KindSchedule && s.Name.Text == ev.Type && s.With != nil {
			with, _ := s.With.Const()
			return with
		}
	}
	return nil
}

// memberAt returns the member of an object at a path; nil without one.
func memberAt(v any, path []string) any {
	for _, name := range path {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}
