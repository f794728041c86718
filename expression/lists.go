package expression

import (
	"encoding/json"
	"math"
	"math/bits"
	"slices"
	"time"
	"unicode/utf8"

	"edda/internal/jsonvalue"
)

func length(m *machine, args []any) any {
	switch v := args[0].(type) {
	case string:
		m.chargeText(len(v))
		return utf8.RuneCountInString(v)
	case map[string]any:
		return len(v)
	case nil:
		fail("len needs a text, a list or a map, got null: write x ?? [] where it may be missing")
	case []any:
		return len(v)
	}
	fail("len needs a text, a list or a map, got %s", kind(args[0]))
	return nil
}

func first(_ *machine, args []any) any { return end("first", args[0], 0) }
func last(_ *machine, args []any) any  { return end("last", args[0], -1) }

// end is the first or last item; null for an empty list and for null.
func end(name string, v any, i int) any {
	if v == nil {
		return nil
	}
	return item(asList(name, v), i)
}

func take(_ *machine, args []any) any {
	list, n := asList("take", args[0]), integer("take", args[1])
	if n < 0 {
		fail("take: the number of items is negative")
	}
	return list[:min(n, len(list))]
}

func get(m *machine, args []any) any {
	v := m.index(args[0], args[1])
	if v == nil && len(args) == 3 {
		return args[2]
	}
	return v
}

var sliceFunction = &function{name: "slice", run: slice}

// slice is v[from:to], by items or characters; it ignores positions that are out of range.
func slice(m *machine, args []any) any {
	switch v := args[0].(type) {
	case nil:
		return nil
	case []any:
		from, to := bounds(args[1], args[2], len(v))
		return v[from:to]
	case string:
		m.chargeText(len(v))
		from, to := bounds(args[1], args[2], utf8.RuneCountInString(v))
		return cut(v, from, to)
	}
	fail("[:] takes from a list or a text, not from %s", kind(args[0]))
	return nil
}

func bounds(from, to any, size int) (int, int) {
	a, b := 0, size
	if from != nil {
		a = min(max(position(from, size), 0), size)
	}
	if to != nil {
		b = min(max(position(to, size), 0), size)
	}
	return min(a, b), b
}

func concat(m *machine, args []any) any {
	out := []any{}
	for _, arg := range args {
		list := asList("concat", arg)
		m.charge(len(list))
		out = append(out, list...)
	}
	return out
}

// flatten returns the items of nested lists at any depth.
func flatten(m *machine, args []any) any {
	return m.flatten([]any{}, asList("flatten", args[0]), 0)
}

func (m *machine) flatten(out, list []any, depth int) []any {
	if depth > jsonvalue.MaxDepth {
		fail("flatten: the list is nested deeper than %d", jsonvalue.MaxDepth)
	}
	m.charge(len(list) + 1)
	for _, v := range list {
		if inner, ok := v.([]any); ok {
			out = m.flatten(out, inner, depth+1)
			continue
		}
		out = append(out, v)
	}
	return out
}

func reverse(m *machine, args []any) any {
	out := slices.Clone(asList("reverse", args[0]))
	m.charge(len(out))
	slices.Reverse(out)
	return nonNil(out)
}

func nonNil(list []any) []any {
	if list == nil {
		return []any{}
	}
	return list
}

// uniq keeps the first of equal items.
func uniq(m *machine, args []any) any {
	list := asList("uniq", args[0])
	m.charge(2 * len(list))
	seen := map[any]bool{}
	out, deep := []any{}, []any{}
	for _, v := range list {
		switch v.(type) {
		case []any, map[string]any:
			if !m.in(v, deep) {
				deep, out = append(deep, v), append(out, v)
			}
			continue
		}
		if key := m.identity(v); !seen[key] {
			seen[key] = true
			out = append(out, v)
		}
	}
	return out
}

// identity returns a map key that is the same for equal numbers.
func (m *machine) identity(v any) any {
	switch v := v.(type) {
	case string:
		m.chargeText(len(v))
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < math.MaxInt64 {
			return int(v)
		}
		if math.Abs(v) >= math.MaxInt64 {
			return json.Number(jsonvalue.NumberKey(v))
		}
	case json.Number:
		m.chargeBeyond(v)
		return json.Number(jsonvalue.NumberKey(v))
	}
	return v
}

