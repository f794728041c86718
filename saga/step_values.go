package saga

import (
	"cmp"
	"encoding/json"
	"slices"

	"edda"
	"edda/expression"
	"edda/internal/jsonvalue"
)

// stepValues builds step.<id> for the ids that an expression refers to, or for all of them if it
// computes the id.
func (v view) stepValues(p *expression.Program) (any, error) {
	wanted := stepIDs(p)
	out := map[string]any{}
	for i := range v.steps {
		s := &v.steps[i]
		if wanted != nil && !wanted[s.ID] {
			continue
		}
		value := map[string]any{"status": string(s.Status), "attempt": s.Attempt}
		if err := decodeInto(value, map[string]json.RawMessage{"result": s.Result, "error": s.Error, "input": s.Input}); err != nil {
			return nil, err
		}
		out[s.ID] = value
	}
	for _, g := range v.groups {
		if wanted != nil && !wanted[g.ID] {
			continue
		}
		value, err := v.groupValue(g)
		if err != nil {
			return nil, err
		}
		out[g.ID] = value
	}
	return out, nil
}

// stepIDs lists the steps that an expression names; nil means any.
func stepIDs(p *expression.Program) map[string]bool {
	if p == nil {
		return nil
	}
	out := map[string]bool{}
	for _, ref := range p.Refs() {
		if ref[0] != "step" {
			continue
		}
		if len(ref) == 1 {
			return nil
		}
		out[ref[1]] = true
	}
	return out
}

func decodeInto(out map[string]any, fields map[string]json.RawMessage) error {
	for name, raw := range fields {
		v, err := jsonvalue.Decode(raw)
		if err != nil {
			return err
		}
		out[name] = v
	}
	return nil
}

// groupValue counts the members of one round. results has those of the ok members and errors those
// of the other settled ones, both in item order.
func (v view) groupValue(g edda.EachRound) (any, error) {
	ok, failed, pending := 0, 0, 0
	results, errs := []any{}, []any{}
	for _, s := range v.members(g.ID) {
		switch s.Status {
		case edda.StepPending:
			pending++
		case edda.StepOK, edda.StepUndone:
			ok++
			result, err := jsonvalue.Decode(s.Result)
			if err != nil {
				return nil, err
			}
			results = append(results, result)
		default:
			failed++
			e := map[string]any{"index": s.Index}
			if err := decodeInto(e, map[string]json.RawMessage{"item": s.Item, "error": s.Error}); err != nil {
				return nil, err
			}
			errs = append(errs, e)
		}
	}
	return map[string]any{
		"total": g.Total, "ok": ok, "failed": failed, "pending": pending,
		"results": results, "errors": errs,
	}, nil
}

// members lists a group's steps in item order.
func (v view) members(group string) []edda.Step {
	var out []edda.Step
	for _, s := range v.steps {
		if s.Group == group {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b edda.Step) int { return cmp.Compare(a.Index, b.Index) })
	return out
}
