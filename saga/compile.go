package saga

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"edda/expression"
	"edda/internal/jsonvalue"
	"edda/manifests"
)

// Names in scope, as LANGUAGE's section on values lists them.
var (
	keyNames  = []string{"config", "event", "meta", "now"}
	baseNames = []string{"config", "event", "key", "meta", "now", "saga", "seen", "state", "step"}
	undoNames = []string{"id", "input", "result"}
	eachIndex = "index"
	defaultAs = "item"
)

// Compile compiles a manifest. It returns all problems at once. The program is nil when any of
// them is an error.
func Compile(m *manifests.Saga, o Options) (*Program, manifests.Problems) {
	c := &compiler{p: &Program{
		m: m, o: o.withDefaults(), verbs: newVerbs(),
		plain: map[string]*handler{}, inner: map[string]bool{}, joins: map[string][]*handler{}, events: map[string]*eventDecl{},
		actions: map[string]*action{}, seqs: map[string][]*action{}, groups: map[string]bool{},
	}}
	c.saga()
	c.check()
	c.problems = c.problems.Unique() // handlers of an A | B share their parts
	if c.problems.Failed() {
		return nil, c.problems
	}
	return c.p, c.problems
}

// compiler collects the problems of one manifest.
type compiler struct {
	p        *Program
	problems manifests.Problems
	handling *handler   // whose event the expressions under way see
	uses     []use      // member chains of expressions, checked once all steps are known
	unmarked []unmarked // expressions in literal texts, likewise
}

// use is one expression and the names that it refers to.
type use struct {
	expr    *manifests.Expr
	prog    *expression.Program
	handler *handler // whose event it sees; nil if that may have any form
	// needsResult says that the expression is in the undo of a step, and that nothing in that undo
	// reads the command's id.
	needsResult bool
	undoes      *manifests.Action // the action in whose undo it is; nil outside of an undo
}

