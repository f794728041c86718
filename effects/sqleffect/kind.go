package sqleffect

import (
	"fmt"
	"slices"
	"strings"

	"maps"

	"edda/effects"
	"edda/effects/dial"
	"edda/manifests"
)

// Kind is what effects.Compile needs to know of sql.
func Kind() effects.Kind {
	return effects.Kind{Check: check, Escape: map[string]func(before, value string) string{"dsn": escape}, OK: "status == 200", Once: true}
}

func fieldNames() []string {
	return []string{"driver", "dsn", "tls", "exec", "query", "args", "max_rows", "readonly", "isolation"}
}

// check tells what is wrong with a sql: map before anything runs.
func check(m *manifests.Effect) manifests.Problems {
	c := &checker{m: m}
	for _, f := range m.Config.Fields {
		c.field(f)
	}
	c.together()
	c.asking()
	return c.problems
}

type checker struct {
	m        *manifests.Effect
	problems manifests.Problems
}

func (c *checker) errorf(pos manifests.Pos, format string, args ...any) {
	c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
}

// together looks at fields that need or exclude each other.
func (c *checker) together() {
	config := c.m.Config
	exec, query := config.Field("exec"), config.Field("query")
	switch {
	case exec == nil && query == nil:
		c.errorf(config.Pos, "sql needs exec or query: the statement")
	case exec != nil && query != nil:
		c.errorf(query.Pos, "a command runs one statement, and this has exec and query")
	}
	for _, name := range []string{"max_rows", "readonly"} {
		if v := config.Field(name); v != nil && query == nil {
			c.errorf(v.Pos, "%s is for query", name)
		}
	}
	if config.Field("dsn") == nil {
		c.errorf(config.Pos, "sql needs dsn: the database, as dsn: =secret.NAME")
		return
	}
	c.dsn(config.Field("dsn"))
}

// asking looks at the statement of a check.
func (c *checker) asking() {
	if c.m.Config != c.m.Check.Field("sql") {
		return
	}
	if exec := c.m.Config.Field("exec"); exec != nil {
		c.errorf(exec.Pos, onlyReads)
	}
	if v := c.m.Config.Field("readonly"); v != nil && v.Scalar == false {
		c.errorf(v.Pos, onlyReads)
	}
}

func (c *checker) field(f manifests.Field) {
	switch f.Name {
	case "dsn":
	case "driver":
		c.word(f, slices.Sorted(maps.Keys(databases())))
	case "isolation":
		c.word(f, slices.Sorted(maps.Keys(levels())))
	case "exec", "query":
		c.statement(f)
	case "args":
		c.args(f.Value)
	case "max_rows":
		c.maxRows(f.Value)
	case "readonly":
		if _, is := f.Value.Scalar.(bool); !is {
			c.errorf(f.Value.Pos, "readonly is true or false")
		}
	case "tls":
		c.problems = append(c.problems, dial.CheckTLS(c.m.File, f.Value)...)
	default:
		c.errorf(f.Pos, "sql knows no %s; it knows %s", f.Name, strings.Join(fieldNames(), ", "))
	}
}

func (c *checker) word(f manifests.Field, words []string) {
	if s, _ := f.Value.Scalar.(string); !slices.Contains(words, s) {
		c.errorf(f.Value.Pos, "%s is one of %s", f.Name, strings.Join(words, ", "))
	}
}

// statement is one literal text.
func (c *checker) statement(f manifests.Field) {
	v := f.Value
	text, isText := v.Scalar.(string)
	if v.Kind == manifests.Expression || v.Kind == manifests.Template {
		c.errorf(v.Pos, "%s is one literal text, so that no value can become SQL: write a placeholder (? or $1) where the value goes, and the value in args", f.Name)
		return
	}
	if !isText {
		c.errorf(v.Pos, "%s is a statement", f.Name)
		return
	}
	if err := statement(text); err != nil {
		c.errorf(v.Pos, "%s: %s", f.Name, err)
	}
}

func (c *checker) args(v *manifests.Value) {
	if v.Kind != manifests.List && v.Kind != manifests.Expression {
		c.errorf(v.Pos, "args is a list: the values of the placeholders, in their order")
	}
}

func (c *checker) maxRows(v *manifests.Value) {
	if n, isInt := v.Scalar.(int); !isInt || n < 1 || n > maxRows {
		c.errorf(v.Pos, "max_rows is 1 to %d", maxRows)
	}
}
