package manifests

import (
	"cmp"
	"slices"
)

// Rule is the stable id of a kind of problem, for tools that count, show or suppress problems. An id
// is never reused or renamed.
type Rule string

// The rules.
const (
	RuleSyntax      Rule = "syntax"
	RuleManifest    Rule = "manifest"
	RuleUnknownKey  Rule = "unknown-key"
	RuleRepeatedKey Rule = "repeated-key"
	RuleName        Rule = "name"
	RuleDuration    Rule = "duration"
	RuleDuplicate   Rule = "duplicate-definition"
	RuleExpression  Rule = "expression"
	RuleUnmarked    Rule = "unmarked-expression"
	RuleTrigger     Rule = "trigger"
	RuleHandler     Rule = "handler"
	RuleAction      Rule = "action"
	RuleReference   Rule = "reference"
	RuleTimer       Rule = "unhandled-timer"
	RuleLife        Rule = "life"
	RuleUndefined   Rule = "undefined"
	RuleEffect      Rule = "effect"
	RuleProcess     Rule = "process"
)

// RuleInfo describes a rule for people.
type RuleInfo struct {
	Rule  Rule
	Title string // what is wrong
	Help  string // what to do
}

// rules lists every rule; read only.
var rules = []RuleInfo{
	{RuleSyntax, "The file is not YAML", "Mend the YAML at the place that is named. An expression with , [ ] { } # or `: ` needs quotes."},
	{RuleManifest, "The document has not the shape of a manifest", "docs/LANGUAGE.md shows the shape of sagas and effects; edda schema makes an editor show it."},
	{RuleUnknownKey, "A map has a key that the language does not know", "Use the key that the message suggests, or one of those that it lists."},
	{RuleRepeatedKey, "A map has a key twice", "Keep one of the two entries."},
	{RuleName, "A name has not the form that its place requires", "The message says which characters the name may have."},
	{RuleDuration, "A duration is invalid", "Write a duration with its unit, such as 90s, 30m, 36h or 1d12h."},
	{RuleDuplicate, "A saga's version or an effect is defined twice", "Keep one definition, or give the saga another version."},
	{RuleExpression, "An expression does not compile", "Mend the expression; edda eval tries one, and edda eval --names lists what is in scope."},
	{RuleUnmarked, "A text looks like an expression without its = or ${}", "Write =event.id for the value, or ='event.id' for the text."},
	{RuleTrigger, "A trigger can never fire", "Name a step, timer, ask or schedule that the saga has."},
	{RuleHandler, "A handler breaks a rule of the language", "The message says which options its trigger takes."},
	{RuleAction, "An action breaks a rule of the language", "The message says what the action needs."},
	{RuleReference, "An expression names something that the saga does not have", "Name a step, an event or a constant of this saga."},
	{RuleTimer, "No handler takes a timer", "Add a handler on: timer.<name>, or remove the timer."},
	{RuleLife, "A saga never starts, never ends, or waits for nothing", "Give a handler start: true, and end with done, fail or a deadline."},
	{RuleUndefined, "An effect or a saga is defined in none of the files", "Define it, mend its name, or lint the files together."},
	{RuleEffect, "The manifest of an effect is invalid", "docs/LANGUAGE.md lists the keys of each provider, with their bounds."},
	{RuleProcess, "A process needs more than the manifests to run them", "Configure what the message names, or read what it says about the start."},
}

// Rules lists every rule.
func Rules() []RuleInfo { return slices.Clone(rules) }

// RuleID is the rule of a problem.
func (p Problem) RuleID() Rule { return cmp.Or(p.Rule, RuleManifest) }

// Named returns the problems with a rule for those that have none.
func (ps Problems) Named(r Rule) Problems {
	out := slices.Clone(ps)
	for i := range out {
		out[i].Rule = cmp.Or(out[i].Rule, r)
	}
	return out
}
