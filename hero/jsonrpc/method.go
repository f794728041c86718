package jsonrpc

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Method is one method of a server.
type Method struct {
	name    string
	summary string
	options MethodOptions
	params  reflect.Type
	result  reflect.Type
	fields  []field
	call    func(ctx context.Context, m *Method, params json.RawMessage) (any, error)
}

// MethodOptions describe the calls of a method.
type MethodOptions struct {
	// Wrapper names the parameter that holds the method's object: "actor" in
	// {"actor": {…}}. Callers may leave the wrapper out and send the object's fields
	// beside the other parameters.
	Wrapper string
	// Order names the parameters of a list, in order. Without it a list holds one object.
	Order []string
	// Errors lists the codes that the method answers, besides those of the envelope, for
	// the OpenRPC document.
	Errors []int
}

// field is one parameter.
type field struct {
	name     string
	required bool // it has no omitempty
	typ      reflect.Type
}

// Define makes a method of a function. The exported fields of the struct P are the
// parameters, by their JSON names. Those without omitempty are required; the fields of
// their values are not. Unknown parameters are ignored.
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

// Name returns the name by which clients call the method.
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

// validate refuses a method that cannot be called as it is described.
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
