package effects

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"edda/expression"
	"edda/manifests"
)

// value is a compiled value of a manifest.
type value struct {
	kind    manifests.ValueKind
	literal any
	program *expression.Program
	parts   []part
	items   []*value
	names   []string // of a map's fields
	escape  func(before, value string) string
	raw     func(before, value string) string // escape of expressions in raw(…)
	fits    func(text string) error           // may be nil
	inRaw   bool                              // the expression is in raw(…)
}

// part is a piece of a template.
type part struct {
	text    string
	program *expression.Program
	inRaw   bool
}

// compiler collects the problems of one effect.
type compiler struct {
	m        *manifests.Effect
	problems manifests.Problems
	secrets  map[string]bool
	names    map[string]bool // variables that expressions read
	raw      bool            // raw(…) is allowed here
}

func (c *compiler) errorf(pos manifests.Pos, message string) {
	c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: pos, Message: message})
}

// program compiles an expression; nil after a reported problem.
func (c *compiler) program(e *manifests.Expr, names []string) *expression.Program {
	if e.Source == "" { // the parser has reported it
		return nil
	}
	p, errs := expression.Compile(e.Source, expression.Options{Names: names, Numbers: []string{"status"}})
	for _, err := range errs {
		c.errorf(e.At(err.Line, err.Column), err.Message)
		c.problems[len(c.problems)-1].Rule = manifests.RuleExpression
	}
	if len(errs) > 0 {
		return nil
	}
	c.collectSecrets(e, p)
	for _, name := range p.Names() {
		c.names[name] = true
	}
	return p
}

// expression compiles the expression of a value, which may be in raw(…).
func (c *compiler) expression(e *manifests.Expr, names []string) (p *expression.Program, inRaw bool) {
	argument, inRaw := expression.Inside(e.Source, "raw")
	if inRaw = inRaw && c.raw; inRaw {
		e = &manifests.Expr{Pos: e.Pos, Source: argument}
		c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: e.Pos, Warning: true,
			Message: "raw writes " + strings.TrimSpace(argument) + " as it is: who gives the value chooses what is called, so let it come from somebody you trust"})
	}
	return c.program(e, names), inRaw
}

// collectSecrets records the secrets in use, because only those are read.
func (c *compiler) collectSecrets(e *manifests.Expr, p *expression.Program) {
	for _, ref := range p.Refs() {
		switch {
		case ref[0] != "secret":
		case len(ref) < 2:
			c.errorf(e.Pos, "a secret is named: write secret.NAME")
		case !secretName(ref[1]):
			c.errorf(e.Pos, "a secret's name is letters, digits and _: "+ref[1]+" is none")
		default:
			c.secrets[ref[1]] = true
		}
	}
}

// shellSecret finds a variable as a shell writes it: Bearer $TOKEN.
var shellSecret = regexp.MustCompile(`\$([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)\b`)

// textSecret finds a secret in a longer text: Bearer secret.TOKEN. Its name is in capitals, so that
// the host secret.example is none.
var textSecret = regexp.MustCompile(`(?:^|[^\w./@{$-])(secret\.[A-Z][A-Z0-9_]*)\b`)

// unmarked warns of texts that look like expressions over the names. A name alone is often a word:
// it counts only as a whole value, and id never does.
func (c *compiler) unmarked(v *manifests.Value, names []string) {
	v.Texts(func(t manifests.PlainText) {
		takesSecrets := slices.Contains(names, "secret") // code of a shell takes none, and has variables
		if name := shellSecret.FindStringSubmatch(t.Text); takesSecrets && name != nil {
			c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: t.Pos, Warning: true, Rule: manifests.RuleUnmarked,
				Message: fmt.Sprintf("this text holds %q as it is: write ${secret.%s} for the secret", name[0], name[1])})
		}
		found := expression.FindUnmarked(t.Text, t.Part, names)
		if name := textSecret.FindStringSubmatch(t.Text); takesSecrets && len(found) == 0 && name != nil {
			c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: t.Pos, Rule: manifests.RuleUnmarked,
				Message: fmt.Sprintf("this text holds the words %q, and not the secret: write ${%s} in it", name[1], name[1])})
		}
		for _, u := range found {
			member := func(ref []string) bool { // a text or a number has none
				return len(ref) > 1 && slices.Contains([]string{"id", "tenant", "status"}, ref[0])
			}
			word := u.Name && (t.Item || slices.Contains([]string{"id", "secret"}, u.Text))
			if !word && !slices.ContainsFunc(u.Program.Refs(), member) {
				c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: t.Pos, Warning: true, Rule: manifests.RuleUnmarked, Message: u.String()})
			}
		}
	})
}

// value compiles a value; nil if there is none.
func (c *compiler) value(v *manifests.Value, names []string) *value {
	c.unmarked(v, names)
	return c.valueOf(v, names)
}

func (c *compiler) valueOf(v *manifests.Value, names []string) *value {
	if v == nil {
		return nil
	}
	out := &value{kind: v.Kind, literal: v.Scalar}
	if v.Expr != nil {
		out.program, out.inRaw = c.expression(v.Expr, names)
	}
	for _, p := range v.Parts {
		piece := part{text: p.Text}
		if p.Expr != nil {
			piece.program, piece.inRaw = c.expression(p.Expr, names)
		}
		out.parts = append(out.parts, piece)
	}
	for _, item := range v.Items {
		out.items = append(out.items, c.valueOf(item, names))
	}
	for _, f := range v.Fields {
		out.names, out.items = append(out.names, f.Name), append(out.items, c.valueOf(f.Value, names))
	}
	return out
}

// eval returns a canonical value. It shares memory with vars, so nobody may change it.
func (v *value) eval(vars map[string]any) (any, error) {
	switch v.kind {
	case manifests.Expression:
		got, err := v.program.Share(expression.Env{Vars: vars})
		if err == nil && v.fits != nil && !v.inRaw {
			err = v.fits(expression.Text(got))
		}
		return got, err
	case manifests.Template:
		return v.text(vars)
	case manifests.List:
		return v.list(vars)
	case manifests.Map:
		return v.object(vars)
	default:
		return v.literal, nil
	}
}

// text fills a template. If the field has fits, text also fills it with an x for each raw value,
// and checks that.
func (v *value) text(vars map[string]any) (string, error) {
	var b, judged strings.Builder
	for _, p := range v.parts {
		text, harmless := p.text, p.text
		if p.program != nil {
			got, err := p.program.Eval(expression.Env{Vars: vars})
			if err != nil {
				return "", err
			}
			text = expression.Text(got)
			switch {
			case p.inRaw:
				text, harmless = v.raw(b.String(), text), "x"
			case v.escape != nil:
				text = v.escape(b.String(), text)
				harmless = text
			}
		}
		b.WriteString(text)
		if v.fits != nil {
			judged.WriteString(harmless)
		}
	}
	if v.fits == nil {
		return b.String(), nil
	}
	return b.String(), v.fits(judged.String())
}

func (v *value) list(vars map[string]any) ([]any, error) {
	out := make([]any, len(v.items))
	for i, item := range v.items {
		got, err := item.eval(vars)
		if err != nil {
			return nil, err
		}
		out[i] = got
	}
	return out, nil
}

func (v *value) object(vars map[string]any) (map[string]any, error) {
	out := make(map[string]any, len(v.items))
	for i, item := range v.items {
		got, err := item.eval(vars)
		if err != nil {
			return nil, err
		}
		out[v.names[i]] = got
	}
	return out, nil
}
