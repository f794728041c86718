package saga

import (
	"slices"

	"edda/expression"
	"edda/manifests"
)

// unmarked is a literal text that looks like an expression without its = or ${}.
type unmarked struct {
	expression.Unmarked
	in manifests.PlainText
}

func (c *compiler) findUnmarked(v *manifests.Value, names []string) {
	if c.p.o.Kept {
		return // nobody sees the warnings of a stored text
	}
	v.Texts(func(t manifests.PlainText) {
		for _, u := range expression.FindUnmarked(t.Text, t.Part, names) {
			c.unmarked = append(c.unmarked, unmarked{u, t})
		}
	})
}

// checkUnmarked warns of a text that its author probably meant as an expression. A name alone is
// often a word, so it counts only as a whole value, and if nobody would use its variable as a word:
// it is one of loneNames, or a let or an item that no expression reads.
func (c *compiler) checkUnmarked(u unmarked, n names) {
	name := u.Program.Names()[0]
	switch {
	case !c.sensible(u, n):
	case u.Name && (u.in.Item || slices.Contains(proseNames, name)):
	case u.Name && !slices.Contains(loneNames, name) && c.reads(name):
	default:
		c.warnf(u.in.Pos, "%s", u)
	}
}

var (
	// loneNames are variables whose name alone is suspicious.
	loneNames = []string{"event", "id", "input", "key", "now", "result", "state"}
	// proseNames are variables whose name alone is an ordinary word, and whose value is seldom
	// passed on as a whole.
	proseNames = []string{"config", eachIndex, defaultAs, "meta", "saga", "seen", "step"}
	// plainNames are variables without members.
	plainNames = []string{"id", "key", "now", eachIndex}
)

// sensible reports whether the expression would be right in its place: a step.x of no step, or an
// item in a saga without groups, is a text.
func (c *compiler) sensible(u unmarked, n names) bool {
	trial := &compiler{p: c.p}
	trial.checkRefs(use{expr: &manifests.Expr{}, prog: u.Program}, n)
	return !trial.problems.Failed() && !slices.ContainsFunc(u.Program.Refs(), func(ref []string) bool {
		grouped := ref[0] == defaultAs || ref[0] == eachIndex
		return len(ref) > 1 && slices.Contains(plainNames, ref[0]) || grouped && len(n.groups) == 0
	})
}

// reads reports whether any expression of the saga reads a variable.
func (c *compiler) reads(name string) bool {
	return slices.ContainsFunc(c.uses, func(u use) bool { return slices.Contains(u.prog.Names(), name) })
}