// sort is stable. It charges the comparisons that a list of that length may need.
func (m *machine) sort(list []any, name string, descending bool) {
	m.charge(len(list) * bits.Len(uint(len(list))))
	slices.SortStableFunc(list, func(a, b any) int {
		if descending {
			a, b = b, a
		}
		return m.order(a, b, name)
	})
}

func descending(name string, order any) bool {
	switch order {
	case "asc":
		return false
	case "desc":
		return true
	}
	fail(`%s: the order is "asc" or "desc"`, name)
	return false
}

func sortList(m *machine, args []any) any {
	desc := len(args) == 2 && descending("sort", args[1])
	out := nonNil(slices.Clone(asList("sort", args[0])))
	m.sort(out, "sort", desc)
	return out
}

var sortByFunction = &function{name: "sortBy", run: sortBy}

// sortBy gets pairs of item and key, and the order.
func sortBy(m *machine, args []any) any {
	desc := descending("sortBy", args[1])
	pairs := args[0].([]any)
	m.charge(len(pairs) * bits.Len(uint(len(pairs))))
	slices.SortStableFunc(pairs, func(a, b any) int {
		if desc {
			a, b = b, a
		}
		return m.order(a.([]any)[1], b.([]any)[1], "sortBy")
	})
	out := make([]any, len(pairs))
	for i, pair := range pairs {
		out[i] = pair.([]any)[0]
	}
	return out
}

var groupByFunction = &function{name: "groupBy", run: groupBy}

// groupBy gets pairs of item and key. Its keys are texts, because JSON's are.
func groupBy(m *machine, args []any) any {
	out := map[string]any{}
	for _, p := range args[0].([]any) {
		pair := p.([]any)
		key := m.textKey("groupBy", pair[1])
		group, _ := out[key].([]any)
		out[key] = append(group, pair[0])
	}
	return out
}

// textKey formats a valid key as Text does.
func (m *machine) textKey(name string, v any) string {
	switch v.(type) {
	case string, int, float64, json.Number, bool:
		s := Text(v)
		m.charge(keySteps)
		m.chargeText(len(s))
		return s
	}
	fail("%s: a key is a text, a number or a boolean, not %s", name, kind(v))
	return ""
}

func object(name string, v any) map[string]any {
	out, ok := v.(map[string]any)
	if !ok {
		if v == nil {
			fail("%s: a map is needed, got null: write x ?? {} where it may be missing", name)
		}
		fail("%s: a map is needed, got %s", name, kind(v))
	}
	return out
}

func keys(m *machine, args []any) any {
	return m.entries("keys", args[0], func(key string, _ any) any { return key })
}

func values(m *machine, args []any) any {
	return m.entries("values", args[0], func(_ string, v any) any { return v })
}

func toPairs(m *machine, args []any) any {
	return m.entries("toPairs", args[0], func(key string, v any) any {
		m.charge(2)
		return []any{key, v}
	})
}

// entries builds a list of a map's entries, in the order of the keys.
func (m *machine) entries(name string, v any, item func(key string, v any) any) []any {
	entries := object(name, v)
	sorted := m.sortedKeys(entries)
	out := make([]any, len(sorted))
	for i, key := range sorted {
		out[i] = item(key, entries[key])
	}
	return out
}

// fromPairs builds a map; the last of equal keys wins.
func fromPairs(m *machine, args []any) any {
	pairs := asList("fromPairs", args[0])
	m.charge(len(pairs))
	out := make(map[string]any, len(pairs))
	for _, p := range pairs {
		pair, ok := p.([]any)
		if !ok || len(pair) != 2 {
			fail("fromPairs: an item is not a pair [key, value]")
		}
		out[m.textKey("fromPairs", pair[0])] = pair[1]
	}
	return out
}

func typeOf(_ *machine, args []any) any {
	switch args[0].(type) {
	case nil:
		return "nil"
	case bool:
		return "bool"
	case int:
		return "int"
	case float64:
		return "float"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	case time.Duration:
		return "duration"
	}
	return "map"
}
