package manifests

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// word is a key that makes a map an action. The table of verbs in package saga has the same words.
type word struct {
	name     string
	options  []string // the other keys of the action, besides if, id and priority
	read     func(r *reader, a *Action, n *yaml.Node)
	complete func(r *reader, a *Action, n *yaml.Node) // reports missing keys; may be nil
}

// words lists the words in the order in which messages name them. An unset alone is read as a set.
func words() []word {
	named := func(what string, is func(forms) form) func(*reader, *Action, *yaml.Node) {
		return func(r *reader, a *Action, n *yaml.Node) { a.Name = r.name(n, what, is(r.forms)) }
	}
	definition, step, member := func(f forms) form { return f.definition }, func(f forms) form { return f.step }, func(f forms) form { return f.member }
	return []word{
		{"effect", []string{"with", "undo", "must", "due", "version"}, named("an effect's name", definition), nil},
		{"command", []string{"to", "with", "undo"}, named("a command", func(f forms) form { return f.command }), (*reader).completeCommand},
		{"event", []string{"with"}, named("an event's name", func(f forms) form { return f.event }), nil},
		{"message", nil, func(r *reader, a *Action, n *yaml.Node) { a.Message = r.message(n) }, nil},
		{"ask", []string{"to", "with", "due", "must"}, named("an ask's name", step), nil},
		{"start", []string{"key", "event", "with", "undo", "must", "due"}, named("a saga's name", definition), (*reader).completeStart},
		{"seq", nil, func(r *reader, a *Action, n *yaml.Node) { a.Seq = r.actions(n, "seq") }, nil},
		{"each", []string{"as", "do"}, func(r *reader, a *Action, n *yaml.Node) { a.Each = r.expression(n, "each") }, (*reader).completeEach},
		{"set", []string{"unset"}, func(r *reader, a *Action, n *yaml.Node) { a.Set = r.assigns(n) }, nil},
		{"unset", nil, func(r *reader, a *Action, n *yaml.Node) { a.Unset = r.paths(n) }, nil},
		{"timer", []string{"after", "at", "every", "catchup"}, named("a timer's name", func(f forms) form { return f.timer }), (*reader).completeTimer},
		{"cancel", nil, named("what is cancelled", member), nil},
		{"compensate", nil, (*reader).compensate, nil},
		{"undo", nil, named("what is undone", member), nil},
		{"done", nil, func(r *reader, a *Action, n *yaml.Node) { a.Value = r.value(n) }, nil},
		{"fail", nil, func(r *reader, a *Action, n *yaml.Node) { a.Value = r.reason(n) }, nil},
	}
}

// Words lists the words that make a map an action.
func Words() []string {
	var out []string
	for _, w := range words() {
		out = append(out, w.name)
	}
	return out
}

// wordOf returns the word of an action's kind.
func wordOf(kind string) word {
	list := words()
	return list[slices.IndexFunc(list, func(w word) bool { return w.name == kind })]
}

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
		r.errorf(n, "an action is a map such as {effect: charge, with: {…}}, not %s%s", describe(n), colonHint(n))
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
	w := wordOf(a.Kind)
	r.fields(n, "the action "+a.Kind, r.actionKeys(a, w))
	r.complete(a, w, n)
	return a
}

// colonHint suggests "- done:" for "- done".
func colonHint(n *yaml.Node) string {
	if slices.Contains(Words(), n.Value) {
		return fmt.Sprintf("; did you mean %q?", n.Value+":")
	}
	return ""
}

// word returns the key that says which action it is; nil after a reported problem.
func (r *reader) word(n *yaml.Node) *yaml.Node {
	var found []*yaml.Node
	names := actionWords(n)
	for i := 0; i < len(n.Content); i += 2 {
		if k := deref(n.Content[i]); slices.Contains(names, k.Value) {
			found = append(found, k)
		}
	}
	switch {
	case len(found) == 1:
		return found[0]
	case len(found) > 1:
		r.errorf(found[1], "an action has one word, and this has %s and %s: make two entries of the list", found[0].Value, found[1].Value)
		return nil
	}
	return r.wordless(n)
}

// actionWords drops the words that are options here: the undo: of a step, the event: of a start,
// and unset beside set.
func actionWords(n *yaml.Node) []string {
	options := map[string]bool{
		"undo":  has(n, "effect") || has(n, "command") || has(n, "start") || has(n, "ask"),
		"event": has(n, "start"),
		"unset": has(n, "set"),
	}
	return slices.DeleteFunc(Words(), func(w string) bool { return options[w] })
}

// wordless reports an action without a known word. It reads a misspelt one as the likely word, so
// that its other problems are reported at once and the saga does not seem to lack it.
func (r *reader) wordless(n *yaml.Node) *yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		k := deref(n.Content[i])
		if near := nearest(k.Value, Words()); near != "" {
			r.errorf(k, "there is no action %q; did you mean %q?", shorten(k.Value), near)
			k.Value = near
			return k
		}
	}
	r.errorf(n, "no action is named here; the actions are %s", strings.Join(Words(), ", "))
	return nil
}