func (c *compiler) errorf(pos manifests.Pos, format string, args ...any) {
	c.problems = append(c.problems, manifests.Problem{File: c.p.m.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
}

func (c *compiler) warnf(pos manifests.Pos, format string, args ...any) {
	c.problems = append(c.problems, manifests.Problem{File: c.p.m.File, Pos: pos, Warning: true, Message: fmt.Sprintf(format, args...)})
}

func (c *compiler) saga() {
	m := c.p.m
	c.p.key = c.expr(m.Key, keyNames)
	c.p.config = constants(m.Config)
	var err error
	if c.p.initial, err = jsonvalue.Encode(constants(m.State)); err != nil {
		c.errorf(m.State.Pos, "state: %v", err)
	}
	c.p.schema = c.schema(m.Schema, "state")
	for _, e := range m.Events {
		c.event(e)
	}
	for _, h := range m.Handlers {
		c.handler(h)
	}
	for _, s := range m.Schedule {
		c.schedule(s)
	}
}

// constants returns the values of config or state. The parser guarantees that they are a map of
// literals.
func constants(v *manifests.Value) map[string]any {
	if v != nil {
		x, _ := v.Const()
		if object, _ := x.(map[string]any); object != nil {
			return object
		}
	}
	return map[string]any{}
}

func (c *compiler) event(e manifests.EventDecl) {
	d := &eventDecl{src: e, upcast: map[int]upcast{}, schema: c.schema(e.Schema, "event "+e.Name.Text)}
	for _, u := range e.Upcast {
		d.upcast[u.From] = upcast{set: c.assigns(u.Set, keyNames), unset: paths(u.Unset)}
	}
	c.p.events[e.Name.Text] = d
}

func (c *compiler) handler(src *manifests.Handler) {
	h := &handler{src: src, trigger: src.Trigger.Text, park: defaultPark}
	if src.Park != nil {
		h.park = src.Park.D
	}
	h.key = c.expr(src.Key, keyNames)
	c.handling = h
	names := c.lets(h)
	h.when = c.expr(src.When, names)
	h.set, h.unset = c.assigns(src.Set, names), paths(src.Unset)
	b := &actionCompiler{compiler: c, handler: h, labels: map[string]int{}}
	h.do = b.list(src.Do, names)
	for _, cs := range src.Cases {
		h.cases = append(h.cases, b.branch(&cs.Block, cs.When, names))
	}
	c.handling = nil
	if src.Newer != nil {
		h.newer = b.branch(src.Newer, nil, names)
	}
	c.p.handlers = append(c.p.handlers, h)
	if len(h.src.Trigger.Parts) > 1 {
		for _, part := range h.src.Trigger.Parts {
			c.p.joins[part] = append(c.p.joins[part], h)
		}
		return
	}
	c.p.plain[h.trigger] = h
}

// lets compiles a handler's let and returns the names its other expressions see.
func (c *compiler) lets(h *handler) []string {
	names := slices.Clone(baseNames)
	// The handler of an outcome may run for a member of a group, and then sees its item.
	if slices.ContainsFunc([]string{".ok", ".failed", ".timeout", ".undone"}, func(outcome string) bool { return strings.HasSuffix(h.trigger, outcome) }) {
		names = append(names, defaultAs, eachIndex)
	}
	for _, l := range h.src.Let {
		if slices.Contains(baseNames, l.Name.Text) {
			c.errorf(l.Name.Pos, "let %s: hides the saga's own %q: choose another name", l.Name.Text, l.Name.Text)
		}
		names = append(names, l.Name.Text)
	}
	names = append(names, c.p.groupAs(h.trigger)...)
	h.lets = map[string]*expression.Program{}
	for _, l := range h.src.Let {
		h.lets[l.Name.Text] = c.expr(l.Expr, names)
	}
	done := map[string]bool{}
	for _, l := range h.src.Let {
		if cycle := letCycle(h.lets, l.Name.Text, nil, done); cycle != nil {
			c.errorf(l.Name.Pos, "let needs itself: %s: break the cycle", strings.Join(cycle, " → "))
			break
		}
	}
	return names
}

// groupAs returns the name that an each gives its items, for the handlers of its members.
func (p *Program) groupAs(trigger string) []string {
	id, _, ok := cutLast(trigger, ".")
	if !ok {
		return nil
	}
	var names []string
	eachActions(p.m, func(a *manifests.Action) {
		if a.Kind == verbEach && p.verbs.groupID(a) == id && a.As != "" && a.As != defaultAs {
			names = append(names, a.As)
		}
	})
	return names
}

// eachActions visits every action of a saga in document order, without those that undo a step.
func eachActions(m *manifests.Saga, visit func(*manifests.Action)) {
	for _, h := range m.Handlers {
		eachOf(h.Do, visit)
		for _, cs := range h.Cases {
			eachOf(cs.Do, visit)
		}
		if h.Newer != nil {
			eachOf(h.Newer.Do, visit)
		}
	}
}

// eachStep visits every action that makes a step, with the name of the step in triggers: that of its
// group, if an each makes it.
func eachStep(t verbs, m *manifests.Saga, visit func(a *manifests.Action, id string)) {
	groups := map[*manifests.Action]string{}
	eachActions(m, func(a *manifests.Action) {
		if t[a.Kind].each {
			for _, member := range a.Do {
				groups[member] = t.groupID(a)
			}
		}
		if t[a.Kind].step {
			visit(a, cmp.Or(groups[a], stepID(a)))
		}
	})
}

func eachOf(actions []*manifests.Action, visit func(*manifests.Action)) {
	for _, a := range actions {
		visit(a)
		eachOf(a.Seq, visit)
		eachOf(a.Do, visit)
	}
}

// letCycle returns the names of a cycle that a let is part of or leads to, or nil.
func letCycle(lets map[string]*expression.Program, name string, way []string, done map[string]bool) []string {
	if i := slices.Index(way, name); i >= 0 {
		return append(way[i:len(way):len(way)], name)
	}
	prog := lets[name]
	if prog == nil || done[name] {
		return nil
	}
	way = append(way, name)
	for _, n := range prog.Names() {
		if cycle := letCycle(lets, n, way, done); cycle != nil {
			return cycle
		}
	}
	done[name] = true
	return nil
}

// expr compiles one expression; nil stays nil.
func (c *compiler) expr(e *manifests.Expr, names []string) *expression.Program {
	if e == nil || e.Source == "" { // the parser has reported an empty one
		return nil
	}
	p, errs := expression.Compile(e.Source, expression.Options{Names: names, Kept: c.p.o.Kept})
	for _, err := range errs {
		c.errorf(e.At(err.Line, err.Column), "%s", err.Message)
		c.problems[len(c.problems)-1].Rule = manifests.RuleExpression
	}
	if p != nil {
		c.uses = append(c.uses, use{expr: e, prog: p, handler: c.handling})
	}
	return p
}

func (c *compiler) value(v *manifests.Value, names []string) *value {
	c.findUnmarked(v, names)
	return c.valueOf(v, names)
}

func (c *compiler) valueOf(v *manifests.Value, names []string) *value {
	if v == nil {
		return nil
	}
	out := &value{src: v}
	switch v.Kind {
	case manifests.Expression:
		out.expr = c.expr(v.Expr, names)
	case manifests.Template:
		for _, p := range v.Parts {
			out.parts = append(out.parts, part{text: p.Text, expr: c.expr(p.Expr, names)})
		}
	case manifests.List:
		for _, item := range v.Items {
			out.items = append(out.items, c.valueOf(item, names))
		}
	case manifests.Map:
		for _, f := range v.Fields {
			out.fields = append(out.fields, field{name: f.Name, value: c.valueOf(f.Value, names)})
		}
		out.label()
	}
	return out
}

func (c *compiler) assigns(src []manifests.Assign, names []string) []assign {
	var out []assign
	for _, a := range src {
		out = append(out, assign{path: strings.Split(a.Path.Text, "."), value: c.value(a.Value, names)})
	}
	return out
}

func paths(names []manifests.Name) [][]string {
	var out [][]string
	for _, n := range names {
		out = append(out, strings.Split(n.Text, "."))
	}
	return out
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
