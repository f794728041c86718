package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"edda/expression"
	"edda/manifests"
)

// Checker checks one map and collects its problems.
type Checker struct {
	File     *manifests.File
	Asks     bool // the map is how an effect's check asks
	Problems manifests.Problems
}

// Errorf reports an error.
func (c *Checker) Errorf(pos manifests.Pos, format string, args ...any) {
	c.Problems = append(c.Problems, manifests.Problem{File: c.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
}

// Warnf reports a warning.
func (c *Checker) Warnf(pos manifests.Pos, format string, args ...any) {
	c.Problems = append(c.Problems, manifests.Problem{File: c.File, Pos: pos, Warning: true, Message: fmt.Sprintf(format, args...)})
}

// Map checks a map against its description.
func (c *Checker) Map(s *Fields, m *manifests.Value) {
	for _, f := range m.Fields {
		if d, known := s.find(f.Name); known {
			d.Name = s.Path + d.Name
			c.Field(d, f)
		} else {
			c.unknown(s, f)
		}
	}
	for _, d := range s.Fields {
		if d.Needed != "" && m.Field(d.Name) == nil {
			c.Errorf(m.Pos, "%s needs %s: %s", s.Name, d.Name, d.Needed)
		}
	}
	if s.Check != nil {
		s.Check(c, m)
	}
}

func (c *Checker) unknown(s *Fields, f manifests.Field) {
	if near := manifests.Nearest(f.Name, s.Names()); near != "" {
		c.Errorf(f.Pos, "%s knows no %s; did you mean %s?", s.Name, f.Name, near)
		return
	}
	c.Errorf(f.Pos, "%s knows no %s; it knows %s", s.Name, f.Name, strings.Join(s.Names(), ", "))
}

// Field checks one field, or an item of a list under the list's name.
func (c *Checker) Field(d Field, f manifests.Field) {
	v := f.Value
	if d.Trusted != "" && Uses(v, "payload") {
		c.Errorf(v.Pos, "%s may not come from the payload, which would choose %s", d.Name, d.Trusted)
	}
	if !d.fits(v) {
		c.Errorf(v.Pos, "%s is %s", d.Name, cmp.Or(d.Says, d.says()))
		return
	}
	if known, literal := v.Const(); literal && d.Read != nil {
		if err := d.Read(known); err != nil {
			c.Errorf(v.Pos, "%v", err)
		}
	} else if d.Of != nil && v.Kind == manifests.Map {
		c.Map(d.Of, v)
	}
	if d.Items != nil {
		for _, item := range v.Items {
			c.Field(*d.Items, manifests.Field{Name: f.Name, Pos: item.Pos, Value: item})
		}
	}
	if d.Check != nil {
		d.Check(c, f)
	}
}

// fits reports whether a value can have the field's type.
func (d *Field) fits(v *manifests.Value) bool {
	switch v.Kind {
	case manifests.Expression:
		return !d.Literal
	case manifests.Template:
		return !d.Literal && (d.Type == Any || d.Type == Text)
	}
	switch d.Type {
	case Text:
		s, _ := v.Scalar.(string)
		return s != "" && (d.Words == nil || slices.Contains(d.Words, s))
	case Bool:
		_, is := v.Scalar.(bool)
		return is
	case Whole:
		n, is := v.Scalar.(int)
		return is && n >= d.Min && n <= d.Max
	case Map:
		return v.Kind == manifests.Map
	case List:
		return v.Kind == manifests.List
	}
	return true
}

// says describes a field that does not describe itself.
func (d *Field) says() string {
	switch {
	case d.Words != nil:
		return "written out as one of " + strings.Join(d.Words, ", ")
	case d.Of != nil:
		return "a map of " + strings.Join(d.Of.Names(), ", ")
	}
	return map[Type]string{
		Text: "a text, and not empty", Bool: "true or false", List: "a list",
		Map: "a map of names and values, or an expression that gives one", Whole: fmt.Sprintf("%d to %d", d.Min, d.Max),
	}[d.Type]
}

// Uses reports whether an expression in a value uses a variable.
func Uses(v *manifests.Value, name string) (found bool) {
	Variables(v, func(_ *manifests.Expr, used string) { found = found || used == name })
	return found
}

// Variables visits each variable of each expression in a value. It leaves out expressions that do
// not compile: the compiler of the effect reports them.
func Variables(v *manifests.Value, visit func(e *manifests.Expr, name string)) {
	v.Exprs(func(e *manifests.Expr) {
		p, errs := expression.Compile(e.Source, expression.Options{Names: []string{"payload", "id", "tenant", "secret"}})
		if len(errs) > 0 {
			return
		}
		for _, name := range p.Names() {
			visit(e, name)
		}
	})
}
