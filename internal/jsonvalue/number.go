package jsonvalue

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// parseNumber parses a JSON number as an int, or else as a float64. A number that fits
// neither is a [json.Number] with its text: an integer beyond 64 bits, or 1e999.
func parseNumber(s string) (any, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return int(i), nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f == math.Trunc(f) && math.Abs(f) >= maxExactFloat && isIntegerText(s) {
		if !isNumeral(s) {
			return nil, errors.New("not a number of JSON")
		}
		return json.Number(strings.Clone(s)), nil
	}
	return number(f)
}

func isIntegerText(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// isNumeral reports whether a text is a number in JSON.
func isNumeral(s string) bool {
	n := scanner{data: []byte(s)}
	n.numeral()
	return !n.wrong && n.at == len(s)
}

// Integer returns the text of a number beyond 64 bits that has no fraction and no
// exponent; ok is false for any other.
func Integer(n json.Number) (text string, ok bool) { return string(n), isIntegerText(string(n)) }

// CompareNumbers orders two canonical numbers by their exact values, if at least one is
// beyond 64 bits; ok is false if one is no number. Its cost is linear in their texts.
func CompareNumbers(a, b any) (c int, ok bool) {
	x, ok := decimalOf(a)
	if !ok {
		return 0, false
	}
	y, ok := decimalOf(b)
	return x.compare(y), ok
}

// NumberKey returns a text that is the same for equal numbers beyond 64 bits, and differs
// for different ones.
func NumberKey(v any) string {
	d, _ := decimalOf(v)
	sign := ""
	if d.sign < 0 {
		sign = "-"
	}
	return sign + d.digits + "e" + d.exponent.String()
}

// decimal is the value sign × 0.digits × 10^exponent; digits neither begin nor end with 0.
type decimal struct {
	sign     int
	digits   string
	exponent *big.Int // without a bound
}

func decimalOf(v any) (decimal, bool) {
	switch v := v.(type) {
	case int:
		return parseDecimal(strconv.Itoa(v)), true
	case float64:
		if math.Abs(v) >= maxExactFloat {
			return parseDecimal(new(big.Float).SetFloat64(v).Text('f', 0)), true // all its digits
		}
		return parseDecimal(strconv.FormatFloat(v, 'e', -1, 64)), true
	case json.Number:
		return parseDecimal(string(v)), true
	}
	return decimal{}, false
}

func parseDecimal(s string) decimal {
	d := decimal{sign: 1, exponent: new(big.Int)}
	if strings.HasPrefix(s, "-") {
		d.sign, s = -1, s[1:]
	}
	if at := strings.IndexAny(s, "eE"); at >= 0 {
		d.exponent.SetString(strings.TrimPrefix(s[at+1:], "+"), 10)
		s = s[:at]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.exponent.Add(d.exponent, big.NewInt(int64(len(whole)-(len(whole)+len(fraction)-len(digits)))))
	if d.digits = strings.TrimRight(digits, "0"); d.digits == "" {
		return decimal{exponent: new(big.Int)}
	}
	return d
}

func (d decimal) compare(o decimal) int {
	if c := cmp.Compare(d.sign, o.sign); c != 0 || d.sign == 0 {
		return c
	}
	c := d.exponent.Cmp(o.exponent)
	if c == 0 {
		c = strings.Compare(d.digits, o.digits)
	}
	return c * d.sign
}

// Bounds of a number that is checked against a schema. They are far beyond anything that
// people count. The schema library writes out all digits, as those of 1e1000000.
const (
	maxSchemaDigits   = 1000
	maxSchemaExponent = 1000
)

// ForSchema returns an error if a value has a number that is too large to be checked
// against a schema.
func ForSchema(v any) error {
	switch v := v.(type) {
	case json.Number:
		if len(v) > maxSchemaDigits || parseDecimal(string(v)).exponent.CmpAbs(big.NewInt(maxSchemaExponent)) > 0 {
			return errors.New("a number has too many digits to be held against a schema")
		}
	case []any:
		for _, item := range v {
			if err := ForSchema(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, item := range v {
			if err := ForSchema(item); err != nil {
				return err
			}
		}
	}
	return nil
}
