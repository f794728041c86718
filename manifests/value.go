package manifests

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// value reads a value: a string that begins with = is an expression, == is a
// literal =, and ${…} interpolates.
func (r *reader) value(n *yaml.Node) *Value {
	v := &Value{Pos: r.pos(n)}
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag != "!!str":
		r.composite(v, n, r.value)
	case strings.HasPrefix(n.Value, "=="):
		v.Scalar = n.Value[1:]
	case strings.HasPrefix(n.Value, "="):
		v.Kind = Expression
		v.Expr = r.expr(n, 1)
	case strings.Contains(n.Value, "${"):
		r.template(v, n)
	default:
		v.Scalar = n.Value
	}
	return v
}

// literal reads a value in which nothing is an expression.
func (r *reader) literal(n *yaml.Node) *Value {
	v := &Value{Pos: r.pos(n)}
	r.composite(v, n, r.literal)
	return v
}

// composite reads a scalar as a literal, and the parts of a list or map with the given function.
func (r *reader) composite(v *Value, n *yaml.Node, part func(*yaml.Node) *Value) {
	switch n.Kind {
	case yaml.MappingNode:
		v.Kind = Map
		r.entries(n, "this", func(k, f *yaml.Node) {
			v.Fields = append(v.Fields, Field{Name: k.Value, Pos: r.pos(k), Value: part(f)})
		})
	case yaml.SequenceNode:
		v.Kind = List
		r.items(n, "this", func(i *yaml.Node) { v.Items = append(v.Items, part(i)) })
	default:
		v.Scalar = r.scalar(n)
	}
}

// expr returns the expression in a scalar's text from an index on.
func (r *reader) expr(n *yaml.Node, from int) *Expr {
	text := n.Value[from:]
	blank := len(text) - len(strings.TrimLeft(text, " \t\n"))
	e := &Expr{Pos: r.trace(n).to(from + blank), Source: strings.TrimSpace(text)}
	switch {
	case e.Source == "" && from > 0:
		r.errorf(n, "the expression is empty: write it behind the =, or == for the text =")
	case e.Source == "":
		r.errorf(n, "the expression is empty")
	case r.cutShort(n, e.Source):
		r.errorAt(e.Pos, "%s", r.cutAdvice(n))
	}
	return e
}

// expression reads a scalar that is always an expression, without =.
func (r *reader) expression(n *yaml.Node, what string) *Expr {
	switch {
	case n.Kind == yaml.SequenceNode && what == "key":
		r.errorf(n, "key is one expression, not a list: join the parts, as in event.tenant + \"/\" + event.id")
	case n.Kind != yaml.ScalarNode:
		r.errorf(n, "%s is an expression, not %s: %s", what, describe(n), inQuotes(n, what))
	case (n.Tag == "!!int" || n.Tag == "!!float") && conditions[what] != "":
		r.errorf(n, "%s is a condition, not %s: compare, as in %s", what, describe(n), conditions[what])
	case isNull(n) && n.Value == "":
		r.errorf(n, "%s is an expression, and there is none", what)
	case n.Style&yaml.TaggedStyle != 0:
		r.errorf(n, "in YAML ! begins a tag: put the expression in quotes, or write not")
	case strings.HasPrefix(n.Value, "="):
		r.errorAt(r.trace(n).to(0), "%s is always an expression: leave the = out", what)
		return r.expr(n, 1)
	default:
		return r.expr(n, 0)
	}
	return &Expr{Pos: r.pos(n)}
}

// conditions are the expressions that are true or false, each with an example; read only.
var conditions = map[string]string{
	"when": "event.count > 1", "if": "event.count > 1",
	"ok": "status == 200", "fail": "status == 409", "an outcome of check": "status == 200",
}

// inQuotes says how a list or a map becomes an expression.
func inQuotes(n *yaml.Node, what string) string {
	if n.Kind == yaml.SequenceNode && strings.HasPrefix(conditions[what], "status") {
		return "write status in […]"
	}
	return "put it in quotes"
}

// expressionValue returns an expression as a Value.
func (r *reader) expressionValue(n *yaml.Node, what string) *Value {
	return &Value{Pos: r.pos(n), Kind: Expression, Expr: r.expression(n, what)}
}

// literals reads a map without expressions. Its strings are written as elsewhere: == is a literal
// =.
func (r *reader) literals(n *yaml.Node, what string) *Value {
	if n.Kind != yaml.MappingNode && !isNull(n) {
		r.errorf(n, "%s is a map, not %s", what, describe(n))
		return nil
	}
	v := r.value(n)
	if isNull(n) {
		v.Kind = Map
	}
	v.Exprs(func(e *Expr) {
		r.errorAt(e.Pos, "%s holds literals only: compute it in the set: of a handler; a literal text begins with == for =, and has $${ for ${", what)
	})
	return v
}

// data returns the canonical literal of a node; it has no expressions.
func (r *reader) data(n *yaml.Node) any {
	v, _ := r.literal(n).Const()
	return v
}

