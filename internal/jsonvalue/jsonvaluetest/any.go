package jsonvaluetest

import (
	"encoding/json"
	"reflect"
	"time"

	"pgregory.net/rapid"
)

// Any returns a pointer to a struct with random fields. Some have an unusual encoding, or none.
func Any(t *rapid.T, of reflect.Type) reflect.Value {
	v := reflect.New(of)
	anything(t, v.Elem(), 0)
	return v
}

func oddTexts() []string {
	return []string{"", "a", "acme", "<&>", "a\"b\\c/", "\b\f\n\r\t\x00\x1f\x7f", "é\U0001F600", "\u2028", "é\u2029", "é\xff", "\xed\xa0\x80", `\u0041`, "null"}
}

func oddJSON() []string {
	return []string{
		"", "null", "0", "-0", "1e400", "01", `""`, `"\u00e9\ud83d\n"`, `"\x"`, "\"\xff\"", "\"\x01\"", "\"\u2028<&>\"", "{}", "[]", `{"a":{"b":[1,2,{"c":null}]},"a":true}`,
		` {"a" : [ 1 ,2]}`, "{\n}", "1 ", "[1,]", `{"a"}`, "tru", "truee", "1 2", `"a" "b"`, "[1.5e-3,-1E+2]", `{"a":`, "-",
	}
}

func oddTimes() []time.Time {
	zone := time.FixedZone("x", 90*60)
	return []time.Time{
		{}, time.Unix(0, 0).UTC(), time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC), time.Date(2026, 1, 2, 3, 4, 5, 678e6, zone),
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 0, time.FixedZone("far", 24*60*60)), time.Unix(1, 1),
	}
}

func anything(t *rapid.T, v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(rapid.SampledFrom(oddTimes()).Draw(t, "time")))
		return
	case json.RawMessage:
		if usual(t) {
			v.SetBytes([]byte(rapid.SampledFrom(oddJSON()).Draw(t, "json")))
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(rapid.OneOf(rapid.SampledFrom(oddTexts()), rapid.String()).Draw(t, "text"))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(rapid.OneOf(rapid.Just(0), rapid.Int()).Draw(t, "int")))
	case reflect.Uint64:
		v.SetUint(rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(t, "uint"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	default:
		anyParts(t, v, depth)
	}
}

// usual reports whether to set an optional field: rarely, so that most structs can be encoded.
func usual(t *rapid.T) bool { return rapid.IntRange(0, 3).Draw(t, "usual") == 0 }

func anyParts(t *rapid.T, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				anything(t, v.Field(i), depth)
			}
		}
	case reflect.Pointer:
		if usual(t) && depth < deep {
			v.Set(reflect.New(v.Type().Elem()))
			anything(t, v.Elem(), depth+1)
		}
	case reflect.Slice:
		if usual(t) && depth < deep {
			n := rapid.IntRange(0, 3).Draw(t, "items")
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				anything(t, v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		if usual(t) {
			v.Set(reflect.MakeMap(v.Type()))
			for range rapid.IntRange(0, 3).Draw(t, "members") {
				item := reflect.New(v.Type().Elem()).Elem()
				anything(t, item, depth+1)
				v.SetMapIndex(reflect.ValueOf(rapid.SampledFrom(oddTexts()).Draw(t, "name")), item)
			}
		}
	}
}
