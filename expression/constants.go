package expression

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"edda/internal/calendar"
)

const sampleTime = "2026-01-01T00:00:00.000Z"

// samples returns arguments that the functions of several arguments accept, whatever one of them a
// manifest replaces. It leaves out functions whose arguments must fit each other, such as max(a, b).
func samples() map[string][]any {
	return map[string][]any{
		"trim": {"", ""}, "trimPrefix": {"", ""}, "trimSuffix": {"", ""}, "split": {"", "", 0}, "splitAfter": {"", "", 0},
		"join": {[]any{}, ""}, "replace": {"", "", "", 0}, "repeat": {"", 0}, "indexOf": {"", ""}, "lastIndexOf": {"", ""},
		"hasPrefix": {"", ""}, "hasSuffix": {"", ""}, "take": {[]any{}, 0}, "sort": {[]any{}, "asc"}, "sortBy": {[]any{}, "asc"},
		"addTime": {sampleTime, "0s"}, "addDays": {sampleTime, 0, "UTC"}, "addMonths": {sampleTime, 0, "UTC"},
		"addYears": {sampleTime, 0, "UTC"}, "addBusinessDays": {sampleTime, 0, "UTC", []any{}}, "atTime": {sampleTime, "0:00", "UTC"},
	}
}

// checkConstants reports literal arguments with which a call fails in every evaluation. It makes the
// call: with one literal beside samples for the other arguments, and with all arguments if they are
// literals.
func (l *lowering) checkConstants(f *function, args []ast.Node) {
	if l.kept {
		return
	}
	given, all := make([]any, len(args)), true
	var known []int
	for i, arg := range args {
		v, ok := literalValue(arg)
		if given[i], all = v, all && ok; ok {
			known = append(known, i)
		}
	}
	if sample := samples()[f.name]; sample != nil {
		for _, i := range known {
			trial := append([]any{}, sample[:len(args)]...)
			trial[i] = given[i]
			if l.fails(f, trial, args[i], given[i]) {
				return
			}
		}
	}
	if all {
		l.fails(f, given, args[0], given[0])
	}
}

// fails makes a call, and reports its fault at the argument to blame.
func (l *lowering) fails(f *function, args []any, at ast.Node, blamed any) bool {
	message := attempt(f, args)
	if message == "" {
		return false
	}
	if !strings.HasPrefix(message, f.name) {
		message = f.name + ": " + message
	}
	if text, ok := blamed.(string); ok && !strings.Contains(message, strings.TrimSuffix(fmt.Sprintf("%.20q", text), `"`)) {
		message += fmt.Sprintf(", and not like %.40q", text)
	}
	l.fail(at, "%s", message)
	return true
}

// attempt returns the message of a call's fault, or empty.
func attempt(f *function, args []any) (message string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *fault:
			message = r.message
		default: // as the VM reports it at run time
			message = fmt.Sprintf("%s: %v", f.name, r)
		}
	}()
	m := newMachine()
	m.begin(Env{Source: anyID{}})
	m.call(append([]any{f}, args...)...)
	return ""
}

// anyID is the source of a call without an event.
type anyID struct{}

func (anyID) Lazy(string) (any, error) { return nil, nil }

func (anyID) UUID(name string) (string, bool) { return name, true }

// literalValue returns the value of a literal, or of one with a sign.
func literalValue(n ast.Node) (any, bool) {
	switch n := n.(type) {
	case *ast.NilNode:
		return nil, true
	case *ast.BoolNode:
		return n.Value, true
	case *ast.IntegerNode:
		return n.Value, true
	case *ast.FloatNode:
		v, err := normal(n.Value)
		return v, err == nil
	case *ast.StringNode:
		return n.Value, true
	case *ast.UnaryNode:
		if i, ok := n.Node.(*ast.IntegerNode); ok && n.Operator == "-" {
			return -i.Value, true
		}
	}
	return nil, false
}

// checkNumber reports the comparison of a number with a literal text, which is never equal to it.
func (l *lowering) checkNumber(n *ast.BinaryNode) {
	if !slices.Contains([]string{"==", "!=", "<", "<=", ">", ">=", "in"}, n.Operator) {
		return
	}
	for _, pair := range [][2]ast.Node{{n.Left, n.Right}, {n.Right, n.Left}} {
		name, ok := pair[0].(*ast.IdentifierNode)
		if !ok || !slices.Contains(l.numbers, name.Value) {
			continue
		}
		others := []ast.Node{pair[1]}
		if list, ok := pair[1].(*ast.ArrayNode); ok {
			others = list.Nodes
		}
		for _, other := range others {
			if text, ok := other.(*ast.StringNode); ok {
				l.fail(other, "%s is a number, and %q is a text: write the number without quotes, as in %s == 200", name.Value, text.Value, name.Value)
				return
			}
		}
	}
}

// checkTimeSum reports a time with a literal length of time after + or -. A time is a text: + joins
// the two, and - fails.
func (l *lowering) checkTimeSum(n *ast.BinaryNode) {
	length, ok := n.Right.(*ast.StringNode)
	if l.kept || !ok || n.Operator != "+" && n.Operator != "-" || !l.isTime(n.Left) {
		return
	}
	sign, time := "", n.Left.String()
	if n.Operator == "-" {
		sign = "-"
	}
	mend := fmt.Sprintf("addTime(%s, \"%s%s\")", time, sign, length.Value)
	if _, err := ParseDuration(length.Value); err != nil {
		p, ok, _ := calendar.ParsePeriod(length.Value)
		switch {
		case !ok:
			return // a text that is joined
		case p.Months > 0:
			mend = fmt.Sprintf("addMonths(%s, %s%d)", time, sign, p.Months)
		default:
			mend = fmt.Sprintf("addDays(%s, %s%d)", time, sign, p.Days)
		}
	}
	l.fail(n, "a time and a text have no sum or difference: write %s", mend)
}

// isTime reports whether a node has a time in any case.
func (l *lowering) isTime(n ast.Node) bool {
	if call, ok := n.(*ast.CallNode); ok {
		callee, ok := call.Callee.(*ast.IdentifierNode)
		return ok && slices.Contains(timeFunctions, callee.Value)
	}
	base, path := split(n)
	name, ok := base.(*ast.IdentifierNode)
	if !ok || slices.ContainsFunc(l.locals, func(own local) bool { return own.name == name.Value }) {
		return false
	}
	return name.Value == "now" && len(path) == 0 || name.Value == "meta" && slices.Equal(path, []string{"time"})
}

// timeFunctions return a time. Read only.
var timeFunctions = []string{"addBusinessDays", "addDays", "addMonths", "addTime", "addYears", "atTime", "date"}
