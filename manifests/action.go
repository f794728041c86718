package manifests

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// actions reads a list of actions.
func (r *reader) actions(n *yaml.Node, what string) []*Action {
	var out []*Action
	r.items(n, what, func(i *yaml.Node) {
		if a := r.action(i); a != nil {
			out = append(out, a)
		}
	})
	return out
}

// action reads one action; nil after a reported problem.
func (r *reader) action(n *yaml.Node) *Action {
	if n.Kind != yaml.MappingNode {
		hint := ""
		if slices.Contains(r.words, n.Value) { // "- done" for "- done:"
			hint = fmt.Sprintf("; did you mean %q?", n.Value+":")
		}
		r.losef(n, "an action is a map such as {effect: charge, with: {…}}, not %s%s", describe(n), hint)
		return nil
	}
	k := r.word(n)
	if k == nil {
		return nil
	}
	a := &Action{Pos: r.pos(k), Kind: k.Value}
	if a.Kind == "unset" {
		a.Kind = "set"
	}
	d := r.Defs["action_"+a.Kind]
	r.fields(n, "the action "+a.Kind, d.known(r.actionKeys(a)))
	r.complete(a, d, n)
	return a
}

// word returns the key that says which action it is; nil after a reported problem. Some words are
// options beside others: the undo: of a step, the event: of a start, and unset beside set.
func (r *reader) word(n *yaml.Node) *yaml.Node {
	options := map[string]bool{
		"undo":  has(n, "effect") || has(n, "command") || has(n, "start") || has(n, "ask"),
		"event": has(n, "start"),
		"unset": has(n, "set"),
	}
	var found []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		if k := deref(n.Content[i]); slices.Contains(r.words, k.Value) && !options[k.Value] {
			found = append(found, k)
		}
	}
	switch {
	case len(found) == 1:
		return found[0]
	case len(found) > 1:
		r.losef(found[1], "an action has one word, and this has %s and %s: make two entries of the list", found[0].Value, found[1].Value)
		return nil
	}
	return r.wordless(n)
}

// wordless reports an action without a known word. It reads a misspelt one as the likely word, so
// that its other problems are reported at once and the saga does not seem to lack it.
func (r *reader) wordless(n *yaml.Node) *yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		k := deref(n.Content[i])
		if near := Nearest(k.Value, r.words); near != "" {
			r.errorf(k, "there is no action %q; did you mean %q?", shorten(k.Value), near)
			k.Value = near
			return k
		}
	}
	if has(n, "then") || has(n, "else") {
		r.losef(n, "no action is named here: if: stands beside an action, as in {if: event.paid, done: paid}, and a choice is cases: of the handler")
		return nil
	}
	r.losef(n, "no action is named here; the actions are %s", strings.Join(r.words, ", "))
	return nil
}

// actionKeys returns the functions of all keys of actions. The schema says which of them an action
// has.
func (r *reader) actionKeys(a *Action) keys {
	named := func(what, form string) func(*yaml.Node) {
		return func(n *yaml.Node) { a.Name = r.name(n, what, form) }
	}
	known := keys{
		"effect":     named("an effect's name", "definition"),
		"command":    named("a command", "command"),
		"event":      named("an event's name", "event_name"),
		"message":    func(n *yaml.Node) { a.Message = r.message(n) },
		"ask":        named("an ask's name", "step"),
		"start":      named("a saga's name", "definition"),
		"seq":        func(n *yaml.Node) { a.Seq = r.actions(n, "seq") },
		"each":       func(n *yaml.Node) { a.Each = r.expression(n, "each") },
		"set":        func(n *yaml.Node) { a.Set = r.assigns(n) },
		"unset":      func(n *yaml.Node) { a.Unset = r.paths(n) },
		"timer":      named("a timer's name", "timer"),
		"cancel":     named("what is cancelled", "member"),
		"compensate": func(n *yaml.Node) { r.compensate(a, n) },
		"undo":       func(n *yaml.Node) { a.Undo = r.undo(n) },
		"done":       func(n *yaml.Node) { a.Value = r.value(n) },
		"fail":       func(n *yaml.Node) { a.Value = r.reason(n) },

		"if":       func(n *yaml.Node) { a.If = r.expression(n, "if") },
		"id":       func(n *yaml.Node) { id := r.name(n, "an id", "step"); a.ID = &id },
		"priority": func(n *yaml.Node) { a.High = r.choice(n, "action_effect", "priority") == "high" },
		"with":     func(n *yaml.Node) { a.With = r.value(n) },
		"must":     func(n *yaml.Node) { a.Must = r.boolean(n, "must") },
		"optional": func(n *yaml.Node) { a.Optional = r.boolean(n, "optional") },
		"due":      func(n *yaml.Node) { r.due(a, n) },
		"version":  func(n *yaml.Node) { a.Version, a.VersionPos = r.positive(n, "version"), r.pos(n) },
		"to":       func(n *yaml.Node) { a.To = r.filled(n, "to") },
		"key":      func(n *yaml.Node) { a.Key = r.expressionValue(n, "key") },
		"as":       func(n *yaml.Node) { a.As = r.name(n, "as", "step").Text },
		"do":       func(n *yaml.Node) { a.Do = r.actions(n, "do") },
		"after":    func(n *yaml.Node) { a.After = r.period(n, "after", true) },
		"at":       func(n *yaml.Node) { a.At = r.filled(n, "at") },
		"every":    func(n *yaml.Node) { a.Every = r.period(n, "every", false) },
		"zone":     func(n *yaml.Node) { a.Zone = r.timerZone(n) },
		"catchup":  func(n *yaml.Node) { a.Catchup = r.choice(n, "action_timer", "catchup") },
	}
	switch a.Kind { // words that are keys of other actions too
	case "undo":
		known["undo"] = func(n *yaml.Node) { r.undone(a, n) }
	case "start":
		known["event"] = func(n *yaml.Node) { e := r.name(n, "a trigger", "event_name"); a.Event = &e }
	}
	return known
}

