package saga

import (
	"fmt"
	"slices"
	"strings"

	"edda/expression"
	"edda/manifests"
)

// Lint checks what manifests say about each other. Unknown effects and sagas are only warnings,
// because other files may define them.
func Lint(files []*manifests.File) manifests.Problems {
	effects, sagas := map[string]*manifests.Effect{}, map[string]bool{}
	for _, f := range files {
		for _, e := range f.Effects {
			if effects[e.Name.Text] == nil { // the parser reports a second one
				effects[e.Name.Text] = e
			}
		}
		for _, s := range f.Sagas {
			sagas[s.Name.Text] = true
		}
	}
	l := &linter{verbs: newVerbs(), effects: effects, sagas: sagas}
	for _, f := range files {
		for _, s := range f.Sagas {
			l.saga(s)
		}
	}
	return l.problems.Unique()
}

type linter struct {
	verbs    verbs
	effects  map[string]*manifests.Effect
	sagas    map[string]bool
	problems manifests.Problems
}

func (l *linter) saga(m *manifests.Saga) {
	if !m.Partial && l.waitsForNothing(m) {
		l.problems = append(l.problems, manifests.Problem{File: m.File, Pos: m.Pos, Rule: manifests.RuleLife, Message: "this saga can wait for nothing: " +
			"once it has begun nothing can reach it, and no handler ends it; end it with done, or give it a deadline"})
	}
	eachStep(l.verbs, m, func(a *manifests.Action, id string) { l.notification(m, a, id) })
	eachActions(m, func(a *manifests.Action) {
		for ; a != nil; a = a.Undo {
			l.textAsPayload(m, a)
			if v := l.verbs[a.Kind]; v.lint != nil {
				v.lint(l, m, a)
			}
		}
	})
}

// textAsPayload warns of a with that is a literal text, which is valid but hardly ever meant. Others
// warn of a text that looks like an expression.
func (l *linter) textAsPayload(m *manifests.Saga, a *manifests.Action) {
	if a.With == nil || a.With.Kind != manifests.Literal {
		return
	}
	text, ok := a.With.Scalar.(string)
	if !ok || slices.Contains(loneNames, text) || len(expression.FindUnmarked(text, false, slices.Concat(loneNames, proseNames))) > 0 {
		return
	}
	l.problems = append(l.problems, manifests.Problem{File: m.File, Pos: a.With.Pos, Warning: true, Rule: manifests.RuleUnmarked,
		Message: fmt.Sprintf("with is the text %q: fields are {name: value}, and an expression begins with =", text)})
}

func (l *linter) start(m *manifests.Saga, a *manifests.Action) {
	l.defined(m, a.Name, "saga", sortedKeys(l.sagas))
}

func (l *linter) effect(m *manifests.Saga, a *manifests.Action) {
	l.defined(m, a.Name, "effect", sortedKeys(l.effects))
	if e := l.effects[a.Name.Text]; e != nil && a.Version > 0 {
		l.version(m, a, e)
	}
}

// notification warns of a mail whose failure fails the saga.
func (l *linter) notification(m *manifests.Saga, a *manifests.Action, id string) {
	e := l.effects[a.Name.Text]
	if a.Kind != verbEffect || e == nil || e.Provider != "smtp" || a.Optional || a.Must {
		return
	}
	handled := func(outcomes ...string) bool {
		return slices.ContainsFunc(m.Handlers, func(h *manifests.Handler) bool {
			return slices.ContainsFunc(outcomes, func(o string) bool { return h.Trigger.Text == id+"."+o })
		})
	}
	grouped := []string{"all"}
	if id != stepID(a) {
		grouped = append(grouped, "failed") // a group's takes a time-out, too
	}
	if handled(append(grouped, "failed")...) && handled(append(grouped, "timeout")...) {
		return
	}
	l.problems = append(l.problems, manifests.Problem{File: m.File, Pos: a.Pos, Warning: true, Message: fmt.Sprintf(
		"the saga fails if this mail cannot be sent: write optional: true, or handle %s.failed and %s.timeout", id, id)})
}

// version warns of a step whose payload the effect does not know or cannot upcast. Both may be
// intended: workers are upgraded one by one, and older payloads may fit.
func (l *linter) version(m *manifests.Saga, a *manifests.Action, e *manifests.Effect) {
	upcast := slices.ContainsFunc(e.Upcast, func(u manifests.Upcast) bool { return u.From >= a.Version })
	message := ""
	switch {
	case a.Version > e.Version:
		message = fmt.Sprintf("this is written for version %d of effect %q, which is version %d here: its command waits until a worker has the newer one", a.Version, e.Name.Text, e.Version)
	case a.Version < e.Version && !upcast:
		message = fmt.Sprintf("this is written for version %d of effect %q, which is version %d and has no upcast from there: the payload is taken as it is; say upcast: {%d: {}} where that is right", a.Version, e.Name.Text, e.Version, a.Version)
	default:
		return
	}
	l.problems = append(l.problems, manifests.Problem{File: m.File, Pos: a.VersionPos, Warning: true, Rule: manifests.RuleAction, Message: message})
}

func (l *linter) defined(m *manifests.Saga, name manifests.Name, what string, known []string) {
	if slices.Contains(known, name.Text) {
		return
	}
	near := ""
	if n := manifests.Nearest(name.Text, known); n != "" {
		near = "; did you mean \"" + n + "\"?"
	}
	l.problems = append(l.problems, manifests.Problem{
		File: m.File, Pos: name.Pos, Warning: true, Rule: manifests.RuleUndefined,
		Message: what + " \"" + name.Text + "\" is defined in none of these files" + near,
	})
}

// waitsForNothing reports whether an instance can never end: no action or deadline ends it, no
// timer wakes it, and only the handlers that start it listen to events.
func (l *linter) waitsForNothing(m *manifests.Saga) bool {
	waits := m.Deadline == nil && len(m.Handlers) > 0
	for _, h := range m.Handlers {
		waits = waits && h.Start
	}
	m.Walk(manifests.Visitor{
		Action: func(a *manifests.Action) {
			waits = waits && !l.verbs[a.Kind].ends && a.Kind != verbTimer
		},
		Expr: func(e *manifests.Expr) { waits = waits && !strings.Contains(e.Source, "state") },
	})
	return waits
}
