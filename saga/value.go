package saga

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"edda/expression"
	"edda/internal/jsonvalue"
	"edda/manifests"
)

// value is a compiled value of a manifest.
type value struct {
	src    *manifests.Value
	expr   *expression.Program
	parts  []part
	items  []*value
	fields []field
	// sorted has the indexes of the fields in the order of their names in JSON.
	sorted []int
}

type part struct {
	text string
	expr *expression.Program
}

type field struct {
	name  string
	label []byte // the name in JSON, with its colon
	value *value
}

// eval evaluates the value to a canonical one. The result may share parts of the event, the state
// or the program: do not change it.
func (v *value) eval(sc *scope) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch v.src.Kind {
	case manifests.Expression:
		return sc.eval(v.expr)
	case manifests.Template:
		return v.text(sc)
	case manifests.List:
		out := make([]any, len(v.items))
		for i, item := range v.items {
			x, err := item.eval(sc)
			if err != nil {
				return nil, err
			}
			out[i] = x
		}
		return out, nil
	case manifests.Map:
		out := make(map[string]any, len(v.fields))
		for _, f := range v.fields {
			x, err := f.value.eval(sc)
			if err != nil {
				return nil, err
			}
			out[f.name] = x
		}
		return out, nil
	}
	return v.src.Scalar, nil
}

func (v *value) text(sc *scope) (any, error) {
	var b strings.Builder
	for _, p := range v.parts {
		if p.expr == nil {
			b.WriteString(p.text)
			continue
		}
		x, err := sc.eval(p.expr)
		if err != nil {
			return nil, err
		}
		b.WriteString(expression.Text(x))
	}
	return b.String(), sc.r.spend(expression.Written(b.Len()))
}

// json evaluates and encodes; a missing value gives no bytes.
func (v *value) json(sc *scope) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	if v.src.Kind == manifests.Map {
		return v.written(sc)
	}
	x, err := v.eval(sc)
	if err != nil {
		return nil, err
	}
	raw, err := encode(x)
	if err != nil {
		return nil, sc.r.poison("%v", err)
	}
	return raw, sc.r.spend(expression.Written(len(raw)))
}

// read evaluates the value. Reading a single member is free, because the caller pays for the bytes
// that it writes.
func (v *value) read(sc *scope) (any, error) {
	if v != nil && v.expr != nil {
		if _, _, plain := v.expr.Path(); plain {
			return sc.evalWithin(v.expr, nil)
		}
	}
	return v.eval(sc)
}

// usualPayload is the room in bytes that a payload gets before it is written.
const usualPayload = 128

// written encodes an object without building a map. It evaluates the fields in document order, and
// writes them sorted by name.
func (v *value) written(sc *scope) (json.RawMessage, error) {
	var room [8]any
	given := room[:0]
	for i := range v.fields {
		if raw, ok := sc.storedMember(v.fields[i].value); ok {
			given = append(given, raw)
			continue
		}
		x, err := v.fields[i].value.read(sc)
		if err != nil {
			return nil, err
		}
		given = append(given, x)
	}
	out := append(make([]byte, 0, usualPayload), '{')
	for n, i := range v.sorted {
		if n > 0 {
			out = append(out, ',')
		}
		f := &v.fields[i]
		out = append(out, f.label...)
		from := len(out)
		var err error
		if raw, ok := given[i].(json.RawMessage); ok {
			out = append(out, raw...)
		} else {
			out, err = jsonvalue.Append(out, given[i], 1)
		}
		switch {
		case errors.Is(err, jsonvalue.ErrTooDeep):
			return nil, sc.r.poison("%s: value is nested deeper than %d, for %q lies a level further in", f.name, jsonvalue.MaxDepth, f.name)
		case err != nil:
			return nil, sc.r.poison("%v", err)
		}
		if err := sc.r.spend(expression.Written(len(out) - from)); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// label prepares the fields for writing; the last of two with one name counts.
func (v *value) label() {
	last := map[string]int{}
	for i := range v.fields {
		f := &v.fields[i]
		name, _ := jsonvalue.Encode(f.name) // a string always encodes
		f.label = append(name, ':')
		last[f.name] = i
	}
	for _, name := range sortedKeys(last) {
		v.sorted = append(v.sorted, last[name])
	}
}

// names adds every variable the value refers to.
func (v *value) names(into map[string]bool) {
	if v == nil {
		return
	}
	addNames(into, v.expr)
	for _, p := range v.parts {
		addNames(into, p.expr)
	}
	for _, item := range v.items {
		item.names(into)
	}
	for _, f := range v.fields {
		f.value.names(into)
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func addNames(into map[string]bool, p *expression.Program) {
	if p == nil {
		return
	}
	for _, n := range p.Names() {
		into[n] = true
	}
}

// encode encodes a canonical value; null gives no bytes.
func encode(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	return jsonvalue.Encode(v)
}

// identifier converts a value to the text of a key or an id: strings and whole numbers only.
func identifier(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int:
		return strconv.Itoa(v), nil
	case json.Number:
		if text, ok := jsonvalue.Integer(v); ok {
			return text, nil
		}
	case nil:
		return "", nil
	}
	return "", fmt.Errorf("is a %s: a key is a string or a whole number", jsonvalue.TypeName(v))
}
