package expression

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

func abs(m *machine, args []any) any {
	switch v := args[0].(type) {
	case int:
		if v < 0 {
			return subtractInt(0, v)
		}
		return v
	case time.Duration:
		if v < 0 {
			return m.negative(v)
		}
		return v
	}
	return number(math.Abs(float(args[0], "abs")))
}

func whole(name string, v any, to func(float64) float64) any {
	if _, ok := v.(int); ok {
		return v
	}
	return number(to(float(v, name)))
}

func ceil(_ *machine, args []any) any  { return whole("ceil", args[0], math.Ceil) }
func floor(_ *machine, args []any) any { return whole("floor", args[0], math.Floor) }
func round(_ *machine, args []any) any { return whole("round", args[0], math.Round) }

// toInt truncates fractions and parses decimal texts.
func toInt(m *machine, args []any) any {
	switch v := args[0].(type) {
	case int:
		return v
	case float64:
		if f := math.Trunc(v); math.Abs(f) < maxExact {
			return int(f)
		}
		overflow("int")
	case json.Number:
		overflow("int")
	case string:
		m.chargeText(len(v))
		i, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil {
			fail("int: the text is not an integer of 64 bits")
		}
		return int(i)
	}
	fail("int: a number or a text is needed, got %s", kind(args[0]))
	return nil
}

func toFloat(m *machine, args []any) any {
	s, ok := args[0].(string)
	if n, beyond := args[0].(json.Number); beyond {
		s, ok = string(n), true
	}
	if !ok {
		if _, ok := args[0].(int); ok {
			return args[0]
		}
		return number(float(args[0], "float"))
	}
	m.chargeText(len(s))
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if errors.Is(err, strconv.ErrRange) {
		fail("float: the number is larger than any fraction of 64 bits")
	}
	if err != nil {
		fail("float: the text is not a number")
	}
	return number(f)
}

// operands accepts min(a, b) and min(list).
func operands(m *machine, name string, args []any) []any {
	if len(args) == 1 {
		args = asList(name, args[0])
	}
	m.charge(len(args))
	return args
}

func least(m *machine, args []any) any    { return extreme(m, "min", args, -1) }
func greatest(m *machine, args []any) any { return extreme(m, "max", args, 1) }

// extreme of nothing is null.
func extreme(m *machine, name string, args []any, sign int) any {
	items := operands(m, name, args)
	if len(items) == 0 {
		return nil
	}
	best := items[0]
	for _, item := range items {
		if m.order(item, best, name)*sign > 0 {
			best = item
		}
	}
	return best
}

// mean and median of nothing are 0.
func mean(m *machine, args []any) any {
	items := operands(m, "mean", args)
	if len(items) == 0 {
		return 0
	}
	var sum any = 0
	for _, item := range items {
		sum = m.add(sum, item)
	}
	return m.divide(sum, len(items))
}

func median(m *machine, args []any) any {
	items := slices.Clone(operands(m, "median", args))
	n := len(items)
	if n == 0 {
		return 0
	}
	for _, item := range items {
		float(item, "median")
	}
	m.sort(items, "median", false)
	if n%2 == 1 {
		return items[n/2]
	}
	return m.divide(m.add(items[n/2-1], items[n/2]), 2)
}
