package jsonvalue

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDecodeKeepsNumbersExact(t *testing.T) {
	for text, want := range map[string]any{
		"9007199254740993": 9007199254740993, "-1": -1, "2.0": 2, "2.5": 2.5, "1e3": 1000, "1e300": 1e300,
		"": nil, "null": nil, `"x"`: "x", "true": true,
	} {
		if got, err := Decode([]byte(text)); err != nil || got != want {
			t.Errorf("Decode(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{
		"{} {}", "{", "nul", strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2),
	} {
		if v, err := Decode([]byte(text)); err == nil {
			t.Errorf("Decode(%.20q) = %v, want an error", text, v)
		}
	}
}

func TestCanonicalRefusesWhatJSONCannotHold(t *testing.T) {
	for _, v := range []any{math.NaN(), math.Inf(1), make(chan int), map[any]any{1: 2}, json.Number("0x1p9999"), json.Number("Inf"), json.Number(""), []any{math.NaN()}} {
		if c, err := Canonical(v); err == nil {
			t.Errorf("Canonical(%v) = %v, want an error", v, c)
		}
	}
}

func TestCanonicalTakesWhatExpressionsGive(t *testing.T) {
	at := time.Date(2026, 1, 1, 1, 0, 0, 5e6, time.FixedZone("x", 3600))
	v, err := Canonical(map[any]any{"a": []int{1, 2}, "b": at, "c": float32(2), "d": int8(3), "e": 90 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"a":[1,2],"b":"2026-01-01T00:00:00.005Z","c":2,"d":3,"e":"1m30s"}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEncodeIsStable(t *testing.T) {
	v := map[string]any{"z": 1, "a": "<&>", "m": map[string]any{"b": nil, "a": 1.5}}
	for range 20 {
		got, err := Encode(v)
		if want := `{"a":"<&>","m":{"a":1.5,"b":null},"z":1}`; err != nil || string(got) != want {
			t.Fatalf("got %s, %v, want %s", got, err, want)
		}
	}
}

// Digits alone would be read back as an integer, or refused as an integer beyond 64
// bits. Then a state could not be loaded again.
func TestLargeFloatsAreReadBackAsTheyWere(t *testing.T) {
	for _, text := range []string{"1e16", "9007199254740992.0", "186201680000000000.0", "9223372036854775808.0", "-1e19", "1e20", "1e21", "1e300", "-1e-7", "9007199254740993", "0.5"} {
		for _, source := range []string{text, `{"a":[` + text + `,{"b":` + text + `}]}`} {
			v, err := Decode([]byte(source))
			if err != nil {
				t.Fatalf("%s: %v", source, err)
			}
			raw, err := Encode(v)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := Decode(raw); err != nil || !reflect.DeepEqual(back, v) {
				t.Errorf("%s is written %s and read as %v (%T), %v", source, raw, back, back, err)
			}
		}
	}
}

// FuzzJSON checks that a decoded value survives encoding and decoding.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{"1e20", `{"a":[1e16,9007199254740993,-0,"\u2028<"]}`, "[[[]]]", "1e-400", "-0.0", `"\ud800"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Decode(data)
		if err != nil {
			return
		}
		raw, err := Encode(v)
		if err != nil {
			t.Fatalf("%q cannot be written: %v", data, err)
		}
		back, err := Decode(raw)
		if err != nil || !reflect.DeepEqual(back, v) {
			t.Fatalf("%q is written %s and read as %#v, not %#v: %v", data, raw, back, v, err)
		}
		if again, _ := Encode(back); string(again) != string(raw) {
			t.Fatalf("%q is written %s, then %s", data, raw, again)
		}
	})
}

// FuzzRead checks that the fast path gives the value of encoding/json, or none.
func FuzzRead(f *testing.F) {
	for _, seed := range append(oddities, `{"a":[1,-2.5e-3,"x",{}],"b":null,"a":true}`, strings.Repeat(" ", 2*mostShared)+`{"long":"é"}`) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, ok := read(data)
		if !ok {
			return
		}
		want, err := decodeAny(data)
		if err != nil || !reflect.DeepEqual(v, want) {
			t.Fatalf("%q is read as %#v, not %#v, %v", data, v, want, err)
		}
		if raw, ok := write(v); ok {
			if want, err := encodeAny(v, 0); err != nil || string(raw) != string(want) {
				t.Fatalf("%q is written %s, not %s, %v", data, raw, want, err)
			}
		}
	})
}

