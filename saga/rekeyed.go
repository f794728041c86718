package saga

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"edda"
	"edda/manifests"
)

// rekeyed returns the name of an event that may have another key here than with another text of the saga; empty if there is
// none. Only events that both texts hear count. A key may also change by what its expression reads: the config, what an
// upcast makes of the event, and the with of a schedule. old may be nil.
func (p *Program) rekeyed(old *Program) string {
	if old == nil || old.Hash() == p.Hash() {
		return ""
	}
	for _, ev := range heardBy(p, old) {
		if hs, was := p.match(ev), old.match(ev); len(hs) > 0 && len(was) > 0 && !p.sameKey(ev, hs[0], old, was[0]) {
			return cmp.Or(namesOf(ev)[0], ev.Name())
		}
	}
	return ""
}

// heardBy lists one event of each kind that the triggers and declarations of programs tell apart.
func heardBy(programs ...*Program) (out []edda.Event) {
	all := map[string]bool{}
	for _, p := range programs {
		for _, name := range slices.Concat(p.outerTriggers(), sortedKeys(p.events)) {
			all[name] = true
		}
		for _, s := range p.m.Schedule {
			out = append(out, edda.Event{Kind: edda.KindSchedule, Type: s.Name.Text})
		}
	}
	names := sortedKeys(all)
	for _, name := range names {
		out = append(out, edda.Event{Kind: edda.KindEvent, Type: name})
		for i, c := range name {
			if c == '.' {
				out = append(out, edda.Event{Kind: edda.KindEvent, AggregateType: name[:i], Type: name[i+1:]})
			}
		}
		full := edda.Event{Kind: edda.KindEvent, FullType: name}
		full.Type, _ = edda.ShortType(name)
		out = append(out, full)
		for _, other := range names { // the aggregate of a CloudEvent is not in its type
			if aggregate, ok := strings.CutSuffix(other, "."+full.Type); ok {
				full.AggregateType = aggregate
				out = append(out, full)
			}
		}
	}
	return out
}

// sameKey reports whether two texts of a saga give an event the same key, each by its handler.
func (p *Program) sameKey(ev edda.Event, h *handler, old *Program, was *handler) bool {
	key, before := cmp.Or(h.key, p.key), cmp.Or(was.key, old.key)
	if key == nil || before == nil {
		return key == before
	}
	if key.Source() != before.Source() {
		return false
	}
	for _, ref := range key.Refs() {
		path := ref[1:]
		switch ref[0] {
		case "config":
			if !reflect.DeepEqual(memberAt(p.config, path), memberAt(old.config, path)) {
				return false
			}
		case "event":
			if !reflect.DeepEqual(memberAt(p.withOf(ev), path), memberAt(old.withOf(ev), path)) {
				return false
			}
			upcast := p.decl(ev).changes(path) || old.decl(ev).changes(path)
			if upcast && !reflect.DeepEqual([]any{p.decl(ev).sources(), p.config}, []any{old.decl(ev).sources(), old.config}) {
				return false
			}
		}
	}
	return true
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

// changes reports whether an upcast of the event may change what a path leads to. The receiver may be nil.
func (d *eventDecl) changes(path []string) bool {
	if d == nil {
		return false
	}
	return slices.ContainsFunc(d.src.Upcast, func(u manifests.Upcast) bool {
		names := u.Unset
		for _, a := range u.Set {
			names = append(names[:len(names):len(names)], a.Path)
		}
		return slices.ContainsFunc(names, func(n manifests.Name) bool {
			to := strings.Split(n.Text, ".")
			common := min(len(to), len(path))
			return slices.Equal(to[:common], path[:common])
		})
	})
}

// sources are the version and the upcasts of an event without their positions. The receiver may be nil.
func (d *eventDecl) sources() (out []any) {
	if d == nil {
		return nil
	}
	out = append(out, d.src.Version)
	for _, u := range d.src.Upcast {
		out = append(out, u.From)
		for _, a := range u.Set {
			out = append(out, a.Path.Text, sourcesOf(a.Value))
		}
		for _, n := range u.Unset {
			out = append(out, n.Text)
		}
	}
	return out
}

// sourcesOf is a value without its positions.
func sourcesOf(v *manifests.Value) any {
	out := []any{v.Kind, v.Scalar}
	if v.Expr != nil {
		out = append(out, v.Expr.Source)
	}
	for _, p := range v.Parts {
		if out = append(out, p.Text); p.Expr != nil {
			out = append(out, true, p.Expr.Source)
		}
	}
	for _, item := range v.Items {
		out = append(out, sourcesOf(item))
	}
	for _, f := range v.Fields {
		out = append(out, f.Name, sourcesOf(f.Value))
	}
	return out
}
