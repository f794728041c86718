package jsonvalue

import (
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
)

// TestANumberBeyond64BitsKeepsAllItsDigits through every reader and writer.
func TestANumberBeyond64BitsKeepsAllItsDigits(t *testing.T) {
	long := strings.Repeat("123456789", 500)
	for _, text := range []string{"9223372036854775808", "-9223372036854775809", "18446744073709551615", "1e999", "-1E+0999", "1.50e400", long, "-" + long, "1e" + long} {
		for _, around := range []string{"%", "[%]", ` {"a": 1, "n": % , "b":[%]}`, `{"é":"\u0061","n":%}`} {
			given := strings.ReplaceAll(around, "%", text)
			for name, decode := range map[string]func([]byte) (any, error){"Decode": Decode, "decodeAny": decodeAny} {
				v, err := decode([]byte(given))
				if err != nil {
					t.Fatalf("%s %.50s: %v", name, given, err)
				}
				for name, encode := range map[string]func(any, int) (json.RawMessage, error){"Append": appended, "encodeAny": encodeAny} {
					got, err := encode(v, 0)
					if err != nil || !strings.Contains(string(got), text) {
						t.Errorf("%s %.50s: %.80s %v", name, given, got, err)
					}
					if again, err := Decode(got); err != nil || !reflect.DeepEqual(again, v) {
						t.Errorf("%s %.50s again: %.80v %v", name, given, again, err)
					}
				}
			}
		}
	}
	for _, text := range []string{"9223372036854775807", "1e308", "9223372036854775808.0", "1e20", "1e-999", "-0"} {
		if v, err := Decode([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if _, beyond := v.(json.Number); beyond {
			t.Errorf("%s is beyond 64 bits", text)
		}
	}
	if v, err := Canonical([]any{uint64(math.MaxUint64), uint64(7)}); err != nil || !reflect.DeepEqual(v, []any{json.Number("18446744073709551615"), 7}) {
		t.Errorf("%v %v", v, err)
	}
}

// TestNumbersBeyond64BitsAreComparedExactly with each other and with numbers that fit.
func appended(v any, level int) (json.RawMessage, error) { return Append(nil, v, level) }

func TestNumbersBeyond64BitsAreComparedExactly(t *testing.T) {
	values := []any{
		json.Number("-1e999"), json.Number("-10e997"), json.Number("-18446744073709551616"), json.Number("-9223372036854775809"), math.MinInt, -1, -0.5, 0, 5e-324, 0.1, 1, 1.5, 9007199254740992.0, 9007199254740993,
		math.MaxInt, 9223372036854775808.0, json.Number("9223372036854775809"), json.Number("18446744073709551615"), 18446744073709551616.0, json.Number("18446744073709551617"), 1e300, math.MaxFloat64,
		json.Number("1e400"), json.Number("1.5e400"), json.Number("15e400"), json.Number("1e1000"), json.Number("1e99999999999999999999"),
	}
	for i, a := range values {
		for j, b := range values {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got, ok := CompareNumbers(a, b); !ok || got != want {
				t.Errorf("%v and %v: %d %v, want %d", a, b, got, ok, want)
			}
			if same := NumberKey(a) == NumberKey(b); same != (i == j) {
				t.Errorf("%v and %v: keys %s, %s", a, b, NumberKey(a), NumberKey(b))
			}
		}
	}
	for a, b := range map[string]string{"1e999": "10E+998", "1.50e999": "15e998", "100000000000000000000": "1e20", "0e999": "-0.0e1000", "0.001e1002": "1e999"} {
		if c, _ := CompareNumbers(json.Number(a), json.Number(b)); c != 0 || NumberKey(json.Number(a)) != NumberKey(json.Number(b)) {
			t.Errorf("%s and %s: %d", a, b, c)
		}
	}
	for _, v := range []any{nil, true, "1e999", []any{}, map[string]any{}} {
		if _, ok := CompareNumbers(json.Number("1e999"), v); ok {
			t.Errorf("a number and %v are compared", v)
		}
	}
}

// FuzzCompareNumbers compares with math/big.
func FuzzCompareNumbers(f *testing.F) {
	f.Add("1e999", "9223372036854775808")
	f.Add("-0.00120e3", "-1.2")
	f.Add("0e5", "-0")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, ok := ratOf(a)
		y, both := ratOf(b)
		if !ok || !both {
			return
		}
		if got, ok := CompareNumbers(json.Number(a), json.Number(b)); !ok || got != x.Cmp(y) {
			t.Errorf("%s and %s: %d, want %d", a, b, got, x.Cmp(y))
		}
	})
}

func ratOf(text string) (*big.Rat, bool) {
	if !isNumeral(text) || len(text) > 100 || parseDecimal(text).exponent.CmpAbs(big.NewInt(1000)) > 0 {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// TestANumberTooLargeForASchemaIsRefused, because the library would write out all its digits, or fail.
func TestANumberTooLargeForASchemaIsRefused(t *testing.T) {
	for text, fits := range map[string]bool{
		"18446744073709551615": true, "1e999": true, "-1E+0999": true, "1e1000000": false, "1e-99999": true, "1e99999999999999999999": false, strings.Repeat("9", maxSchemaDigits+1): false,
		`"1e1000000"`: true, "7": true, `{"a":[1,{"b":1e1000000}]}`: false, `{"a":[1,{"b":1e400}]}`: true,
	} {
		v, err := Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := ForSchema(v); (err == nil) != fits {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}