// oddities are inputs that readers of JSON treat differently.
var oddities = []string{
	"", " ", "01", "-", "-0", "-01", "1.", ".5", "1e", "1e+", "1E5", "+1", "1 2", "[1,]", "[,]", "{,}", `{"a":1,}`, `{"a"}`, `{a:1}`, `{"a":1}}`, "]", "nulll", "nul", "True",
	`"`, `"\`, `"\"`, `"\""`, `"\n\u00e9\ud83d\ude00\ud800"`, `"\x"`, "\"\x01\"", "\"\x7f\"", "\"\xff\"", "\"\u2028<&>\"", `{"\u0061":1,"a":2}`, `{"a":1e999,"a":1}`, "\ufeff1", "\v1", "\u00a01",
	"9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e400", "0e0", "0.0", "1e-400", "\x00", "1\x00", "//", "NaN", "[[[[", `[1 2]`, `{"a" 1}`, `{"a"::1}`,
	strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth), strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), strings.Repeat("[", MaxDepth+1) + "1" + strings.Repeat("]", MaxDepth+1),
	strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1),
}

// TestOdditiesAreDecodedAsByEncodingJSON includes inputs that the fast path must refuse.
func TestOdditiesAreDecodedAsByEncodingJSON(t *testing.T) {
	for _, text := range oddities {
		for _, text := range []string{text, "[" + text + "]", `{"k":` + text + ` , "l":[]}`} {
			got, err := Decode([]byte(text))
			want, wantErr := decodeAny([]byte(text))
			if !reflect.DeepEqual(got, want) || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
				t.Errorf("%.40q: %#v, %v; want %#v, %v", text, got, err, want, wantErr)
			}
		}
	}
}

// TestOddValuesAreEncodedAsByEncodingJSON compares bytes and errors.
func TestOddValuesAreEncodedAsByEncodingJSON(t *testing.T) {
	deep := any(1)
	for range MaxDepth + 1 {
		deep = []any{deep}
	}
	many := map[string]any{}
	for i := range 100 {
		many[strings.Repeat("k", 100-i)] = i
	}
	for _, v := range []any{
		nil, true, 0, -1, math.MaxInt, math.MinInt, 0.5, math.Copysign(0, -1), 1e-7, 1e20, 1e21, -1e300, 9007199254740992.0, math.MaxFloat64, math.SmallestNonzeroFloat64,
		"", "\x1f", "\x00", "a\"b\\c/\b\f\n\r\t\x00\x1f\x7f", "<&>é\U0001F600", "\u2028", "é\u2029", "é\xff", []any{}, []any(nil), map[string]any{}, map[string]any(nil), deep, []any{deep}, many,
		map[string]any{"\u2028": 1, "\xff": 2, "": 3, "é": 4, "a\"": 5}, map[string]any{"a": []any{map[string]any{"b": "\n"}}},
		math.NaN(), []any{math.Inf(1)}, map[string]any{"a": math.Inf(-1)}, int8(1), []int{1}, json.Number("1"), json.RawMessage(`{"b": 1}`), make(chan int), map[string]any{"t": time.Unix(0, 0).UTC()},
	} {
		got, err := Encode(v)
		want, wantErr := encodeAny(v, 0)
		if string(got) != string(want) || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Errorf("%#v: %s, %v; want %s, %v", v, got, err, want, wantErr)
		}
	}
}

// Encoding another value does not change the bytes of the first.
func TestEncodedBytesAreTheCallers(t *testing.T) {
	first, err := Encode("first")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Encode("other"); err != nil || string(first) != `"first"` {
		t.Errorf("%s, %v", first, err)
	}
}

// FuzzCheck compares Check with Decode.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{"a":{"b":7}}`, `{"a":{"b":1,"b":"\u0061"},"c":[1,-2.5e3,{}]}`, `{"a":{"\u0062":1}}`, `{"z":-0,"a":{}}`, `{"a":[]}`, `{"a":{"b":"é"},"c":"\xff"}`,
		`{"n":9223372036854775807,"m":123456789012345678901}`, strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), `{"a":{"b":1}}{`, "{\"a\":\"\t\"}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Decode([]byte(text))
		if checked := Check([]byte(text)); (checked == nil) != (err == nil) || err != nil && checked.Error() != err.Error() {
			t.Fatalf("%q: checked %v, decoded %v", text, checked, err)
		}
	})
}

// TestAnEncodedValueCanBeDecoded: a value that is nested too deep is an error of every encoder.
func TestAnEncodedValueCanBeDecoded(t *testing.T) {
	for _, wrap := range []func(any) any{
		func(v any) any { return []any{1, v} },
		func(v any) any { return map[string]any{"a": nil, `[{"`: v} },
	} {
		for _, inner := range []any{1, nil, true, "a", "\xff[[", []any{}, map[string]any{}, 0.5} {
			v := inner
			for level := range MaxDepth + 3 {
				raw, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				_, err = Decode(raw)
				readable := err == nil
				if _, err := Encode(v); (err == nil) != readable || err != nil && !errors.Is(err, ErrTooDeep) {
					t.Errorf("%.20q in %d levels: %v, and is read: %v", inner, level, err, readable)
				}
				further := slices.Concat([]byte(`{"a":`), raw, []byte("}"))
				if _, readable = read(further); readable && Check(further) != nil {
					t.Errorf("%.20q in %d levels is read, and not by Decode", inner, level+1)
				}
				if _, err := Append(nil, v, 1); (err == nil) != readable || err != nil && !errors.Is(err, ErrTooDeep) {
					t.Errorf("%.20q in %d levels a level further in: %v, and is read: %v", inner, level, err, readable)
				}
				v = wrap(v)
			}
		}
	}
}
