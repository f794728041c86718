package expression

import (
	"cmp"
	"encoding/json"
	"math"
	"strings"
	"time"

	"edda/internal/jsonvalue"
)

// kind names a value's type in messages.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int:
		return "an integer"
	case float64:
		return "a fraction"
	case json.Number:
		return "a number beyond 64 bits"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	case time.Duration:
		return "a duration"
	}
	return "a value that is not JSON"
}

func isText(v any) bool {
	_, ok := v.(string)
	return ok
}

// compareIntFloat compares exactly, also if a float cannot represent the integer.
func compareIntFloat(i int, f float64) int {
	switch {
	case f >= math.MaxInt64: // the constant is 2^63 as a float
		return -1
	case f < math.MinInt64:
		return 1
	}
	whole := int(f)
	if c := cmp.Compare(i, whole); c != 0 {
		return c
	}
	return cmp.Compare(0, f-float64(whole))
}

// compareNumbers orders two numbers; ok is false if one of them is not a number.
func (m *machine) compareNumbers(a, b any) (c int, ok bool) {
	if m.chargeBeyond(a) || m.chargeBeyond(b) {
		return jsonvalue.CompareNumbers(a, b)
	}
	switch a := a.(type) {
	case int:
		switch b := b.(type) {
		case int:
			return cmp.Compare(a, b), true
		case float64:
			return compareIntFloat(a, b), true
		}
	case float64:
		switch b := b.(type) {
		case int:
			return -compareIntFloat(b, a), true
		case float64:
			return cmp.Compare(a, b), true
		}
	}
	return 0, false
}

// chargeBeyond reports whether v is a number beyond 64 bits. It charges a step for each digit,
// because the exponent may have many.
func (m *machine) chargeBeyond(v any) bool {
	n, is := v.(json.Number)
	m.charge(len(n))
	return is
}

// order compares two numbers, two texts or two durations.
func (m *machine) order(a, b any, operation string) int {
	if c, ok := m.compareNumbers(a, b); ok {
		return c
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			m.chargeText(min(len(x), len(y)))
			return strings.Compare(x, y)
		}
	case time.Duration:
		if y, ok := b.(time.Duration); ok {
			return cmp.Compare(x, y)
		}
	}
	if a == nil || b == nil {
		fail("%s: %s and %s cannot be compared: write x ?? 0 where it may be missing", operation, kind(a), kind(b))
	}
	fail("%s: %s and %s cannot be compared", operation, kind(a), kind(b))
	return 0
}

func (m *machine) less(a, b any) bool    { return m.order(a, b, "<") < 0 }
func (m *machine) atMost(a, b any) bool  { return m.order(a, b, "<=") <= 0 }
func (m *machine) more(a, b any) bool    { return m.order(a, b, ">") > 0 }
func (m *machine) atLeast(a, b any) bool { return m.order(a, b, ">=") >= 0 }

func (m *machine) equal(a, b any) bool   { return m.same(a, b, 0) }
func (m *machine) unequal(a, b any) bool { return !m.same(a, b, 0) }

// same compares two values of any type, deeply.
func (m *machine) same(a, b any, depth int) bool {
	if depth > jsonvalue.MaxDepth {
		fail("the value is nested deeper than %d", jsonvalue.MaxDepth)
	}
	switch x := a.(type) {
	case int, float64, json.Number:
		c, ok := m.compareNumbers(a, b)
		return ok && c == 0
	case string:
		y, ok := b.(string)
		m.chargeText(min(len(x), len(y)))
		return ok && x == y
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			m.charge(1)
			if !m.same(x[i], y[i], depth+1) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		// In the order of the keys, so that the place where the budget ends does not depend on Go's
		// random order.
		for _, key := range m.sortedKeys(x) {
			other, ok := y[key]
			if !ok || !m.same(x[key], other, depth+1) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case []any, map[string]any:
		return false // Go cannot compare values of these types
	}
	return a == b
}

// in reports whether a list has an item, or a map a key. Null has none.
func (m *machine) in(v, where any) bool {
	switch where := where.(type) {
	case nil:
		return false
	case []any:
		for _, candidate := range where {
			m.charge(1)
			if m.same(candidate, v, 0) {
				return true
			}
		}
		return false
	case map[string]any:
		name, ok := v.(string)
		m.chargeText(len(name))
		_, found := where[name]
		return ok && found
	case string:
		fail("in looks into a list or a map: write text contains part")
	}
	fail("in looks into a list or a map, not into %s", kind(where))
	return false
}