// actionKeys returns the keys that an action with this word may have.
func (r *reader) actionKeys(a *Action, w word) keys {
	k := r.wordKeys(a, w)
	k["if"] = func(n *yaml.Node) { a.If = r.expression(n, "if") }
	k["id"] = func(n *yaml.Node) { id := r.name(n, "an id", r.forms.step); a.ID = &id }
	return k
}

// wordKeys returns the word, its options and the priority.
func (r *reader) wordKeys(a *Action, w word) keys {
	k := keys{
		w.name:     func(n *yaml.Node) { w.read(r, a, n) },
		"priority": func(n *yaml.Node) { a.High = r.choice(n, "priority", "normal", "high") == "high" },
	}
	for _, option := range w.options {
		k[option] = r.option(a, option)
	}
	return k
}

// option returns the function that reads an option.
func (r *reader) option(a *Action, option string) func(*yaml.Node) {
	return map[string]func(*yaml.Node){
		"with":    func(n *yaml.Node) { a.With = r.value(n) },
		"undo":    func(n *yaml.Node) { a.Undo = r.undo(n) },
		"must":    func(n *yaml.Node) { a.Must = r.boolean(n, "must") },
		"due":     func(n *yaml.Node) { r.due(a, n) },
		"version": func(n *yaml.Node) { a.Version, a.VersionPos = r.integer(n, "version", 1), r.pos(n) },
		"to":      func(n *yaml.Node) { a.To = r.filled(n, "to") },
		"key":     func(n *yaml.Node) { a.Key = r.expressionValue(n, "key") },
		"event":   func(n *yaml.Node) { e := r.name(n, "a trigger", r.forms.event); a.Event = &e },
		"as":      func(n *yaml.Node) { a.As = r.name(n, "as", r.forms.step).Text },
		"do":      func(n *yaml.Node) { a.Do = r.actions(n, "do") },
		"unset":   func(n *yaml.Node) { a.Unset = r.paths(n) },
		"after":   func(n *yaml.Node) { a.After = r.span(n, "after", true) },
		"at":      func(n *yaml.Node) { a.At = r.instant(n) },
		"every":   func(n *yaml.Node) { a.Every = r.span(n, "every", false) },
		"catchup": func(n *yaml.Node) { a.Catchup = r.choice(n, "catchup", "last", "all", "none") },
	}[option]
}

// complete reports missing options of an action.
func (r *reader) complete(a *Action, w word, n *yaml.Node) {
	if w.complete != nil {
		w.complete(r, a, n)
	}
}

func (r *reader) needs(a *Action, n *yaml.Node, key, why string) {
	if !has(n, key) {
		r.errorAt(a.Pos, "the action %s needs %s: %s", a.Kind, key, why)
	}
}

func (r *reader) completeCommand(a *Action, n *yaml.Node) {
	r.needs(a, n, "to", "the id of the aggregate, such as =key")
}

func (r *reader) completeStart(a *Action, n *yaml.Node) {
	r.needs(a, n, "key", "the child's key, an expression")
}

func (r *reader) completeEach(a *Action, n *yaml.Node) {
	if a.As == "" {
		a.As = "item"
	}
	if len(a.Do) == 0 && (!has(n, "do") || isNull(get(n, "do"))) {
		r.errorAt(a.Pos, "the action each needs do: the actions of one round")
	}
}

func (r *reader) completeTimer(a *Action, n *yaml.Node) {
	given := 0
	for _, when := range []string{"after", "at", "every"} {
		if has(n, when) {
			given++
		}
	}
	if given != 1 {
		r.errorAt(a.Pos, "a timer has exactly one of after, at and every")
	}
	if has(n, "catchup") && !has(n, "every") {
		r.errorf(get(n, "catchup"), "catchup belongs to a timer with every")
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

// message reads a map whose fields the relay knows.
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

// instant reads a time: a literal or an expression.
func (r *reader) instant(n *yaml.Node) *Value {
	v := r.filled(n, "at")
	if text, ok := v.Scalar.(string); v.Kind == Literal && !isNull(n) {
		if _, err := time.Parse(time.RFC3339, text); !ok || err != nil {
			r.errorf(n, "at is a time such as 2026-01-31T10:00:00Z, or an expression, not %s", describe(n))
		}
	} else if v.Kind == List || v.Kind == Map {
		r.errorf(n, "at is a time or an expression, not %s", describe(n))
	}
	return v
}

// undo reads the undo of a step: an effect or command, or a name for short.
func (r *reader) undo(n *yaml.Node) *Action {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return r.frame(n, "undo")
	}
	a := &Action{Pos: r.pos(n), Kind: "effect", Name: r.name(n, "an effect's name", r.forms.definition), Short: true}
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
		r.errorf(n, "%s is a map with either effect or command, such as {effect: refund, with: {…}}", what)
		return nil
	}
	a := &Action{Pos: r.pos(n), Kind: "effect"}
	if has(n, "command") {
		a.Kind = "command"
	}
	w := wordOf(a.Kind)
	k := r.wordKeys(a, w)
	delete(k, "undo")
	delete(k, "must")
	r.fields(n, what, k)
	r.complete(a, w, n)
	return a
}
