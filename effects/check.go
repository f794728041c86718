package effects

import (
	"context"
	"errors"
	"fmt"

	"edda"
	"edda/expression"
	"edda/manifests"
)

// maxAsks bounds how often one command's check is asked in one run before the
// saga is told that nobody knows.
const maxAsks = 5

// check is how the other side is asked what came of a call.
type check struct {
	provider        string
	config          *value
	ok, again, fail *expression.Program
	result          *value // nil: the effect's own
}

// check compiles a check: whose fields the parser has read.
func (c *compiler) check(v *manifests.Value, kinds map[string]Kind) *check {
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

// checkProvider is the one provider that a check names.
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
		c.errorf(v.Pos, "check says nowhere how to ask: give it http, grpc or sql")
	}
	return found
}

// outcome compiles one of check's conditions; what is unsaid is never true.
func (c *compiler) outcome(v *manifests.Value, word string) *expression.Program {
	f := v.Field(word)
	if f == nil {
		return c.condition(nil, "false")
	}
	return c.condition(f.Expr, "false")
}

// ask asks what came of an earlier call. call is true when it surely did not
// happen, so that it may be made.
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
		return j.e.success(c.resultOr(j.e.result), resp, env.Vars), false
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

func (c *check) resultOr(unsaid *value) *value {
	if c.result != nil {
		return c.result
	}
	return unsaid
}

// undecided is what a saga hears when the check could not tell.
func (j *job) undecided(why error) answer {
	a := answer{unknown: true, ill: true, outcome: timedOut("unknown", "a call was begun, what came of it is not known, and the check does not tell: "+why.Error())}
	var c *edda.Classified
	if errors.As(why, &c) {
		a.after = c.After
	}
	return a
}

// after is what expressions see after a call: what they saw before, to which the
// answer is added, in place of that to an earlier one.
func (e *Effect) after(vars map[string]any, r Response) map[string]any {
	vars["status"], vars["body"] = r.Status, r.Body
	if e.names["headers"] {
		vars["headers"] = headers(r.Headers)
	}
	return vars
}
