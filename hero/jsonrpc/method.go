package jsonrpc

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Method is one method of a server: its name, its types and what it does.
type Method struct {
	name    string
	summary string
	options MethodOptions
	params  reflect.Type
	result  reflect.Type
	fields  []field
	call    func(ctx context.Context, m *Method, params json.RawMessage) (any, error)
}

// MethodOptions say how a method is called.
type MethodOptions struct {
	// Wrapper names the field of the parameters that holds the object which the
	// method is about: "actor" in {"actor": {…}}. Callers may leave it out and send
	// what is in it; the other fields are then taken from beside it.
	Wrapper string
	// Order names the fields that a list of parameters gives, one after another.
	// Without it a list holds one object.
	Order []string
	// Errors are the codes that the method answers, for the OpenRPC document;
	// those of the envelope go without saying.
	Errors []int
}

// field is one of the parameters.
type field struct {
	name     string
	required bool // it has no omitempty
	typ      reflect.Type
}

// Define makes a method of a function. P is a struct: its exported fields are
// the parameters, by their JSON names, and those without omitempty must be sent.
// What is inside of them may be left out; what P does not know is left alone.
func Define[P, R any](name, summary string, o MethodOptions, call func(ctx context.Context, p P) (R, error)) Method {
	return Method{
		name: name, summary: summary, options: o,
		params: reflect.TypeFor[P](), result: reflect.TypeFor[R](), fields: fieldsOf(reflect.TypeFor[P]()),
		call: func(ctx context.Context, m *Method, raw json.RawMessage) (any, error) {
			var p P
			if err := m.decode(raw, &p); err != nil {
				return nil, err
			}
			return call(ctx, p)
		},
	}
}

// Name is what clients call it by.
func (m Method) Name() string { return m.name }

func fieldsOf(t reflect.Type) []field {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var out []field
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		out = append(out, field{name: name, required: !optional, typ: f.Type})
	}
	return out
}

func (m *Method) field(name string) (field, bool) {
	for _, f := range m.fields {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

// validate refuses a method that could not be called as it says.
func (m *Method) validate() error {
	switch {
	case m.call == nil || m.name == "":
		return fmt.Errorf("a method without a name: make it with Define")
	case strings.HasPrefix(m.name, "rpc."):
		return fmt.Errorf("method %s: names that start with rpc. are the protocol's own", m.name)
	case m.params.Kind() != reflect.Struct:
		return fmt.Errorf("method %s: its parameters are %s, not a struct", m.name, m.params)
	}
	for _, name := range append([]string{m.options.Wrapper}, m.options.Order...) {
		if _, ok := m.field(name); !ok && name != "" {
			return fmt.Errorf("method %s: its parameters have no field %q", m.name, name)
		}
	}
	return nil
}
