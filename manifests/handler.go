package manifests

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// handlers reads on:. A handler of A | B becomes one of A and one of B, which share their parts.
func (r *reader) handlers(n *yaml.Node) []*Handler {
	var out []*Handler
	seen := map[string]bool{}
	r.entries(n, "on", func(k, v *yaml.Node) {
		h, triggers := Handler{Pos: r.pos(k)}, r.triggers(k)
		r.fields(v, "a handler", r.handlerKeys(&h))
		for _, t := range triggers {
			same := strings.Join(slices.Sorted(slices.Values(t.Parts)), "&")
			if seen[same] && same != "" {
				r.errorf(k, "the trigger %s is here twice", shorten(t.Text))
			}
			seen[same] = true
			one := h
			one.Trigger = t
			out = append(out, &one)
		}
	})
	if len(out) == 0 && (isNull(n) || n.Kind == yaml.MappingNode) {
		r.losef(n, "on: has no handler, so the saga can wait for nothing: write on: {Placed: {start: true, do: […]}}")
	}
	return out
}

func (r *reader) handlerKeys(h *Handler) keys {
	return keys{
		"start":     func(n *yaml.Node) { h.Start = r.boolean(n, "start") },
		"restart":   func(n *yaml.Node) { h.Restart = r.boolean(n, "restart") },
		"key":       func(n *yaml.Node) { h.Key = r.expression(n, "key") },
		"let":       func(n *yaml.Node) { h.Let = r.lets(n) },
		"when":      func(n *yaml.Node) { h.When = r.expression(n, "when") },
		"set":       func(n *yaml.Node) { h.Set = r.assigns(n) },
		"unset":     func(n *yaml.Node) { h.Unset = r.paths(n) },
		"do":        func(n *yaml.Node) { h.Do = r.actions(n, "do") },
		"cases":     func(n *yaml.Node) { h.Cases = r.cases(n) },
		"missing":   func(n *yaml.Node) { h.Missing = r.choice(n, "handler", "missing") },
		"park":      func(n *yaml.Node) { h.Park = r.duration(n, "park", false) },
		"late":      func(n *yaml.Node) { h.Late = r.boolean(n, "late") },
		"newer":     func(n *yaml.Node) { h.Newer = r.newer(n) },
		"on_poison": func(n *yaml.Node) { h.OnPoison = r.choice(n, "handler", "on_poison") },
	}
}

// maxParts bounds the events that a trigger waits for, because the instance stores each payload.
const maxParts = 32

// either is the | between triggers. It has a blank beside it, because a name may hold a | but no
// blank.
var either = regexp.MustCompile(`\s+\|\s*|\|\s+`)

// triggers splits A | B.
func (r *reader) triggers(k *yaml.Node) []Trigger {
	texts := either.Split(k.Value, -1)
	switch {
	case len(texts) == 1 && strings.Contains(k.Value, "|"):
		r.warnf(k, "%q is one name: write blanks around | for any of several triggers", shorten(k.Value))
	case len(texts) > maxParts:
		r.errorf(k, "the handler has more than %d triggers", maxParts)
		texts = texts[:maxParts]
	case len(texts) > 1 && strings.Contains(k.Value, "&"):
		r.errorf(k, "a trigger holds either & or |, and this has both: write one handler for each side of the |")
		texts = texts[:1]
	}
	beside := "&"
	if len(texts) > 1 {
		beside = "|"
	}
	var out []Trigger
	for _, text := range texts {
		out = append(out, r.trigger(k, text, beside))
	}
	return out
}

// trigger splits A & B and checks the shape of each part. beside is what may stand beside it.
func (r *reader) trigger(k *yaml.Node, text, beside string) Trigger {
	t := Trigger{Pos: r.pos(k), Parts: strings.Split(text, "&")}
	if len(t.Parts) > maxParts {
		r.errorf(k, "the trigger waits for more than %d events", maxParts)
		t.Parts = t.Parts[:maxParts]
	}
	for i, part := range t.Parts {
		part = strings.TrimSpace(part)
		if problem := badTrigger(part, beside); problem != "" {
			r.errorf(k, "%q is no trigger: %s", shorten(k.Value), problem)
		}
		if slices.Contains(t.Parts[:i], part) {
			r.errorf(k, "the trigger waits for %s twice", shorten(part))
		}
		t.Parts[i] = part
	}
	t.Text = strings.Join(t.Parts, " & ")
	return t
}

func badTrigger(part, beside string) string {
	switch {
	case part == "":
		return "a name is missing beside " + beside + ": write A " + beside + " B"
	case strings.ContainsAny(part, " \t\n"):
		return "a name holds no spaces"
	case strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".") || strings.Contains(part, ".."):
		return "a name is missing beside the dot"
	case slices.Contains([]string{"timer", "signal", "schedule"}, part):
		return "say which: " + part + ".name"
	}
	return ""
}

func (r *reader) lets(n *yaml.Node) []Let {
	var out []Let
	r.entries(n, "let", func(k, v *yaml.Node) {
		out = append(out, Let{Name: r.name(k, "a name of let", "step"), Expr: r.expression(v, k.Value)})
	})
	return out
}

func (r *reader) path(n *yaml.Node) Name {
	p := r.name(n, "a path in the state", "path")
	if strings.Count(p.Text, ".") >= maxDepth {
		r.errorf(n, "the path is deeper than %d", maxDepth)
		p.Text = ""
	}
	return p
}

func (r *reader) assigns(n *yaml.Node) []Assign {
	var out []Assign
	taken := paths{}
	r.entries(n, "set", func(k, v *yaml.Node) {
		a := Assign{Path: r.path(k), Value: r.value(v)}
		if other := taken.add(a.Path.Text); other != "" {
			r.errorf(k, "set has both %s and %s, and one lies within the other", shorten(other), shorten(a.Path.Text))
		}
		out = append(out, a)
	})
	return out
}

// paths are the paths of one set and their prefixes. Paths may not overlap, because the result
// would depend on their order.
type paths map[string]string // to itself, or to a path within it

// add returns the path that overlaps with the new one, or empty.
func (ps paths) add(path string) string {
	other := ps[path]
	for i, c := range path {
		if c != '.' {
			continue
		}
		if ps[path[:i]] == path[:i] {
			other = path[:i]
		} else {
			ps[path[:i]] = path
		}
	}
	ps[path] = path
	return other
}

func (r *reader) paths(n *yaml.Node) []Name {
	var out []Name
	r.items(n, "unset", func(i *yaml.Node) { out = append(out, r.path(i)) })
	return out
}

func (r *reader) blockKeys(b *Block) keys {
	return keys{
		"set":   func(n *yaml.Node) { b.Set = r.assigns(n) },
		"unset": func(n *yaml.Node) { b.Unset = r.paths(n) },
		"do":    func(n *yaml.Node) { b.Do = r.actions(n, "do") },
	}
}

func (r *reader) newer(n *yaml.Node) *Block {
	b := &Block{Pos: r.pos(n)}
	r.fields(n, "newer", r.blockKeys(b))
	return b
}

func (r *reader) cases(n *yaml.Node) []*Case {
	var out []*Case
	r.items(n, "cases", func(i *yaml.Node) {
		c := &Case{Block: Block{Pos: r.pos(i)}}
		known := r.blockKeys(&c.Block)
		known["when"] = func(n *yaml.Node) { c.When = r.expression(n, "when") }
		r.fields(i, "a case", known)
		out = append(out, c)
	})
	return out
}
