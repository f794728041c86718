package effects

import (
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"edda/internal/jsonvalue"
)

// schema is the JSON Schema of an effect's payload; nil accepts everything.
type schema struct{ s *jsonschema.Schema }

// schemaName is the schema's URL in messages.
const schemaName = "mem:///schema"

func (c *compiler) schema() *schema {
	if c.m.Schema == nil {
		return nil
	}
	doc, _ := c.m.Schema.Const()
	s, err := compileSchema(doc)
	if err != nil {
		c.errorf(c.m.Schema.Pos, "schema: "+err.Error())
		return nil
	}
	return s
}

func compileSchema(doc any) (*schema, error) {
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaName, doc); err != nil {
		return nil, err
	}
	s, err := compiler.Compile(schemaName)
	if err != nil {
		return nil, err
	}
	return &schema{s}, nil
}

// noLoader keeps a manifest from reading files or the network.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s: a schema may refer only to itself", url)
}

// check returns where a payload violates the schema, without its values.
func (s *schema) check(payload any) error {
	if s == nil {
		return nil
	}
	if err := jsonvalue.ForSchema(payload); err != nil {
		return err
	}
	err := s.s.Validate(payload)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	for len(invalid.Causes) > 0 {
		invalid = invalid.Causes[0]
	}
	return fmt.Errorf("payload at /%s violates its schema: %v", strings.Join(invalid.InstanceLocation, "/"), invalid.ErrorKind.KeywordPath())
}