// complete reports the keys that an action lacks.
func (r *reader) complete(a *Action, d *definition, n *yaml.Node) {
	for _, key := range d.Required[min(1, len(d.Required)):] {
		if !has(n, key) || key == "do" && isNull(get(n, key)) {
			r.lost = true
			r.errorAt(a.Pos, "the action %s needs %s: %s", a.Kind, key, d.Properties[key].Description)
		}
	}
	switch a.Kind {
	case "each":
		a.As = cmp.Or(a.As, "item")
	case "timer":
		r.completeTimer(a, n)
	}
	if a.Must && a.Optional {
		r.errorf(get(n, "optional"), "a step is optional, or past the point of no return, not both: leave optional or must out")
	}
}

// filled reads a required value.
func (r *reader) filled(n *yaml.Node, what string) *Value {
	if isNull(n) || n.Kind == yaml.ScalarNode && n.Value == "" {
		r.errorf(n, "%s needs a value", what)
	}
	return r.value(n)
}

// reason reads why a saga fails: a word, a number or an expression.
func (r *reader) reason(n *yaml.Node) *Value {
	v := r.filled(n, "fail")
	if v.Kind == List || v.Kind == Map {
		r.errorf(n, "fail takes a reason such as not_paid, or an expression, not %s", describe(n))
	}
	return v
}

// message reads a map; the relay checks its fields.
func (r *reader) message(n *yaml.Node) *Value {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "message is a map of the message's fields, not %s", describe(n))
		return nil
	}
	return r.value(n)
}

// span reads a duration: a literal or an expression.
func (r *reader) span(n *yaml.Node, what string, zero bool) *Value {
	v := r.filled(n, what)
	if v.Kind == Literal && !isNull(n) {
		r.duration(n, what, zero)
	} else if v.Kind == List || v.Kind == Map {
		r.errorf(n, "%s is a duration such as 30m, or an expression, not %s", what, describe(n))
	}
	return v
}

// due reads how long the saga waits for an outcome: a duration or an expression.
func (r *reader) due(a *Action, n *yaml.Node) {
	v := r.span(n, "due", false)
	if v.Kind != Literal {
		a.DueValue = v
		return
	}
	text, _ := v.Scalar.(string)
	d, _ := ParseDuration(text) // span has reported an invalid one
	a.Due = &Duration{Pos: r.pos(n), Text: text, D: d}
}

// undone reads what is undone: a name, a member, or a member whose index is an expression.
func (r *reader) undone(a *Action, n *yaml.Node) {
	v := &Value{}
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "${") {
		v = r.value(n)
	}
	group, found := "", false
	if len(v.Parts) == 3 && v.Parts[1].Expr != nil && v.Parts[2].Text == "]" {
		group, found = strings.CutSuffix(v.Parts[0].Text, "[")
	}
	if !found || !r.Defs["step"].form.MatchString(group) {
		a.Name = r.name(n, "what is undone", "undone")
		if v.Kind == Template && r.Defs["undone"].form.MatchString(a.Name.Text) { // its form is that of a member, such as a[${x}]b[${y}]
			r.errorf(n, "%q cannot be what is undone: that is %s", shorten(n.Value), r.Defs["undone"].Description)
		}
		return
	}
	a.Name = Name{Pos: r.pos(n), Text: group}
	a.Index = &Value{Pos: v.Parts[1].Expr.Pos, Kind: Expression, Expr: v.Parts[1].Expr}
}

// undo reads the undo of a step: an effect or command, or a name for short.
func (r *reader) undo(n *yaml.Node) *Action {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return r.frame(n, "undo")
	}
	a := &Action{Pos: r.pos(n), Kind: "effect", Name: r.name(n, "an effect's name", "definition"), Short: true}
	a.With = &Value{Pos: a.Pos, Kind: Expression, Expr: &Expr{Pos: a.Pos, Source: "input"}}
	return a
}

// compensate reads the frame into Undo, and its name as the action's own.
func (r *reader) compensate(a *Action, n *yaml.Node) {
	if a.Undo = r.frame(n, "compensate"); a.Undo != nil {
		a.Name = a.Undo.Name
	}
}

// frame reads {effect: …, with: …} or {command: …, to: …, with: …}.
func (r *reader) frame(n *yaml.Node, what string) *Action {
	if n.Kind != yaml.MappingNode || has(n, "effect") == has(n, "command") {
		r.losef(n, "%s is a map with either effect or command, such as {effect: refund, with: {…}}", what)
		return nil
	}
	a := &Action{Pos: r.pos(n), Kind: "effect"}
	if has(n, "command") {
		a.Kind = "command"
	}
	d := r.Defs["frame"].with(a.Kind)
	r.fields(n, what, d.known(r.actionKeys(a)))
	r.complete(a, d, n)
	return a
}
