package manifests

import (
	"cmp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"edda/internal/calendar"
)

// saga reads a saga document.
func (r *reader) saga(n *yaml.Node) *Saga {
	s := &Saga{File: r.file, Pos: r.pos(n), Version: 1, From: "now"}
	r.fields(n, "a saga", r.sagaKeys(s))
	if !has(n, "on") && !r.lost {
		r.losef(n, "the saga has no on:, so it can wait for nothing: write on: {Placed: {start: true, do: […]}}")
	}
	return s
}

func (r *reader) sagaKeys(s *Saga) keys {
	return keys{
		"saga":       func(n *yaml.Node) { s.Name = r.name(n, "a saga's name", "definition") },
		"version":    func(n *yaml.Node) { s.Version = r.positive(n, "version") },
		"key":        func(n *yaml.Node) { s.Key = r.expression(n, "key") },
		"from":       func(n *yaml.Node) { s.From = r.choice(n, "saga", "from") },
		"deadline":   func(n *yaml.Node) { s.Deadline = r.duration(n, "deadline", false) },
		"schedule":   func(n *yaml.Node) { s.Schedule = r.schedules(n) },
		"config":     func(n *yaml.Node) { s.Config = r.literals(n, "config") },
		"state":      func(n *yaml.Node) { s.State = r.literals(n, "state") },
		"schema":     func(n *yaml.Node) { s.Schema = r.schema(n) },
		"events":     func(n *yaml.Node) { s.Events = r.events(n) },
		"retention":  func(n *yaml.Node) { r.retention(s, n) },
		"undo_order": func(n *yaml.Node) { s.Parallel = r.choice(n, "saga", "undo_order") == "parallel" },
		"upgrade":    func(n *yaml.Node) { s.Auto = r.choice(n, "saga", "upgrade") == "auto" },
		"on":         func(n *yaml.Node) { s.Handlers = r.handlers(n) },
		"tests":      func(n *yaml.Node) { s.Tests = r.tests(n) },
	}
}

// has reports whether a map has a key.
func has(n *yaml.Node, key string) bool { return get(n, key) != nil }

// get returns the value of a map's key, or nil.
func get(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		if k := deref(n.Content[i]); k.Kind == yaml.ScalarNode && k.Value == key {
			return deref(n.Content[i+1])
		}
	}
	return nil
}

// schema reads a literal JSON Schema, which may be true or false.
func (r *reader) schema(n *yaml.Node) *Value {
	if n.Kind != yaml.MappingNode && n.Tag != "!!bool" {
		r.errorf(n, "a schema is a JSON Schema written as a map, not %s", describe(n))
		return nil
	}
	return r.literal(n)
}

func (r *reader) retention(s *Saga, n *yaml.Node) {
	r.fields(n, "retention", keys{
		"done":   func(n *yaml.Node) { s.Done = r.duration(n, "retention.done", true) },
		"failed": func(n *yaml.Node) { s.Failed = r.duration(n, "retention.failed", true) },
	})
}

func (r *reader) schedules(n *yaml.Node) []Schedule {
	var out []Schedule
	r.entries(n, "schedule", func(k, v *yaml.Node) {
		s := Schedule{Name: r.name(k, "a schedule's name", "timer"), Zone: "UTC", Catchup: "last"}
		r.fields(v, "a schedule", keys{
			"cron":  func(n *yaml.Node) { s.Cron, s.CronPos = r.text(n, "cron"), r.pos(n) },
			"every": func(n *yaml.Node) { s.Every = r.scheduleEvery(n) },
			"zone":  func(n *yaml.Node) { s.Zone = r.zone(n) },
			"tenants": func(n *yaml.Node) {
				r.items(n, "tenants", func(i *yaml.Node) { s.Tenants = append(s.Tenants, r.text(i, "an entry of tenants")) })
			},
			"catchup": func(n *yaml.Node) { s.Catchup = r.choice(n, "schedule", "catchup") },
			"with":    func(n *yaml.Node) { s.With = r.value(n) },
		})
		if has(v, "cron") == has(v, "every") {
			r.errorf(v, "a schedule has either cron or every")
		}
		out = append(out, s)
	})
	return out
}

// scheduleEvery reads how often a schedule starts. Calendar periods have no anchor here.
func (r *reader) scheduleEvery(n *yaml.Node) *Duration {
	if n.Kind == yaml.ScalarNode && isPeriod(n.Value) {
		r.errorf(n, "a schedule's every is a duration, not %s: write cron: \"0 9 1 * *\" for 9:00 on the first of each month, with a zone", shorten(n.Value))
		return &Duration{Pos: r.pos(n), Text: n.Value, D: day} // so that it is no further problem
	}
	return r.duration(n, "every", false)
}

// zone reads an IANA name; an empty text is UTC.
func (r *reader) zone(n *yaml.Node) string {
	text := r.text(n, "zone")
	if _, err := calendar.Zone(text); text != "" && err != nil {
		r.errorf(n, "%v", err)
	}
	return cmp.Or(text, "UTC")
}

func (r *reader) events(n *yaml.Node) []EventDecl {
	var out []EventDecl
	r.entries(n, "events", func(k, v *yaml.Node) {
		d := EventDecl{Name: r.name(k, "an event's name", "event_name")}
		r.fields(v, "an event", keys{
			"schema":  func(n *yaml.Node) { d.Schema = r.schema(n) },
			"upcast":  func(n *yaml.Node) { d.Upcast = r.upcasts(n) },
			"version": func(n *yaml.Node) { d.Version = r.positive(n, "version") },
		})
		if last := len(d.Upcast) - 1; d.Version == 0 && last >= 0 {
			d.Version = d.Upcast[last].From + 1
		}
		d.Version = max(d.Version, 1)
		out = append(out, d)
	})
	return out
}

// upcasts reads {1: {set, unset}}, sorted by the version that they apply to. Only here a key is a
// number.
func (r *reader) upcasts(n *yaml.Node) []Upcast {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "upcast is a map of versions, not %s", describe(n))
		return nil
	}
	var out []Upcast
	seen := map[int]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		k, v := deref(n.Content[i]), deref(n.Content[i+1])
		from, err := strconv.Atoi(k.Value)
		if k.Kind != yaml.ScalarNode || err != nil || from < 1 {
			r.errorf(k, "upcast has the older version's number as its key, not %s", describe(k))
			continue
		}
		if seen[from] {
			r.errorf(k, "version %d is here twice", from)
			continue
		}
		seen[from] = true
		u := Upcast{Pos: r.pos(k), From: from}
		r.fields(v, "an upcast", keys{
			"set":   func(n *yaml.Node) { u.Set = r.assigns(n) },
			"unset": func(n *yaml.Node) { u.Unset = r.paths(n) },
		})
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Upcast) int { return cmp.Compare(a.From, b.From) })
	return out
}
