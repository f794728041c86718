// Package jsonvalue reads and writes JSON: canonical values (nil, bool, int, float64, string,
// json.Number, []any, map[string]any) and known structs, over one scanner and without
// reflection.
//
// [Decode] and [Encode] are for values: integers stay integers, and equal values are equal
// bytes. [Marshal] and [Unmarshal] are for structs. One list of a struct's fields serves
// writing and reading. They write byte for byte what encoding/json writes
// with HTML characters not escaped, and read what it reads.
//
// Input that is unusual or invalid is given to encoding/json, which alone decides what is an
// error. The functions are pure, so expressions and sagas may use them.
package jsonvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"edda"
)

// MaxDepth bounds the nesting of a JSON value that enters a saga.
const MaxDepth = 128

// ErrTooDeep is the error of a value that is nested deeper than [MaxDepth].
var ErrTooDeep = fmt.Errorf("value is nested deeper than %d", MaxDepth)

// maxExactFloat is 2^53: below it a float holds every integer exactly.
const maxExactFloat = 1 << 53

// Decode reads one JSON value into nil, bool, int, float64, string, []any and
// map[string]any. Integers stay integers; an integral float below 2^53 becomes
// one. A number that fits neither int64 nor a finite float is a [json.Number] with all
// its digits, because money is never rounded silently. Empty input is null.
func Decode(data []byte) (any, error) {
	if v, ok := read(data); ok {
		return v, nil
	}
	return decodeAny(data)
}

// read decodes plain JSON in one pass and without reflection. If ok is false, decodeAny
// decides what the input is.
func read(data []byte) (v any, ok bool) {
	r := reader{scanner: scanner{data: data}, share: 1}
	v = r.value(0)
	return v, r.ended()
}

// Check returns the error that [Decode] would return, without building the value.
func Check(data []byte) error {
	s := scanner{data: data}
	if s.skip(0); s.ended() {
		return nil
	}
	_, err := decodeAny(data)
	return err
}

// decodeAny decodes any input by encoding/json, which describes errors.
func decodeAny(data []byte) (any, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode json: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode json: more than one value")
	}
	return Canonical(v)
}

// Encode writes a canonical value as JSON: keys sorted, no HTML escapes, equal
// values to equal bytes. [Decode] gives the same value again, so a value that is nested
// too deep for it is [ErrTooDeep].
func Encode(v any) (json.RawMessage, error) {
	if out, ok := write(v); ok {
		return out, nil
	}
	return encodeAny(v, 0)
}

// encodeAny encodes any value by encoding/json, which describes errors. level is the depth of
// the value within its document.
func encodeAny(v any, level int) (json.RawMessage, error) {
	if hasLarge(v, 0) {
		v = exponents(v)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode json: %w", err)
	}
	s := scanner{data: buf.Bytes()}
	if s.skip(level); s.wrong {
		return nil, ErrTooDeep // Decode would refuse it
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// large reports whether encoding/json writes a float as digits alone. Those would be read
// back as an integer, or refused because the integer does not fit.
func large(f float64) bool { return math.Abs(f) >= maxExactFloat && math.Abs(f) < 1e21 }

func hasLarge(v any, depth int) bool {
	switch v := v.(type) {
	case float64:
		return large(v)
	case []any:
		return depth <= MaxDepth && slices.ContainsFunc(v, func(item any) bool { return hasLarge(item, depth+1) })
	case map[string]any:
		for _, item := range v {
			if depth <= MaxDepth && hasLarge(item, depth+1) {
				return true
			}
		}
	}
	return false
}

// exponents returns a copy in which large floats are numbers with an exponent.
func exponents(v any) any {
	switch v := v.(type) {
	case float64:
		if large(v) {
			return json.Number(strconv.FormatFloat(v, 'e', -1, 64))
		}
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = exponents(item)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[k] = exponents(item)
		}
		return out
	}
	return v
}

// Canonical converts a value of a decoder or an expression to the types that [Decode]
// returns. NaN, infinities, other types and too deep nesting are errors. It changes
// []any and map[string]any in place.
func Canonical(v any) (any, error) { return canonical(v, 0) }

func canonical(v any, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, ErrTooDeep
	}
	switch v := v.(type) {
	case nil, bool, string, int:
		return v, nil
	case float64:
		return number(v)
	case json.Number:
		return parseNumber(string(v))
	case []any:
		for i, item := range v {
			c, err := canonical(item, depth+1)
			if err != nil {
				return nil, err
			}
			v[i] = c
		}
		return v, nil
	case map[string]any:
		for k, item := range v {
			switch item.(type) {
			case nil, bool, string, int:
				if depth < MaxDepth {
					continue // already canonical: do not write to the map
				}
			}
			c, err := canonical(item, depth+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			v[k] = c
		}
		return v, nil
	}
	return canonicalOther(v, depth)
}

func number(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errors.New("not a finite number")
	}
	if f == math.Trunc(f) && math.Abs(f) < maxExactFloat {
		return int(f), nil
	}
	return f, nil
}

// canonicalOther converts the other types of an expression's value: sized integers,
// times, typed slices and string-keyed maps.
func canonicalOther(v any, depth int) (any, error) {
	switch v := v.(type) {
	case time.Time:
		return edda.FormatTime(v), nil
	case time.Duration:
		return v.String(), nil
	}
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return int(rv.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if rv.Uint() > 1<<63-1 {
			return json.Number(strconv.FormatUint(rv.Uint(), 10)), nil
		}
		return int(rv.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return number(rv.Float())
	case reflect.String:
		return rv.String(), nil
	case reflect.Slice, reflect.Array:
		out := make([]any, rv.Len())
		for i := range out {
			c, err := canonical(rv.Index(i).Interface(), depth+1)
			if err != nil {
				return nil, err
			}
			out[i] = c
		}
		return out, nil
	case reflect.Map:
		out := make(map[string]any, rv.Len())
		for it := rv.MapRange(); it.Next(); {
			k := it.Key()
			for k.Kind() == reflect.Interface {
				k = k.Elem()
			}
			if k.Kind() != reflect.String {
				return nil, fmt.Errorf("a map key is a %s, not a string", k.Kind())
			}
			c, err := canonical(it.Value().Interface(), depth+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.String(), err)
			}
			out[k.String()] = c
		}
		return out, nil
	}
	return nil, fmt.Errorf("a %T is not a JSON value", v)
}
