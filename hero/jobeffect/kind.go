package jobeffect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"edda/effects"
	"edda/expression"
	"edda/manifests"
)

// timeout of an effect that has none: a script may take its time, and waits for a
// runner first.
const timeout = 10 * time.Minute

// Kind is what effects.Compile needs to know of job.
func Kind() effects.Kind {
	return effects.Kind{Check: check, OK: "status == 0", Timeout: timeout, Once: true}
}

func fieldNames() []string {
	return []string{"context", "caller", "type", "script", "file", "env", "timeout", "queue_timeout", "retries", "supervisor"}
}

// check tells what is wrong with a job: map before anything runs.
func check(m *manifests.Effect) manifests.Problems {
	c := checker{m: m}
	if m.Config == m.Check.Field("job") {
		c.errorf(m.Config.Pos, "a job needs no check: its result is found again by itself")
		return c.problems
	}
	for _, f := range m.Config.Fields {
		c.field(f)
	}
	for _, name := range []string{"context", "caller"} {
		if m.Config.Field(name) == nil {
			c.errorf(m.Config.Pos, "job needs %s: the number of the %s", name, map[string]string{"context": "context it runs in", "caller": "actor who asks for it"}[name])
		}
	}
	if (m.Config.Field("script") == nil) == (m.Config.Field("file") == nil) {
		c.errorf(m.Config.Pos, "job needs one of script, the text, and file, where it is")
	}
	return c.problems
}

type checker struct {
	m        *manifests.Effect
	problems manifests.Problems
}

func (c *checker) errorf(pos manifests.Pos, format string, args ...any) {
	c.problems = append(c.problems, manifests.Problem{File: c.m.File, Pos: pos, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) field(f manifests.Field) {
	literal, isLiteral := f.Value.Const()
	switch f.Name {
	case "context", "caller":
		if _, err := number(f.Name, literal); isLiteral && err != nil {
			c.errorf(f.Value.Pos, "%v", err)
		}
	case "retries":
		if _, err := retries(literal); isLiteral && err != nil {
			c.errorf(f.Value.Pos, "%v", err)
		}
	case "timeout", "queue_timeout":
		if _, err := seconds(f.Name, literal); isLiteral && err != nil {
			c.errorf(f.Value.Pos, "%v", err)
		}
	case "type":
		if _, err := scriptType(literal); isLiteral && err != nil {
			c.errorf(f.Value.Pos, "%v", err)
		}
	case "script", "file":
		c.code(f)
	case "supervisor":
		if c.refers(f.Value, "payload") {
			c.errorf(f.Value.Pos, "supervisor may not come from the payload, which would choose who is shown the job")
		}
	case "env":
		if f.Value.Kind != manifests.Map && f.Value.Kind != manifests.Expression {
			c.errorf(f.Value.Pos, "env is a map of names and values")
		}
	default:
		c.unknown(f)
	}
}

// code is written in the manifest or its file: what comes with a payload is data.
func (c *checker) code(f manifests.Field) {
	literal, isLiteral := f.Value.Const()
	text, isText := literal.(string)
	switch {
	case isLiteral && (!isText || text == ""):
		c.errorf(f.Value.Pos, "%s is a text, and not empty", f.Name)
	case isLiteral:
	case f.Value.Kind == manifests.Template:
		c.errorf(f.Value.Pos, "a value within a %s would be run as code: give it by env, and read it there", f.Name)
	case f.Name == "file" && c.refers(f.Value, "payload"):
		c.errorf(f.Value.Pos, "file may not come from the payload")
	}
}

func (c *checker) unknown(f manifests.Field) {
	if near := manifests.Nearest(f.Name, fieldNames()); near != "" {
		c.errorf(f.Pos, "job knows no %s; did you mean %s?", f.Name, near)
		return
	}
	c.errorf(f.Pos, "job knows no %s; it knows %s", f.Name, strings.Join(fieldNames(), ", "))
}

// refers tells whether a value uses a variable.
func (c *checker) refers(v *manifests.Value, name string) (found bool) {
	v.Exprs(func(e *manifests.Expr) {
		p, errs := expression.Compile(e.Source, expression.Options{Names: []string{"payload", "id", "tenant", "secret"}})
		if len(errs) == 0 && slices.Contains(p.Names(), name) { // other errors are told where it is compiled
			found = true
		}
	})
	return found
}
