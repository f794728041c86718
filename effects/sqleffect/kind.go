package sqleffect

import (
	"maps"
	"slices"
	"strings"

	"edda/effects"
	"edda/effects/dial"
	"edda/effects/spec"
	"edda/manifests"
)

// Kind is what effects.Compile needs to know of sql.
func Kind() effects.Kind {
	return effects.Kind{Spec: fields(), Escape: map[string]func(before, value string) string{"dsn": escape}, OK: "status == 200", Once: true}
}

// fields describes a sql: map.
func fields() *spec.Fields {
	isolations := slices.Sorted(maps.Keys(levels()))
	return &spec.Fields{Name: "sql", Check: checkTogether, Fields: []spec.Field{
		{Name: "driver", Type: spec.Text, Literal: true, Words: slices.Sorted(maps.Keys(databases())), Says: "one of " + driverWords()},
		{Name: "dsn", Needed: "the database, as dsn: =secret.NAME"},
		dial.TLSField(),
		{Name: "exec", Check: checkStatement},
		{Name: "query", Check: checkStatement},
		{Name: "args", Type: spec.List, Says: "a list: the values of the placeholders, in their order"},
		{Name: "max_rows", Type: spec.Whole, Literal: true, Min: 1, Max: maxRows},
		{Name: "readonly", Type: spec.Bool, Literal: true},
		{Name: "isolation", Type: spec.Text, Literal: true, Words: isolations, Says: "one of " + strings.Join(isolations, ", ")},
	}}
}

// checkStatement refuses what is not one literal statement.
func checkStatement(c *spec.Checker, f manifests.Field) {
	v := f.Value
	text, isText := v.Scalar.(string)
	switch {
	case v.Kind == manifests.Expression || v.Kind == manifests.Template:
		c.Errorf(v.Pos, "%s is one literal text, so that no value can become SQL: write a placeholder (? or $1) where the value goes, and the value in args", f.Name)
	case !isText:
		c.Errorf(v.Pos, "%s is a statement", f.Name)
	default:
		if err := statement(text); err != nil {
			c.Errorf(v.Pos, "%s: %s", f.Name, err)
		}
	}
}

// checkTogether looks at fields that need or exclude each other, and at what a check may run.
func checkTogether(c *spec.Checker, m *manifests.Value) {
	exec, query, readonly := m.Field("exec"), m.Field("query"), m.Field("readonly")
	switch {
	case exec == nil && query == nil:
		c.Errorf(m.Pos, "sql needs exec or query: the statement")
	case exec != nil && query != nil:
		c.Errorf(query.Pos, "a command runs one statement, and this has exec and query")
	}
	for _, name := range []string{"max_rows", "readonly"} {
		if v := m.Field(name); v != nil && query == nil {
			c.Errorf(v.Pos, "%s is for query", name)
		}
	}
	if exec != nil && c.Asks {
		c.Errorf(exec.Pos, onlyReads)
	}
	if readonly != nil && readonly.Scalar == false && c.Asks {
		c.Errorf(readonly.Pos, onlyReads)
	}
	if dsn := m.Field("dsn"); dsn != nil {
		checkDSN(c, dsn, m.Field("driver").Filled(""))
	}
}
