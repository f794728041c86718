package mockeffect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"edda"
	"edda/internal/jsonvalue"
	"edda/manifests"
)

// testAnswers are the results of effects in the tests of some manifests.
type testAnswers struct {
	steps   map[sagaStep]answer // of a step of a saga
	kinds   map[sagaStep]answer // of an effect in a saga
	effects map[string]answer
}

// sagaStep is a step, or an effect, in a saga.
type sagaStep struct{ saga, name string }

// answer is a result and where it is from.
type answer struct {
	result any
	from   string // empty: no test has it
}

// of finds the answer to a call: of its step, else of the effect in its saga, else of the effect
// in any saga.
func (a testAnswers) of(k edda.Key, step, effect string) (result any, from string) {
	got, found := a.steps[sagaStep{k.Saga, step}]
	if !found {
		got, found = a.kinds[sagaStep{k.Saga, effect}]
	}
	if !found {
		got = a.effects[effect]
	}
	return got.result, cmp.Or(got.from, "no test")
}

// learn collects the first result of each step and each effect. A test that ends in done comes
// before others, because its results fit together. A result of a test that gives no data counts
// only where no other test gives any.
func learn(sagas []*manifests.Saga, list []*manifests.Effect) testAnswers {
	a := testAnswers{steps: map[sagaStep]answer{}, kinds: map[sagaStep]answer{}, effects: map[string]answer{}}
	for _, m := range list {
		a.effects[m.Name.Text] = answer{result: made(m.Result)}
	}
	for _, bare := range []bool{false, true} {
		for _, m := range sagas {
			called := effectsOf(m)
			for _, t := range Preferred(m) {
				for _, s := range t.Steps {
					if s.Input == "ok" && (s.Data == nil) == bare {
						a.add(m, t, s, called[withoutIndex(s.Name)])
					}
				}
			}
		}
	}
	return a
}

// add keeps the result of one step of a test, if it is the first.
func (a testAnswers) add(m *manifests.Saga, t *manifests.Test, s *manifests.TestStep, effect string) {
	known, there := a.effects[effect]
	if !there {
		return // a child, a command, or an effect without a manifest
	}
	got := answer{result: s.Data, from: fmt.Sprintf("test %q", t.Name)}
	if s.Data == nil {
		got.result = map[string]any{}
	}
	for _, p := range []struct {
		in map[sagaStep]answer
		at sagaStep
	}{{a.steps, sagaStep{m.Name.Text, s.Name}}, {a.kinds, sagaStep{m.Name.Text, effect}}} {
		if _, kept := p.in[p.at]; !kept {
			p.in[p.at] = got
		}
	}
	if known.from == "" && (s.Data != nil || known.result == nil) {
		a.effects[effect] = got
	}
}

// Preferred lists the tests of a saga, those first that a mock should follow: a test that ends in
// done, then one without failures, then the others, each in the order of the file.
func Preferred(m *manifests.Saga) []*manifests.Test {
	out := slices.Clone(m.Tests)
	slices.SortStableFunc(out, func(a, b *manifests.Test) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

func rank(t *manifests.Test) (out int) {
	for _, s := range t.Steps {
		if slices.Contains([]string{"failed", "timeout", "operator"}, s.Input) {
			out = max(out, 2)
		}
	}
	if !endsDone(t) {
		out++
	}
	return out
}

// endsDone reports whether a test expects done, at its end or as an output.
func endsDone(t *manifests.Test) bool {
	if t.End != nil {
		for _, f := range t.End.Fields {
			if f.Name == "status" && f.Value != nil {
				return f.Value.Scalar == "done"
			}
		}
	}
	return slices.ContainsFunc(t.Steps, func(s *manifests.TestStep) bool {
		return slices.ContainsFunc(s.Expect, func(e manifests.Expect) bool { return e.Word == "end" && e.Fields["end"] == "done" })
	})
}

// effectsOf maps each step of a saga to its effect, also undos and the members of groups, which
// have no index here.
func effectsOf(m *manifests.Saga) map[string]string {
	out := map[string]string{}
	add := func(id string, a *manifests.Action) {
		if a.Kind == "effect" {
			out[id] = a.Name.Text
		}
		if a.Undo != nil && a.Undo.Kind == "effect" {
			out[id+".undo"] = a.Undo.Name.Text
		}
	}
	m.Walk(manifests.Visitor{Action: func(a *manifests.Action) {
		add(idOf(a), a)
		for _, member := range a.Do {
			if a.ID != nil { // the group's id is that of its member
				add(a.ID.Text, member)
			}
		}
	}})
	return out
}

func idOf(a *manifests.Action) string {
	if a.ID != nil {
		return a.ID.Text
	}
	return a.Name.Text
}

// withoutIndex returns g for g[0], and g.undo for g[0].undo.
func withoutIndex(step string) string {
	before, rest, indexed := strings.Cut(step, "[")
	if !indexed {
		return step
	}
	_, after, _ := strings.Cut(rest, "]")
	return before + after
}

// made is the result of an effect that no test answers: the fields of its result, each with a
// literal value of its own or a text.
func made(result *manifests.Value) any {
	out := map[string]any{}
	if result == nil || result.Kind != manifests.Map {
		return out
	}
	for _, f := range result.Fields {
		switch {
		case f.Value == nil:
		case f.Value.Kind == manifests.Literal:
			out[f.Name] = f.Value.Scalar
		case f.Value.Kind == manifests.Map:
			out[f.Name] = made(f.Value)
		case f.Value.Kind == manifests.List:
			out[f.Name] = []any{}
		default:
			out[f.Name] = Word + " " + f.Name
		}
	}
	return out
}

// decoded decodes the result of an order, which was checked when it was given.
func decoded(raw json.RawMessage) any {
	v, err := jsonvalue.Decode(raw)
	if err != nil {
		return nil
	}
	return v
}
