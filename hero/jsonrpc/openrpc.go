package jsonrpc

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
)

// openRPC is the version of the specification.
const openRPC = "1.3.2"

// discover is the name of the method that answers the document.
const discover = "rpc.discover"

// Info describes a server in its OpenRPC document.
type Info struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description,omitempty"`
}

// Document is an OpenRPC document: the names, parameters and results of a server's methods.
type Document struct {
	OpenRPC    string              `json:"openrpc"`
	Info       Info                `json:"info"`
	Servers    []Address           `json:"servers,omitempty"`
	Methods    []MethodDescription `json:"methods"`
	Components Components          `json:"components"`
}

// Address is an address of a server.
type Address struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Components lists the objects and errors that methods share. The methods also contain them.
type Components struct {
	Schemas map[string]*jsonschema.Schema `json:"schemas"`
	Errors  map[string]ErrorDescription   `json:"errors"`
}

// MethodDescription is one method in a Document.
type MethodDescription struct {
	Name           string             `json:"name"`
	Summary        string             `json:"summary,omitempty"`
	ParamStructure string             `json:"paramStructure"`
	Params         []Content          `json:"params"`
	Result         Content            `json:"result"`
	Errors         []ErrorDescription `json:"errors,omitempty"`
}

// Content is a parameter or a result.
type Content struct {
	Name     string             `json:"name"`
	Summary  string             `json:"summary,omitempty"`
	Required bool               `json:"required,omitempty"`
	Schema   *jsonschema.Schema `json:"schema"`
}

// ErrorDescription is a code that a method may answer.
type ErrorDescription struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// describe returns the document of the methods, in their order.
func describe(info Info, methods []Method) Document {
	d := Document{OpenRPC: openRPC, Info: info, Methods: []MethodDescription{}, Components: Components{
		Schemas: map[string]*jsonschema.Schema{}, Errors: map[string]ErrorDescription{},
	}}
	for _, m := range methods {
		described := m.describe()
		d.Methods = append(d.Methods, described)
		if f, ok := m.field(m.options.Wrapper); ok {
			d.Components.Schemas[joined(f.name)] = schemaOf(f.typ)
		}
		for _, e := range described.Errors {
			d.Components.Errors[joined(e.Message)] = e
		}
	}
	return d
}

// joined makes a name of words: NotFound of "Not found".
func joined(words string) string {
	var out strings.Builder
	for _, w := range strings.Fields(words) {
		out.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	return out.String()
}

// ServesAt sets the server's addresses in the document. Call it before the server answers
// requests.
func (s *Server) ServesAt(addresses ...Address) error {
	s.openRPC.Servers = addresses
	var err error
	if s.document, err = encode(s.openRPC); err != nil {
		return fmt.Errorf("describe where the server is: %w", err)
	}
	return nil
}

func (m *Method) describe() MethodDescription {
	d := MethodDescription{
		Name: m.name, Summary: m.summary, ParamStructure: "either", Params: []Content{},
		Result: Content{Name: "result", Schema: schemaOf(m.result)},
	}
	for _, name := range m.options.Order {
		f, _ := m.field(name)
		d.Params = append(d.Params, Content{Name: name, Required: f.required, Schema: schemaOf(f.typ)})
	}
	if len(m.options.Order) == 0 && len(m.fields) > 0 {
		d.Params = append(d.Params, m.oneParam())
	}
	for _, code := range m.options.Errors {
		d.Errors = append(d.Errors, ErrorDescription{Code: code, Message: Words(code)})
	}
	return d
}

// oneParam describes the parameter that the original's document calls params.
func (m *Method) oneParam() Content {
	s := schemaOf(m.params)
	for _, f := range m.fields {
		if f.required && f.name != m.options.Wrapper {
			s.Required = append(s.Required, f.name)
		}
	}
	c := Content{Name: "params", Required: true, Schema: s}
	if m.options.Wrapper != "" {
		c.Summary = fmt.Sprintf("what is in %q may be sent without it", m.options.Wrapper)
	}
	return c
}

// schemaOf returns the JSON Schema of a type. As decoding does, it requires no field and
// allows others.
func schemaOf(t reflect.Type) *jsonschema.Schema {
	r := jsonschema.Reflector{
		Anonymous: true, DoNotReference: true, AllowAdditionalProperties: true, RequiredFromJSONSchemaTags: true,
		Mapper: integer,
	}
	s := r.ReflectFromType(t)
	s.Version = "" // a part of the document has none
	return s
}

// integer returns the schema of an integer type, with its bounds. nil leaves a type to the
// reflector.
func integer(t reflect.Type) *jsonschema.Schema {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		highest := uint64(math.MaxUint64) >> (64 - t.Bits())
		return &jsonschema.Schema{Type: "integer", Minimum: "0", Maximum: json.Number(fmt.Sprint(highest))}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		highest := int64(math.MaxInt64) >> (64 - t.Bits())
		return &jsonschema.Schema{Type: "integer", Minimum: json.Number(fmt.Sprint(-highest - 1)), Maximum: json.Number(fmt.Sprint(highest))}
	}
	return nil
}
