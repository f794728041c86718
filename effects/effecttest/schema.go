package effecttest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"edda/effects/spec"
	"edda/manifests"
)

// definition is the part of a JSON Schema that a table of fields also describes.
type definition struct {
	Ref              string `json:"$ref"`
	Type             any    // a name, or a list of them
	Properties       map[string]definition
	Required         []string
	Enum             []string
	Minimum, Maximum *int

	AdditionalProperties any
}

// Schema compares a provider's table of fields with its part of the JSON Schema that editors check
// manifests by, and holds manifests that lint accepts against the schema. It may be less strict
// than the table.
func Schema(t *testing.T, table *spec.Fields, accepted ...string) {
	t.Helper()
	text := manifests.Schema()
	var schema struct {
		Defs map[string]definition `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	compare(t, schema.Defs, table, schema.Defs[table.Name])
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("edda.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled := c.MustCompile("edda.json")
	for _, source := range accepted {
		var manifest any
		if err := yaml.Unmarshal([]byte(source), &manifest); err != nil {
			t.Fatal(err)
		}
		if err := compiled.Validate(manifest); err != nil {
			t.Errorf("the schema refuses what lint accepts: %s: %v", source, err)
		}
	}
}

func compare(t *testing.T, defs map[string]definition, table *spec.Fields, in definition) {
	t.Helper()
	var needed, properties []string
	for _, f := range table.Fields {
		if f.Needed != "" {
			needed = append(needed, f.Name)
		}
	}
	for name := range in.Properties {
		properties = append(properties, name)
	}
	slices.Sort(properties)
	if diff := cmp.Diff(slices.Sorted(slices.Values(table.Names())), properties); diff != "" {
		t.Errorf("%s: the table and the schema have other fields:\n%s", table.Name, diff)
	}
	if in.AdditionalProperties != false {
		t.Errorf("%s: the schema takes fields that the table does not have", table.Name)
	}
	if diff := cmp.Diff(needed, in.Required); diff != "" {
		t.Errorf("%s: the table and the schema require other fields:\n%s", table.Name, diff)
	}
	for _, f := range table.Fields {
		d := in.Properties[f.Name]
		if name, isRef := strings.CutPrefix(d.Ref, "#/$defs/"); isRef {
			d = defs[name]
		}
		if want := typesOf(f); f.Type != spec.Any && f.Words == nil && !cmp.Equal(want, d.Type) {
			t.Errorf("%s.%s: the schema has the type %v, the table %v", table.Name, f.Name, d.Type, want)
		}
		if f.Words != nil && !cmp.Equal(f.Words, d.Enum) {
			t.Errorf("%s.%s: the schema has the words %q, the table %q", table.Name, f.Name, d.Enum, f.Words)
		}
		if f.Type == spec.Whole && (d.Minimum == nil || *d.Minimum != f.Min || d.Maximum == nil || *d.Maximum != f.Max) {
			t.Errorf("%s.%s: the schema has other bounds than the table's %d to %d", table.Name, f.Name, f.Min, f.Max)
		}
		if f.Of != nil && f.Type == spec.Map {
			compare(t, defs, f.Of, d)
		}
	}
}

// typesOf returns the types of a field as JSON Schema lists them: an expression is a string.
func typesOf(f spec.Field) any {
	if f.Literal || f.Type == spec.Text {
		return string(f.Type)
	}
	return []any{string(f.Type), "string"}
}
