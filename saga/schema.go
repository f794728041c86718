package saga

import (
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"edda/internal/jsonvalue"
	"edda/manifests"
)

// schema compiles a JSON Schema of a manifest. It may not refer to other documents, because the
// core reads no file and no network.
func (c *compiler) schema(v *manifests.Value, what string) *jsonschema.Schema {
	if v == nil {
		return nil
	}
	doc, _ := v.Const() // the parser has read it as a literal
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(jsonschema.SchemeURLLoader{})
	const name = "schema.json"
	if err := compiler.AddResource(name, doc); err != nil {
		c.errorf(v.Pos, "schema of %s: %s", what, oneLine(err))
		return nil
	}
	s, err := compiler.Compile(name)
	if err != nil {
		c.errorf(v.Pos, "schema of %s: %s", what, oneLine(err))
		return nil
	}
	return s
}

func validate(s *jsonschema.Schema, v any) error {
	if s == nil {
		return nil
	}
	if err := jsonvalue.ForSchema(v); err != nil {
		return schemaError{err.Error()}
	}
	if err := s.Validate(v); err != nil {
		return schemaError{oneLine(err)}
	}
	return nil
}

type schemaError struct{ text string }

func (e schemaError) Error() string { return e.text }

// oneLine puts the validator's report on one line without its headings, because the leaves name
// the errors.
func oneLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	var leaves []string
	for _, line := range lines[min(1, len(lines)-1):] {
		if !strings.HasSuffix(line, "Of' failed") {
			leaves = append(leaves, strings.TrimLeft(line, "- "))
		}
	}
	return strings.Join(leaves, "; ")
}