// template splits "… ${expr} …" into its parts; $${ is a literal ${. Without an expression the
// value is a literal.
func (r *reader) template(v *Value, n *yaml.Node) {
	t := r.trace(n)
	var text strings.Builder
	addText := func() {
		if text.Len() > 0 {
			v.Parts = append(v.Parts, TemplatePart{Text: text.String()})
			text.Reset()
		}
	}
	for rest := n.Value; rest != ""; {
		i := strings.Index(rest, "${")
		if i < 0 {
			text.WriteString(rest)
			break
		}
		if i > 0 && rest[i-1] == '$' {
			text.WriteString(rest[:i-1] + "${")
			rest = rest[i+2:]
			continue
		}
		text.WriteString(rest[:i])
		at := len(n.Value) - len(rest) + i
		length := closing(rest[i+2:])
		if length < 0 {
			r.errorAt(t.to(at), "${ has no closing }: add it, or write $${ for a literal ${")
			break
		}
		source := rest[i+2 : i+2+length]
		blank := len(source) - len(strings.TrimLeft(source, " \t\n"))
		e := &Expr{Pos: t.to(at + 2 + blank), Source: strings.TrimSpace(source)}
		if e.Source == "" {
			r.errorAt(e.Pos, "the expression in ${} is empty")
		}
		addText()
		v.Parts = append(v.Parts, TemplatePart{Expr: e})
		rest = rest[i+2+length+1:]
	}
	if len(v.Parts) == 0 {
		v.Scalar = text.String()
		return
	}
	v.Kind = Template
	addText()
}

// closing returns the index of the } that ends an expression, or -1. Braces nest, and those in
// strings do not count.
func closing(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"', '\'', '`':
			end := stringEnd(s[i:])
			if end < 0 {
				return -1
			}
			i += end
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

// stringEnd returns the index of the quote that ends the string at the start of s.
func stringEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && s[0] != '`':
			i++
		case s[i] == s[0]:
			return i
		}
	}
	return -1
}

// Const returns the plain canonical value, and true if the value holds no expression.
func (v *Value) Const() (any, bool) {
	switch v.Kind {
	case Literal:
		return v.Scalar, true
	case List:
		out := make([]any, len(v.Items))
		for i, item := range v.Items {
			c, ok := item.Const()
			if !ok {
				return nil, false
			}
			out[i] = c
		}
		return out, true
	case Map:
		out := make(map[string]any, len(v.Fields))
		for _, f := range v.Fields {
			c, ok := f.Value.Const()
			if !ok {
				return nil, false
			}
			out[f.Name] = c
		}
		return out, true
	}
	return nil, false
}

// Field returns the value of a map's field, or nil. The receiver may be nil.
func (v *Value) Field(name string) *Value {
	if v == nil {
		return nil
	}
	for _, f := range v.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Filled returns the text of a literal, or of a template with a word in the place of each
// expression. Anything else has no text. The receiver may be nil.
func (v *Value) Filled(word string) string {
	if v == nil {
		return ""
	}
	text, _ := v.Scalar.(string)
	for _, p := range v.Parts {
		if text += p.Text; p.Expr != nil {
			text += word
		}
	}
	return text
}

// Exprs visits every expression of the value, in document order. The receiver may be nil.
func (v *Value) Exprs(visit func(*Expr)) {
	if v == nil {
		return
	}
	if v.Expr != nil {
		visit(v.Expr)
	}
	for _, p := range v.Parts {
		if p.Expr != nil {
			visit(p.Expr)
		}
	}
	for _, item := range v.Items {
		item.Exprs(visit)
	}
	for _, f := range v.Fields {
		f.Value.Exprs(visit)
	}
}

// PlainText is a text of a value that is no expression.
type PlainText struct {
	Pos  Pos // of the value that it is, or is a part of
	Text string
	Part bool // of a template
	Item bool // of a list
}

// Texts visits every text of the value, in document order. The receiver may be nil.
func (v *Value) Texts(visit func(PlainText)) { v.texts(visit, false) }

func (v *Value) texts(visit func(PlainText), item bool) {
	if v == nil {
		return
	}
	if text, ok := v.Scalar.(string); ok {
		visit(PlainText{Pos: v.Pos, Text: text, Item: item})
	}
	for _, p := range v.Parts {
		if p.Expr == nil {
			visit(PlainText{Pos: v.Pos, Text: p.Text, Part: true, Item: item})
		}
	}
	for _, i := range v.Items {
		i.texts(visit, true)
	}
	for _, f := range v.Fields {
		f.Value.texts(visit, false)
	}
}

// At returns the position of a line and column of the expression's source, both from 1. In folded
// or escaped text it is approximate.
func (e *Expr) At(line, column int) Pos {
	if line <= 1 {
		return Pos{e.Pos.Line, e.Pos.Column + max(column, 1) - 1}
	}
	return Pos{e.Pos.Line + line - 1, max(column, 1)}
}
