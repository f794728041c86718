package effects

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"edda"
	"edda/expression"
	"edda/manifests"
)

// maxAsks bounds how often a command's check is asked in one run. After that the outcome is
// unknown.
const maxAsks = 5

// check is the compiled check of an effect, which asks the other side about an earlier call.
type check struct {
	provider        string
	config          *value
	ok, again, fail *expression.Program
	result          *value // nil: the effect's own
}

// check compiles a check. The parser has read its fields.
func (c *compiler) check(v *manifests.Value, kinds map[string]ProviderKind) *check {
	if v == nil {
		return nil
	}
	out := &check{provider: c.checkProvider(v)}
	kind, known := kinds[out.provider]
	if out.provider != "" && !known {
		c.errorf(v.Pos, fmt.Sprintf("check asks over %s, which is not built in; this version calls %s", out.provider, words(kinds)))
	}
	config := v.Field(out.provider)
	c.inspect(kind, config, true)
	out.config = c.config(config, kind)
	out.ok, out.again, out.fail = c.outcome(v, "ok"), c.outcome(v, "again"), c.outcome(v, "fail")
	out.result = c.value(v.Field("result"), namesAfter())
	return out
}

// checkProvider returns the provider that a check names.
func (c *compiler) checkProvider(v *manifests.Value) string {
	found := ""
	for _, f := range v.Fields {
		switch f.Name {
		case "ok", "again", "fail", "result":
			continue
		}
		if found != "" {
			c.errorf(f.Pos, "check asks in one way, and this has "+found+" and "+f.Name)
		}
		found = f.Name
	}
	if found == "" {
		c.errorf(v.Pos, "check says nowhere how to ask: give it http, grpc, sql or nats")
	}
	return found
}

// outcome compiles one of check's conditions, which is false by default.
func (c *compiler) outcome(v *manifests.Value, word string) *expression.Program {
	f := v.Field(word)
	if f == nil {
		return c.condition(nil, "false")
	}
	return c.condition(f.Expr, "false")
}

// ask asks about an earlier call. call is true if it surely had no effect, so that the command may
// be called.
func (j *job) ask() (a answer, call bool) {
	j.asked++
	ctx, cancel := context.WithTimeout(j.lease.ctx, j.e.timeout)
	defer cancel()
	resp, err := j.w.safely(ctx, j.e.check.provider, *j.check)
	if err != nil {
		a = j.undecided(err)
		a.cut = j.lease.ctx.Err() != nil
	} else {
		a, call = j.decided(resp)
	}
	j.unknown = a.unknown
	j.w.metrics.check(j.e.Name(), a, call)
	return a, call
}

// decided reads the check's answer.
func (j *job) decided(resp Response) (a answer, call bool) {
	c, env := j.e.check, expression.Env{Vars: j.e.after(j.vars, resp)}
	said := func(p *expression.Program, err error) (bool, error) {
		if err != nil {
			return false, err
		}
		return p.True(env)
	}
	ok, err := said(c.ok, nil)
	if ok && err == nil {
		return j.e.success(cmp.Or(c.result, j.e.result), resp, env.Vars), false
	}
	fail, err := said(c.fail, err)
	again, err := said(c.again, err)
	switch {
	case err != nil:
		return j.undecided(err), false
	case fail:
		return answer{outcome: outcome{kind: edda.Failed, failure: describe(resp), definite: true}}, false
	case again:
		return answer{}, true
	}
	a = j.undecided(errors.New(describe(resp).Message))
	a.after, a.ill = resp.After, resp.Retry
	return a, false
}

// undecided is the outcome of a check that could not tell.
func (j *job) undecided(why error) answer {
	a := answer{unknown: true, ill: true, outcome: timedOut("unknown", "a call was begun, what came of it is not known, and the check does not tell: "+why.Error())}
	var c *edda.Classified
	if errors.As(why, &c) {
		a.after = c.After
	}
	return a
}

// after adds an answer to the variables of expressions, in place of that of an earlier call.
func (e *Effect) after(vars map[string]any, r Response) map[string]any {
	vars["status"], vars["body"] = r.Status, r.Body
	if e.names["headers"] {
		headers := make(map[string]any, len(r.Headers))
		for name, v := range r.Headers {
			headers[name] = v
		}
		vars["headers"] = headers
	}
	return vars
}
