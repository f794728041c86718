package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// members are the members of one object.
type members map[string]json.RawMessage

// maxShown bounds the part of a sent value that an error repeats.
const maxShown = 80

// decode decodes the parameters, in any shape that clients send, into p. Names match exactly,
// and integers must fit.
func (m *Method) decode(raw json.RawMessage, p any) error {
	sent, err := m.shape(raw)
	if err != nil {
		return err
	}
	if err := m.camels(sent); err != nil {
		return err
	}
	if err := m.wrap(sent); err != nil {
		return err
	}
	known := members{}
	for _, f := range m.fields {
		value, ok := sent[f.name]
		if ok && kindOf(value) != "null" {
			known[f.name] = value
		} else if f.required {
			return unfit(f.name, "%s is missing", f.name)
		}
	}
	object, _ := json.Marshal(known) // values that were read from JSON
	if err := json.Unmarshal(object, p); err != nil {
		return misfit(err)
	}
	return nil
}

// camels renames parameters in camelCase, such as contextId.
func (m *Method) camels(sent members) *Error {
	for name, value := range sent {
		f, ok := m.camel(name)
		if !ok {
			continue
		}
		if own, twice := sent[f]; twice && string(own) != string(value) {
			return unfit(name, "%s says something else than %s: give one of them", name, f)
		}
		sent[f] = value
		delete(sent, name)
	}
	return nil
}

// camel returns the parameter that a name in camelCase means, unless a parameter has that
// name.
func (m *Method) camel(name string) (string, bool) {
	if _, own := m.field(name); own || name == "" || name[0] < 'a' || name[0] > 'z' || strings.ToLower(name) == name || strings.Contains(name, "_") {
		return "", false
	}
	for _, f := range m.fields {
		if strings.ReplaceAll(f.name, "_", "") == strings.ToLower(name) {
			return f.name, true
		}
	}
	return "", false
}

// positional names the parameters of a list of values, in order: the required ones and the
// method's object.
func (m *Method) positional() []string {
	var out []string
	for _, f := range m.fields {
		if f.required || f.name == m.options.Wrapper {
			out = append(out, f.name)
		}
	}
	return out
}

// shape returns the object in the shapes {…}, [{…}], {params:{…}} and [{params:…}], or makes
// one of a list of values.
func (m *Method) shape(raw json.RawMessage) (members, *Error) {
	if len(m.options.Order) > 0 && kindOf(raw) == "a list" {
		return ordered(raw, m.options.Order)
	}
	for range 4 { // a list in params in a list, at most
		switch kindOf(raw) {
		case "nothing", "null":
			return members{}, nil
		case "a list":
			var list []json.RawMessage
			if err := json.Unmarshal(raw, &list); err != nil {
				return nil, unfit("", "%v", err)
			}
			if len(list) == 0 {
				return members{}, nil
			}
			if kind := kindOf(list[0]); kind != "an object" && kind != "a list" && kind != "null" && len(m.positional()) > 0 {
				return ordered(raw, m.positional()) // such as [7, 33]
			}
			if len(list) > 1 {
				return nil, unfit("", "a list of %d parameters: want one object, %s", len(list), m.wanted())
			}
			raw = list[0]
		case "an object":
			var object members
			if err := json.Unmarshal(raw, &object); err != nil {
				return nil, unfit("", "%v", err)
			}
			inner, ok := object["params"]
			if _, own := m.field("params"); own || !ok || len(object) != 1 {
				return object, nil
			}
			raw = inner
		default:
			return nil, unfit("", "want an object, %s, got %s", m.wanted(), kindOf(raw))
		}
	}
	return nil, unfit("", "the parameters are wrapped too often: want an object, %s", m.wanted())
}

func ordered(raw json.RawMessage, order []string) (members, *Error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, unfit("", "%v", err)
	}
	if len(list) > len(order) {
		return nil, unfit("", "a list of %d parameters: want at most %d, %s", len(list), len(order), strings.Join(order, ", "))
	}
	object := members{}
	for i, value := range list {
		object[order[i]] = value
	}
	return object, nil
}

// wrap puts an object that was sent without its wrapper into it. Of a wrapped object it copies
// missing parameters, such as context_id, out. A message has a field that is named like
// its wrapper: there only an object is the wrapper.
func (m *Method) wrap(sent members) *Error {
	w := m.options.Wrapper
	if w == "" {
		return nil
	}
	value, ok := sent[w]
	f, _ := m.field(w)
	if !ok || kindOf(value) != "an object" && hasField(f.typ, w) {
		whole, err := json.Marshal(sent)
		if err != nil {
			return nil // cannot happen: it was read from JSON
		}
		sent[w] = whole
		return nil
	}
	var inner members
	if json.Unmarshal(value, &inner) != nil {
		return nil // decoding returns the error
	}
	if err := m.camels(inner); err != nil {
		return err
	}
	for _, f := range m.fields {
		if _, ok := sent[f.name]; !ok && inner[f.name] != nil {
			sent[f.name] = inner[f.name]
		}
	}
	return nil
}

func hasField(t reflect.Type, name string) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, f := range fieldsOf(t) {
		if f.name == name {
			return true
		}
	}
	return false
}

// wanted shows the parameters: {"context_id", "flow"}.
func (m *Method) wanted() string {
	var names []string
	for _, f := range m.fields {
		names = append(names, `"`+f.name+`"`)
	}
	return "{" + strings.Join(names, ", ") + "}"
}

// misfit names the field that did not fit, and what it wants and got.
func misfit(err error) *Error {
	var e *json.UnmarshalTypeError
	if !errors.As(err, &e) {
		return unfit("", "%v", err)
	}
	got := e.Value
	if len(got) > maxShown {
		got = strings.ToValidUTF8(got[:maxShown], "") + "…"
	}
	where := e.Field
	if where == "" {
		where = "the parameters"
	}
	return unfit(e.Field, "%s: want %s, got %s", where, wants(e.Type), got)
}

// wants describes a type in words of JSON.
func wants(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		highest := int64(math.MaxInt64) >> (64 - t.Bits())
		return fmt.Sprintf("a whole number from %d to %d", -highest-1, highest)
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string of base64"
		}
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a string"
}
