package manifests

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// tests reads tests:. Nothing in it is an expression.
func (r *reader) tests(n *yaml.Node) []*Test {
	var out []*Test
	seen := map[string]bool{}
	r.items(n, "tests", func(i *yaml.Node) {
		t := &Test{Pos: r.pos(i)}
		if r.fields(i, "a test", r.testKeys(t)) && t.Name == "" && !has(i, "name") {
			r.errorf(i, "the test has no name")
		}
		if seen[t.Name] && t.Name != "" {
			r.errorf(i, "there are two tests named %q", shorten(t.Name))
		}
		seen[t.Name] = true
		out = append(out, t)
	})
	return out
}

func (r *reader) testKeys(t *Test) keys {
	return keys{
		"name":  func(n *yaml.Node) { t.Name = r.text(n, "name") },
		"steps": func(n *yaml.Node) { r.items(n, "steps", func(i *yaml.Node) { t.Steps = append(t.Steps, r.step(i)) }) },
		"end":   func(n *yaml.Node) { t.End = r.end(n) },
	}
}

func (r *reader) end(n *yaml.Node) *Value {
	known := keys{}
	for key := range r.Defs["test"].Properties["end"].object().Properties {
		known[key] = func(*yaml.Node) {}
	}
	r.fields(n, "end", known)
	v := r.literal(n)
	if isNull(n) {
		v.Kind = Map
	}
	return v
}

func (r *reader) step(n *yaml.Node) *TestStep {
	s := &TestStep{Pos: r.pos(n)}
	if n.Kind != yaml.MappingNode {
		r.fields(n, "a step of a test", nil)
		return s
	}
	if s.Input = r.input(n); s.Input == "" {
		return s
	}
	known := keys{
		"id":   func(n *yaml.Node) { s.ID = r.text(n, "id") },
		"key":  func(n *yaml.Node) { s.Key = r.text(n, "key") },
		"data": func(n *yaml.Node) { s.Data = r.data(n) },
		"expect": func(n *yaml.Node) {
			s.HasExpect, s.Expect, s.ExpectPos = true, []Expect{}, r.pos(n) // an empty list expects no output
			r.items(n, "expect", func(i *yaml.Node) { s.Expect = append(s.Expect, r.expect(i)) })
		},
		"by":             func(n *yaml.Node) { s.By = r.text(n, "by") },
		"with":           func(n *yaml.Node) { s.With = r.text(n, "with") },
		"aggregate_type": func(n *yaml.Node) { s.AggregateType = r.text(n, "aggregate_type") },
		"aggregate_id":   func(n *yaml.Node) { s.AggregateID = r.text(n, "aggregate_id") },
		"version":        func(n *yaml.Node) { s.Version = r.positive(n, "version") },
		"correlation_id": func(n *yaml.Node) { s.Correlation = r.text(n, "correlation_id") },
		"tenant":         func(n *yaml.Node) { s.Tenant = r.text(n, "tenant") },
		s.Input:          func(n *yaml.Node) { r.inputName(s, n) },
	}
	r.fields(n, "a step of a test", r.Defs["test_step"].with(s.Input).known(known))
	if s.Input == "event" && s.Version == 0 && strings.Count(s.Name, ".") < 2 {
		s.Version = 1 // a name with two dots or more may say it itself
	}
	if s.Input == "answer" && !has(n, "with") {
		r.errorf(n, "an answer needs with: the choice")
	}
	return s
}

// input returns the first key that is an input word.
func (r *reader) input(n *yaml.Node) string {
	for i := 0; i < len(n.Content); i += 2 {
		if k := deref(n.Content[i]); slices.Contains(r.inputs, k.Value) {
			return k.Value
		}
	}
	if len(n.Content) > 0 {
		if near := Nearest(n.Content[0].Value, r.inputs); near != "" {
			r.errorf(n, "there is no input %q; did you mean %q?", shorten(n.Content[0].Value), near)
			return ""
		}
	}
	r.errorf(n, "a step of a test is one input: %s", oneOf(r.inputs))
	return ""
}

// inputName reads the value of the input word.
func (r *reader) inputName(s *TestStep, n *yaml.Node) {
	switch s.Input {
	case "advance":
		s.D = r.duration(n, "advance", true).D
	case "operator":
		r.verb(s, n)
	case "event":
		s.Name = r.text(n, "event")
		if kind, name, typed := strings.Cut(s.Name, "."); typed && !strings.Contains(name, ".") {
			s.AggregateType, s.Name = kind, name
		}
	default:
		s.Name = r.text(n, s.Input)
	}
}

// verb reads cancel, terminate, retry STEP, skip STEP and the engine's other verbs.
func (r *reader) verb(s *TestStep, n *yaml.Node) {
	words := strings.Fields(r.text(n, "operator"))
	if len(words) > 0 {
		s.Name = words[0]
	}
	if len(words) > 1 {
		s.Step = words[1]
	}
	bare := slices.Contains([]string{"cancel", "terminate", "redrive", "drop"}, s.Name)
	stepped := slices.Contains([]string{"retry", "skip", "resolve"}, s.Name)
	if len(words) > 2 || bare && s.Step != "" || stepped && s.Step == "" || !bare && !stepped {
		r.errorf(n, "operator is cancel, terminate, retry STEP, skip STEP, resolve STEP, redrive or drop, not %s", describe(n))
	}
}

func (r *reader) expect(n *yaml.Node) Expect {
	e := Expect{Pos: r.pos(n), Fields: map[string]any{}}
	r.entries(n, "an entry of expect", func(k, v *yaml.Node) {
		if e.Word == "" && slices.Contains(r.outputs, k.Value) {
			e.Word = k.Value
		} else if known := r.Defs["expect"].Properties; e.Word != "" && (known[k.Value] == nil || slices.Contains(r.outputs, k.Value)) {
			r.unknown(k, "an entry of expect", slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(key string) bool { return slices.Contains(r.outputs, key) }))
		}
		value := r.literal(v)
		e.Fields[k.Value], _ = value.Const()
		e.Order, e.Values = append(e.Order, k.Value), append(e.Values, value)
	})
	if e.Word != "" || n.Kind != yaml.MappingNode {
		return e
	}
	for _, f := range e.Order {
		if near := Nearest(f, r.outputs); near != "" {
			r.errorf(n, "there is no output %q; did you mean %q?", shorten(f), near)
			return e
		}
	}
	r.errorf(n, "an entry of expect names an output: %s", oneOf(r.outputs))
	return e
}
