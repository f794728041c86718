package expression

import (
	"encoding/json"
	"math"
	"math/bits"
	"time"

	"edda/internal/jsonvalue"
)

// maxExact is 2^53: below it a float represents every integer exactly.
const maxExact = 1 << 53

// maxSpan bounds a..b.
const maxSpan = 100_000

// normal makes a float a number of the language: integral ones become integers.
func normal(f float64) (any, error) { return jsonvalue.Canonical(f) }

func number(f float64) any {
	v, err := normal(f)
	if err != nil {
		fail("the result is not a finite number")
	}
	return v
}

// float converts a number for arithmetic with fractions. An integer that a float cannot represent
// is an error, because money must not be rounded silently.
func float(v any, operation string) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case int:
		if v > maxExact || v < -maxExact {
			fail("%s: the integer is too large to be computed with fractions", operation)
		}
		return float64(v)
	case json.Number:
		fail("%s: the number does not fit 64 bits, and is kept only to be compared and passed on: take string(x), or float(x) where it may be rounded", operation)
	case nil:
		fail("%s: a number is needed, got null: write x ?? 0 where it may be missing", operation)
	}
	fail("%s: a number is needed, got %s", operation, kind(v))
	return 0
}

func overflow(operation string) { fail("%s: the integer does not fit 64 bits", operation) }

func addInt(a, b int, operation string) int {
	sum := a + b
	if (sum > a) != (b > 0) {
		overflow(operation)
	}
	return sum
}

func subtractInt(a, b int) int {
	difference := a - b
	if (difference < a) != (b > 0) {
		overflow("-")
	}
	return difference
}

func multiplyInt(a, b int, operation string) int {
	high, low := bits.Mul64(magnitude(a), magnitude(b))
	negative := (a < 0) != (b < 0)
	if high != 0 || low > 1<<63 || (low == 1<<63 && !negative) {
		overflow(operation)
	}
	if negative {
		return int(-low)
	}
	return int(low)
}

func magnitude(a int) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}

func (m *machine) add(a, b any) any {
	if x, ok := a.(int); ok {
		if y, ok := b.(int); ok {
			return addInt(x, y, "+")
		}
	}
	switch x := a.(type) {
	case string:
		switch y := b.(type) {
		case string:
			m.built(len(x) + len(y))
			return x + y
		case time.Duration:
			return shift(x, y)
		}
		mixed("+", a, b)
	case time.Duration:
		switch y := b.(type) {
		case time.Duration:
			return time.Duration(addInt(int(x), int(y), "+"))
		case string:
			return shift(y, x)
		}
		mixed("+", a, b)
	}
	if isText(b) {
		mixed("+", a, b)
	}
	return number(float(a, "+") + float(b, "+"))
}

func mixed(operation string, a, b any) {
	if a == nil || b == nil {
		fail("%s: %s and %s do not mix: write x ?? \"\" where it may be missing", operation, kind(a), kind(b))
	}
	if isText(a) != isText(b) {
		fail("%s: %s and %s do not mix: write string(x), int(x) or float(x)", operation, kind(a), kind(b))
	}
	fail("%s: %s and %s do not mix", operation, kind(a), kind(b))
}

func (m *machine) subtract(a, b any) any {
	if x, ok := a.(int); ok {
		if y, ok := b.(int); ok {
			return subtractInt(x, y)
		}
	}
	if isText(a) {
		return subtractTime(a.(string), b)
	}
	if x, ok := a.(time.Duration); ok {
		y, ok := b.(time.Duration)
		if !ok {
			mixed("-", a, b)
		}
		return time.Duration(subtractInt(int(x), int(y)))
	}
	return number(float(a, "-") - float(b, "-"))
}

func (m *machine) multiply(a, b any) any {
	if x, ok := a.(int); ok {
		if y, ok := b.(int); ok {
			return multiplyInt(x, y, "*")
		}
	}
	if x, ok := a.(time.Duration); ok {
		return scale(x, b)
	}
	if y, ok := b.(time.Duration); ok {
		return scale(y, a)
	}
	return number(float(a, "*") * float(b, "*"))
}

// divide returns an integer if the result is exact, otherwise a fraction.
func (m *machine) divide(a, b any) any {
	if x, ok := a.(time.Duration); ok {
		return divideDuration(x, b)
	}
	x, ok := a.(int)
	y, both := b.(int)
	if ok && both && y != 0 && x%y == 0 {
		if y == -1 {
			return subtractInt(0, x)
		}
		return x / y
	}
	dividend, divisor := float(a, "/"), float(b, "/")
	if divisor == 0 {
		fail("/: division by zero")
	}
	return number(dividend / divisor)
}

func (m *machine) modulo(a, b any) any {
	x, ok := a.(int)
	y, both := b.(int)
	if !ok || !both {
		fail("%%: integers are needed, got %s and %s", kind(a), kind(b))
	}
	switch y {
	case 0:
		fail("%%: division by zero")
	case -1:
		return 0 // the smallest integer modulo -1 would trap on some processors
	}
	return x % y
}

// power is exact for integers, by squaring.
func (m *machine) power(a, b any) any {
	base, ok := a.(int)
	exponent, both := b.(int)
	if !ok || !both || exponent < 0 {
		x, y := float(a, "**"), float(b, "**")
		if x == 0 && y < 0 {
			fail("**: division by zero")
		}
		return number(math.Pow(x, y))
	}
	result := 1
	for {
		if exponent&1 == 1 {
			result = multiplyInt(result, base, "**")
		}
		exponent >>= 1
		switch {
		case exponent == 0, base == 1:
			return result
		case base == 0:
			return 0
		}
		base = multiplyInt(base, base, "**")
	}
}

func (m *machine) negative(v any) any {
	switch v := v.(type) {
	case int:
		return subtractInt(0, v)
	case time.Duration:
		return time.Duration(subtractInt(0, int(v)))
	}
	return number(-float(v, "-"))
}

func (m *machine) positive(v any) any {
	if _, ok := v.(int); ok {
		return v
	}
	return number(float(v, "+"))
}

// span is a..b.
func (m *machine) span(a, b any) any {
	from, ok := a.(int)
	to, both := b.(int)
	if !ok || !both {
		fail("..: integers are needed, got %s and %s", kind(a), kind(b))
	}
	if to < from {
		return []any{}
	}
	size := addInt(subtractInt(to, from), 1, "..")
	if size > maxSpan {
		fail("..: the list would have %d items, more than %d", size, maxSpan)
	}
	m.charge(size)
	out := make([]any, size)
	for i := range out {
		out[i] = from + i
	}
	return out
}
