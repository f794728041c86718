package manifests

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// handlers reads on:.
func (r *reader) handlers(n *yaml.Node) []*Handler {
	var out []*Handler
	r.entries(n, "on", func(k, v *yaml.Node) {
		h := &Handler{Pos: r.pos(k), Trigger: r.trigger(k)}
		if slices.ContainsFunc(out, func(o *Handler) bool { return o.Trigger.same(h.Trigger) }) {
			r.errorf(k, "the trigger %s is here twice", h.Trigger.Text)
		}
		r.fields(v, "a handler", r.handlerKeys(h))
		out = append(out, h)
	})
	if len(out) == 0 && (isNull(n) || n.Kind == yaml.MappingNode) {
		r.errorf(n, "on: has no handler, so the saga can wait for nothing")
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
		"missing":   func(n *yaml.Node) { h.Missing = r.choice(n, "missing", "park", "drop") },
		"park":      func(n *yaml.Node) { h.Park = r.duration(n, "park", false) },
		"late":      func(n *yaml.Node) { h.Late = r.boolean(n, "late") },
		"newer":     func(n *yaml.Node) { h.Newer = r.newer(n) },
		"on_poison": func(n *yaml.Node) { h.OnPoison = r.choice(n, "on_poison", "skip") },
	}
}

// trigger splits A & B and checks the shape of each part.
func (r *reader) trigger(k *yaml.Node) Trigger {
	t := Trigger{Pos: r.pos(k)}
	for part := range strings.SplitSeq(k.Value, "&") {
		part = strings.TrimSpace(part)
		if problem := badTrigger(part); problem != "" {
			r.errorf(k, "%q is no trigger: %s", shorten(k.Value), problem)
		}
		if slices.Contains(t.Parts, part) {
			r.errorf(k, "the trigger waits for %s twice", part)
		}
		t.Parts = append(t.Parts, part)
	}
	t.Text = strings.Join(t.Parts, " & ")
	return t
}

// same tells whether two triggers are alike, in whatever order.
func (t Trigger) same(o Trigger) bool {
	return slices.Equal(slices.Sorted(slices.Values(t.Parts)), slices.Sorted(slices.Values(o.Parts)))
}

func badTrigger(part string) string {
	switch {
	case part == "":
		return "a name is missing beside &"
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
		out = append(out, Let{Name: r.name(k, "a name of let", r.forms.step), Expr: r.expression(v, k.Value)})
	})
	return out
}

func (r *reader) path(n *yaml.Node) Name { return r.name(n, "a path in the state", r.forms.path) }

func (r *reader) assigns(n *yaml.Node) []Assign {
	var out []Assign
	r.entries(n, "set", func(k, v *yaml.Node) {
		a := Assign{Path: r.path(k), Value: r.value(v)}
		r.clash(a.Path, out)
		out = append(out, a)
	})
	return out
}

// clash complains where one path of a set lies within another: the order would
// decide what is left of them.
func (r *reader) clash(p Name, others []Assign) {
	for _, o := range others {
		if strings.HasPrefix(p.Text, o.Path.Text+".") || strings.HasPrefix(o.Path.Text, p.Text+".") {
			r.errorAt(p.Pos, "set has both %s and %s, and one lies within the other", o.Path.Text, p.Text)
			return
		}
	}
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
