package sqleffect

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"edda/effects"
	"edda/effects/dial"
	"edda/effects/spec"
	"edda/manifests"
)

// Kind describes sql to the compiler of effects.
func Kind() effects.ProviderKind {
	return effects.ProviderKind{Spec: fields(), Escape: map[string]func(before, value string) string{"dsn": escape}, OK: "status == 200", Once: true}
}

// fields describes a sql: map.
func fields() *spec.Fields {
	isolations := slices.Sorted(maps.Keys(levels()))
	return &spec.Fields{Name: "sql", Check: checkTogether, Fields: []spec.Field{
		{Name: "driver", Type: spec.Text, Literal: true, Words: slices.Sorted(maps.Keys(databases())), Says: "one of " + driverWords()},
		{Name: "dsn", Needed: "the database, as dsn: =secret.NAME"},
		dial.TLSField(),
		{Name: "exec", Code: true, Check: checkStatement},
		{Name: "query", Code: true, Check: checkStatement},
		{Name: "args", Type: spec.List, Says: "a list: the values of the placeholders, in their order"},
		{Name: "max_rows", Type: spec.Whole, Literal: true, Min: 1, Max: maxRows},
		{Name: "readonly", Type: spec.Bool, Literal: true},
		{Name: "isolation", Type: spec.Text, Literal: true, Words: isolations, Says: "one of " + strings.Join(isolations, ", ")},
	}}
}

// checkStatement accepts one literal statement.
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

// checkTogether checks fields that need or exclude each other, and what a check may run.
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

// checkDSN checks the known part of a DSN, and which variables it uses.
func checkDSN(c *spec.Checker, v *manifests.Value, driver string) {
	switch v.Kind {
	case manifests.Literal:
		text, _ := v.Scalar.(string)
		if checkPassword(c, v.Pos, text) {
			return
		}
		s, err := sourceOf(map[string]any{"dsn": text, "driver": driver}, false)
		if err == nil {
			_, err = s.database.connector(s, nil, nil)
		}
		if err != nil {
			c.Errorf(v.Pos, "%s", err)
		}
	case manifests.Expression:
		checkNames(c, v, "secret")
		checkPassword(c, v.Pos, v.Expr.Source)
	case manifests.Template:
		checkNames(c, v, "secret", "tenant")
		text := v.Filled(hole)
		if !strings.HasPrefix(text, hole) && driverOf(text) == "" {
			c.Errorf(v.Pos, "a dsn that is put together is written as a URL, postgres://, mysql:// or sqlite:, so that each part is escaped")
		}
		checkPassword(c, v.Pos, text)
	default:
		c.Errorf(v.Pos, "dsn is a text, as dsn: =secret.NAME")
	}
}

// hole stands for an expression in the text of a template.
const hole = "\x00"

// checkNames refuses variables that are not listed: who chooses the database chooses where secrets
// go.
func checkNames(c *spec.Checker, v *manifests.Value, names ...string) {
	spec.Variables(v, func(e *manifests.Expr, name string) {
		if !slices.Contains(names, name) {
			c.Errorf(e.Pos, "dsn may use only %s, not %s: who sends a command does not choose the database; "+
				"a template such as \"postgres://app:${secret.PW}@db/shop_${tenant}\" may use tenant, too", strings.Join(names, " and "), name)
		}
	})
}

// passwords find the password in each form of a DSN.
var passwords = []*regexp.Regexp{
	regexp.MustCompile(`://[^:/@]*:(.*)@`),                             // of a URL
	regexp.MustCompile(`(?i)[?&](?:password|passwd)=([^&]*)`),          // in its query
	regexp.MustCompile(`(?i)(?:^|[\s"'])password\s*=\s*('[^']*'|\S+)`), // keywords and values
	regexp.MustCompile(`^"?[^:/@\s]*:([^@]*)@(?:tcp|unix|\w*\(|/)`),    // MySQL's own form
}

// checkPassword refuses a literal password, and reports whether there is one.
func checkPassword(c *spec.Checker, pos manifests.Pos, text string) bool {
	for _, p := range passwords {
		m := p.FindStringSubmatch(text)
		if m == nil || m[1] == "" || m[1] == "''" || strings.Contains(m[1], hole) || strings.Contains(m[1], "secret.") {
			continue
		}
		c.Errorf(pos, "a password is a secret: write dsn: =secret.NAME, or ${secret.NAME} in its place")
		return true
	}
	return false
}

// plain values need no escape.
var plain = regexp.MustCompile(`^[A-Za-z0-9_-]*$`)

// escape writes a value into the template of a DSN, so that it cannot leave its place. A value at
// the beginning is the base of the DSN and stays as it is. A host may include its port.
func escape(before, value string) string {
	if before == "" || plain.MatchString(value) {
		return value
	}
	escaped := strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	if value == "." || value == ".." {
		return strings.ReplaceAll(value, ".", "%2E")
	}
	_, rest, isURL := strings.Cut(before, "://")
	if isURL && (rest == "" || strings.HasSuffix(rest, "@")) && !strings.ContainsAny(rest, "/?") {
		return strings.ReplaceAll(escaped, "%3A", ":")
	}
	return escaped
}
