package saga

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"edda"
	"edda/expression"
	"edda/internal/jsonvalue"
	"edda/manifests"
)

// Surroundings are the values that an expression sees outside a transition, for people who try one.
type Surroundings struct {
	Instance *edda.Instance             // may be nil
	Event    edda.Event                 // the trigger; may be empty
	Saga     *manifests.Saga            // for config; may be nil
	Vars     map[string]json.RawMessage // further names, such as those of a let; they come first
}

// Names are the variables in scope, with what each is.
func (s *Surroundings) Names() [][2]string {
	out := [][2]string{
		{"config", "the constants of the saga"}, {"event", "the payload of the trigger"}, {"key", "the instance's key"},
		{"meta", "the trigger: id, type, time, aggregate, …"}, {"now", "the time of the trigger"},
		{"saga", "name, status, reason, gen and version of the instance"}, {"seen", "events of an A & B that were seen"},
		{"state", "the instance's state"}, {"step", "the instance's steps and groups"},
	}
	for _, name := range sortedKeys(s.Vars) {
		out = slices.DeleteFunc(out, func(known [2]string) bool { return known[0] == name })
		out = append(out, [2]string{name, "given"})
	}
	return out
}

// Functions are the names of the functions that expressions may call.
func Functions() []string { return expression.Functions() }

// Evaluate evaluates an expression, with or without its =, and returns its value as JSON. The
// problems have positions in the source, for their caret.
func (s *Surroundings) Evaluate(source string) (json.RawMessage, manifests.Problems) {
	text := source
	if trimmed := strings.TrimLeft(source, " \t\n"); strings.HasPrefix(trimmed, "=") && !strings.HasPrefix(trimmed, "==") {
		at := len(source) - len(trimmed)
		text = source[:at] + " " + source[at+1:] // so that columns stay
	}
	var names []string
	for _, n := range s.Names() {
		names = append(names, n[0])
	}
	file := &manifests.File{Name: "expression", Source: []byte(source)}
	p, errs := expression.Compile(text, expression.Options{Names: names})
	var problems manifests.Problems
	for _, e := range errs {
		problems = append(problems, manifests.Problem{File: file, Pos: manifests.Pos{Line: max(e.Line, 1), Column: max(e.Column, 1)}, Message: e.Message})
	}
	if p == nil || len(errs) > 0 {
		return nil, problems
	}
	v, err := p.Eval(expression.Env{Source: &surrounding{s, p}})
	var raw json.RawMessage
	if err == nil {
		raw, err = jsonvalue.Encode(v)
	}
	if err == nil {
		return raw, nil
	}
	pos := manifests.Pos{Line: 1, Column: 1}
	if at := (*expression.Error)(nil); errors.As(err, &at) {
		pos = manifests.Pos{Line: max(at.Line, 1), Column: max(at.Column, 1)}
	}
	return nil, manifests.Problems{{File: file, Pos: pos, Message: err.Error()}}
}

// surrounding is the environment of one expression.
type surrounding struct {
	*Surroundings
	p *expression.Program
}

// UUID derives no ids, because outside a transition there is no cause to derive them from.
func (*surrounding) UUID(string) (string, bool) { return "", false }

// Lazy returns a variable.
func (s *surrounding) Lazy(name string) (any, error) {
	if raw, given := s.Vars[name]; given {
		return decodedAs(name, raw)
	}
	in := s.Instance
	switch name {
	case "event":
		return decodedAs(name, s.Event.Payload)
	case "meta":
		return metaOf(s.Event), nil
	case "now":
		if at := s.Event.Time; !at.IsZero() {
			return edda.FormatTime(at), nil
		}
		return nil, nil
	case "config":
		if s.Saga == nil || s.Saga.Config == nil {
			return nil, nil
		}
		v, _ := s.Saga.Config.Const()
		return v, nil
	}
	if in == nil {
		return nil, nil
	}
	switch name {
	case "state":
		return decodedAs(name, in.State)
	case "step":
		return view{steps: in.Steps, groups: in.Groups}.stepValues(s.p)
	case "key":
		return in.Key.Correlation, nil
	case "saga":
		return map[string]any{"name": in.Key.Saga, "status": string(in.Status), "reason": orNil(in.Reason), "gen": in.Generation, "version": in.Version}, nil
	case "seen":
		r := &run{in: in, budget: expression.NewBudget(expression.MaxSteps)}
		return r.seen()
	}
	return nil, nil
}

func decodedAs(name string, raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v, err := jsonvalue.Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// Value returns a variable as JSON, for a list of them.
func (s *Surroundings) Value(name string) json.RawMessage {
	v, err := (&surrounding{Surroundings: s}).Lazy(name)
	if err != nil {
		return nil
	}
	if fields, ok := v.(map[string]any); ok { // what is null says nothing
		v = maps.Collect(func(yield func(string, any) bool) {
			for key, value := range fields {
				if value != nil && !yield(key, value) {
					return
				}
			}
		})
	}
	raw, err := jsonvalue.Encode(v)
	if err != nil {
		return nil
	}
	return raw
}
