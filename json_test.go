package edda

import (
	"math"
	"reflect"
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
		"9223372036854775808", "1e999", "{} {}", "{", "nul", strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2),
	} {
		if v, err := Decode([]byte(text)); err == nil {
			t.Errorf("Decode(%.20q) = %v, want an error", text, v)
		}
	}
}

func TestCanonicalRefusesWhatJSONCannotHold(t *testing.T) {
	for _, v := range []any{math.NaN(), math.Inf(1), make(chan int), map[any]any{1: 2}, uint64(math.MaxUint64), []any{math.NaN()}} {
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

func TestFinishedStatuses(t *testing.T) {
	for s, want := range map[Status]bool{
		StatusRunning: false, StatusUndoing: false, StatusStuck: false, StatusDone: true, StatusFailed: true, StatusUndone: true,
	} {
		if s.Finished() != want {
			t.Errorf("%s.Finished() = %v", s, !want)
		}
	}
}

// Digits alone would be read back as an integer, or refused as one that does not
// fit 64 bits: a state could not be loaded again.
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

// FuzzJSON: what is taken in comes back as it was, however it is written.
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
