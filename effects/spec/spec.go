// Package spec describes the map of a provider in an effect's manifest by a table of fields, and
// checks manifests against it. What the table cannot say is a function in it. Each provider's test
// compares its table with the JSON Schema of manifests.
package spec

import (
	"slices"

	"edda/manifests"
)

// Type is the type of a value that holds no expression, by its name in JSON Schema.
type Type string

// The types. A Text is not empty. An expression may stand for a whole Map or List, a template,
// which gives a text, may not.
const (
	Any   Type = ""
	Text  Type = "string"
	Bool  Type = "boolean"
	Whole Type = "integer"
	Map   Type = "object"
	List  Type = "array"
)

// Fields describes a map that has these fields and no others.
type Fields struct {
	Name   string // of the map, in messages
	Path   string // what stands before the name of a field in messages: "tls."
	Fields []Field
	// Check looks at what must hold between fields, after each was checked alone. It may be nil.
	Check func(c *Checker, m *manifests.Value)
}

// Field describes one field of a map. All but its name may be left out.
type Field struct {
	Name     string
	Needed   string   // what the field is for, if the map must have it
	Type     Type     // of a value without expressions
	Literal  bool     // expressions are refused
	Code     bool     // the text is code of another language, which may look like an expression
	Words    []string // the texts that there are
	Min, Max int      // the bounds of a Whole
	Says     string   // what the value is; the message about any other
	Trusted  string   // what a payload in the value would choose; it is refused there
	Of       *Fields  // what is in a Map; nil if anything is
	Items    *Field   // what each item of a List is
	// Read is how the provider reads the evaluated value. It is called with a value that holds no
	// expression, and its error is the message.
	Read func(v any) error
	// Check looks at a value of the right type in any other way.
	Check func(c *Checker, f manifests.Field)
}

// Reads makes a Read of a function that reads a value for a call.
func Reads[T any](read func(v any) (T, error)) func(v any) error {
	return func(v any) error {
		_, err := read(v)
		return err
	}
}

// Names lists the fields in the order of the table.
func (s *Fields) Names() []string {
	out := make([]string, len(s.Fields))
	for i, d := range s.Fields {
		out[i] = d.Name
	}
	return out
}

// Scope returns those of the names that expressions of a field may use. A nil receiver knows no
// field, and refuses no name.
func (s *Fields) Scope(field string, names []string) []string {
	if s == nil {
		return names
	}
	d, _ := s.find(field)
	switch {
	case d.Literal || d.Code:
		return nil
	case d.Trusted != "":
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "payload" })
	}
	return names
}

func (s *Fields) find(name string) (Field, bool) {
	i := slices.IndexFunc(s.Fields, func(d Field) bool { return d.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return s.Fields[i], true
}
