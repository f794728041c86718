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

// maxShown bounds what an error repeats of a value that was sent.
const maxShown = 80

// decode reads the parameters, in any of the shapes that clients send them in,
// into p. Names are matched exactly, and integers must fit.
func (m *Method) decode(raw json.RawMessage, p any) error {
	sent, err := m.shape(raw)
	if err != nil {
		return err
	}
	m.wrap(sent)
	known := members{}
	for _, f := range m.fields {
		value, ok := sent[f.name]
		if ok && kindOf(value) != "null" {
			known[f.name] = value
		} else if f.required {
			return unfit(f.name, "%s is missing", f.name)
		}
	}
	object, err2 := json.Marshal(known)
	if err2 != nil {
		return unfit("", "%v", err2)
	}
	if err := json.Unmarshal(object, p); err != nil {
		return misfit(err)
	}
	return nil
}

// shape finds the object among the shapes {…}, [{…}], {params:{…}}, [{params:…}],
// or makes one of a list in the method's order.
func (m *Method) shape(raw json.RawMessage) (members, *Error) {
	if len(m.options.Order) > 0 && kindOf(raw) == "a list" {
		return m.ordered(raw)
	}
	for range 4 { // a list around params around a list is as odd as it gets
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

func (m *Method) ordered(raw json.RawMessage) (members, *Error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, unfit("", "%v", err)
	}
	if len(list) > len(m.options.Order) {
		return nil, unfit("", "a list of %d parameters: want at most %d, %s", len(list), len(m.options.Order), strings.Join(m.options.Order, ", "))
	}
	object := members{}
	for i, value := range list {
		object[m.options.Order[i]] = value
	}
	return object, nil
}

// wrap puts the object that was sent without its wrapper into it, and takes
// what is missing beside the wrapper from within. A message has a text of the
// wrapper's name: only an object is the wrapper.
func (m *Method) wrap(sent members) {
	w := m.options.Wrapper
	if w == "" {
		return
	}
	value, ok := sent[w]
	f, _ := m.field(w)
	if !ok || kindOf(value) != "an object" && hasField(f.typ, w) {
		whole, err := json.Marshal(sent)
		if err != nil {
			return // it was read from JSON a moment ago
		}
		sent[w] = whole
		return
	}
	var inner members
	if json.Unmarshal(value, &inner) != nil {
		return // decoding says what is wrong with it
	}
	for _, f := range m.fields {
		if _, ok := sent[f.name]; !ok && inner[f.name] != nil {
			sent[f.name] = inner[f.name]
		}
	}
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

// wanted shows the object that the method takes: {"context_id", "flow"}.
func (m *Method) wanted() string {
	var names []string
	for _, f := range m.fields {
		names = append(names, `"`+f.name+`"`)
	}
	return "{" + strings.Join(names, ", ") + "}"
}

// misfit names the field that did not fit, what it wants, and what it got.
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

// wants describes a type to somebody who sends JSON.
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
