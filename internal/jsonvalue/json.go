// Package jsonvalue reads and writes JSON: canonical values (nil, bool, int, float64, string,
// json.Number, []any, map[string]any) and known structs, over one scanner and without
// reflection.
//
// [Decode] and [Encode] are for values: integers stay integers, and equal values are equal
// bytes. [Marshal] and [Unmarshal] are for structs. One list of a struct's fields serves
// writing and reading. They write byte for byte what encoding/json writes
// with HTML characters not escaped, and read what it reads.
//
// Whatever is not plain, and all that is wrong, is left to encoding/json: it alone says what
// an error is. Functions are pure: expressions and sagas may use them.
package jsonvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// MaxDepth bounds the nesting of a JSON value that enters a saga.
const MaxDepth = 128

// ErrTooDeep is why a value is neither read nor written.
var ErrTooDeep = fmt.Errorf("value is nested deeper than %d", MaxDepth)

// maxExactFloat is 2^53: below it a float holds every integer exactly.
const maxExactFloat = 1 << 53

// Decode reads one JSON value into nil, bool, int, float64, string, []any and
// map[string]any. Integers stay integers; an integral float below 2^53 becomes
// one. A number that fits neither int64 nor a finite float is a [json.Number], with all
// its digits: money is never rounded silently. Empty input is null.
func Decode(data []byte) (any, error) {
	if v, ok := read(data); ok {
		return v, nil
	}
	return decodeAny(data)
}

// read is Decode of plain JSON, in one pass and without reflection. Where ok is false
// decodeAny has to tell what is wrong, or reads it after all.
func read(data []byte) (v any, ok bool) {
	r := reader{scanner: scanner{data: data}, share: 1}
	v = r.value(0)
	return v, r.ended()
}

// Check returns the error that [Decode] would return, and makes no value.
func Check(data []byte) error {
	s := scanner{data: data}
	if s.skip(0); s.ended() {
		return nil
	}
	_, err := decodeAny(data)
	return err
}

// decodeAny is Decode of anything, with errors that say what is wrong.
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
// values to equal bytes. Decode gives the same value again: what is nested deeper than
// it reads is [ErrTooDeep].
func Encode(v any) (json.RawMessage, error) {
	if out, ok := write(v); ok {
		return out, nil
	}
	return encodeAny(v, 0)
}

// encodeAny is Encode of anything that lies so many levels further in, with errors that
// say what is wrong.
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

// large tells a float that encoding/json writes as digits alone, which would be
// read back as an integer, or refused as one that does not fit.
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

// exponents is a copy in which large floats are written with an exponent.
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

// Canonical turns whatever a decoder or an expression gave into the value set
// that Decode promises. NaN, infinities, other types and too deep nesting are
// errors. Maps and lists are changed in place where their type allows.
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
		return canonicalList(v, depth)
	case map[string]any:
		return canonicalMap(v, depth)
	default:
		return canonicalOther(v, depth)
	}
}

func canonicalList(v []any, depth int) (any, error) {
	for i, item := range v {
		c, err := canonical(item, depth+1)
		if err != nil {
			return nil, err
		}
		v[i] = c
	}
	return v, nil
}

func canonicalMap(v map[string]any, depth int) (any, error) {
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

func number(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errors.New("not a finite number")
	}
	if f == math.Trunc(f) && math.Abs(f) < maxExactFloat {
		return int(f), nil
	}
	return f, nil
}
