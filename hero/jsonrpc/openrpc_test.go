package jsonrpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"edda/internal/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// openRPCShape is what the OpenRPC specification, 1.3, asks of a document, as far
// as a document without references, links and examples goes.
const openRPCShape = `{
	"type": "object", "required": ["openrpc", "info", "methods"], "additionalProperties": false,
	"properties": {
		"openrpc": {"type": "string", "pattern": "^1\\.[0-3]\\.[0-9]+$"},
		"info": {"type": "object", "required": ["title", "version"], "additionalProperties": false, "properties": {
			"title": {"type": "string", "minLength": 1}, "version": {"type": "string", "minLength": 1}, "description": {"type": "string"}}},
		"methods": {"type": "array", "items": {
			"type": "object", "required": ["name", "params", "result"], "additionalProperties": false,
			"properties": {
				"name": {"type": "string", "minLength": 1}, "summary": {"type": "string"},
				"paramStructure": {"enum": ["by-name", "by-position", "either"]},
				"params": {"type": "array", "items": {"$ref": "#/$defs/content"}},
				"result": {"$ref": "#/$defs/content"},
				"errors": {"type": "array", "items": {"$ref": "#/$defs/error"}}
			}}},
		"servers": {"type": "array", "items": {"type": "object", "required": ["name", "url"], "additionalProperties": false,
			"properties": {"name": {"type": "string"}, "url": {"type": "string"}}}},
		"components": {"type": "object", "additionalProperties": false, "properties": {
			"schemas": {"type": "object", "propertyNames": {"pattern": "^[a-zA-Z0-9._-]+$"}, "additionalProperties": {"type": ["object", "boolean"]}},
			"errors": {"type": "object", "propertyNames": {"pattern": "^[a-zA-Z0-9._-]+$"}, "additionalProperties": {"$ref": "#/$defs/error"}}}}
	},
	"$defs": {"error": {"type": "object", "required": ["code", "message"], "additionalProperties": false,
			"properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "data": true}},
		"content": {"type": "object", "required": ["name", "schema"], "additionalProperties": false, "properties": {
		"name": {"type": "string", "minLength": 1}, "summary": {"type": "string"}, "description": {"type": "string"}, "required": {"type": "boolean"},
		"schema": {"type": ["object", "boolean"]}}}}
}`

func compile(t *testing.T, name, text string) *jsonschema.Schema {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	testkit.Must(t, err)
	c := jsonschema.NewCompiler()
	testkit.Must(t, c.AddResource(name, v))
	s, err := c.Compile(name)
	if err != nil {
		t.Fatalf("%s is no JSON Schema: %v", name, err)
	}
	return s
}

func valid(t *testing.T, s *jsonschema.Schema, raw []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	testkit.Must(t, err)
	return s.Validate(v)
}

// discovered is the document as a client gets it.
func discovered(t *testing.T, s *Server) (Document, []byte) {
	t.Helper()
	var r struct{ Result json.RawMessage }
	testkit.Must(t, json.Unmarshal(s.Handle(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}`)), &r))
	var d Document
	testkit.Must(t, json.Unmarshal(r.Result, &d))
	return d, r.Result
}

func TestDocumentIsOpenRPC(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	d, text := discovered(t, s)
	if err := valid(t, compile(t, "openrpc.json", openRPCShape), text); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	again, err := encode(s.OpenRPC())
	if err != nil || string(again) != string(text) {
		t.Errorf("OpenRPC() is another document, %v", err)
	}
	var names []string
	for _, m := range d.Methods {
		names = append(names, m.Name)
		seen := map[string]bool{}
		optional := false
		for _, p := range m.Params {
			if seen[p.Name] || optional && p.Required {
				t.Errorf("%s: parameter %s is there twice, or must be sent after one that need not", m.Name, p.Name)
			}
			seen[p.Name], optional = true, optional || !p.Required
			compileOf(t, m.Name, p.Schema)
		}
		compileOf(t, m.Name, m.Result.Schema)
	}
	want := []string{"flow.create", "flow.load", "message.create", "push", "none", "panics", "breaks", "waits", "nojson"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func compileOf(t *testing.T, name string, schema any) *jsonschema.Schema {
	t.Helper()
	raw, err := json.Marshal(schema)
	testkit.Must(t, err)
	return compile(t, name+".json", string(raw))
}

func TestDocumentOfAMethod(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	d, _ := discovered(t, s)
	got, err := json.MarshalIndent(d.Methods[1], "", "\t")
	testkit.Must(t, err)
	want := `{
	"name": "flow.load",
	"summary": "Load a flow",
	"paramStructure": "either",
	"params": [
		{
			"name": "params",
			"required": true,
			"schema": {
				"properties": {
					"context_id": {
						"type": "integer",
						"maximum": 4294967295,
						"minimum": 0
					},
					"id": {
						"type": "integer",
						"maximum": 4294967295,
						"minimum": 0
					}
				},
				"type": "object",
				"required": [
					"context_id",
					"id"
				]
			}
		}
	],
	"result": {
		"name": "result",
		"schema": {
			"properties": {
				"context_id": {
					"type": "integer",
					"maximum": 4294967295,
					"minimum": 0
				},
				"id": {
					"type": "integer",
					"maximum": 4294967295,
					"minimum": 0
				}
			},
			"type": "object"
		}
	},
	"errors": [
		{
			"code": -32001,
			"message": "Not found"
		}
	]
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if p := d.Methods[3].Params; len(p) != 2 || p[0].Name != "text" || !p[0].Required || p[1].Name != "wait" || p[1].Required {
		t.Errorf("push has %+v", p)
	}
}

// What the schemas allow the methods take, and what they do not the methods
// refuse: they come from the same types.
func TestSchemasAgreeWithTheMethods(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	d, _ := discovered(t, s)
	schema := compileOf(t, "flow.create", d.Methods[0].Params[0].Schema)
	for params, ok := range map[string]bool{
		`{"context_id":1,"flow":{"id":1,"jobs":[1,2],"env_vars":{"a":"b"},"retries":255}}`: true,
		`{"context_id":1,"id":7,"retries":255}`:                                            true,
		`{"context_id":1,"flow":{}}`:                                                       true,
		`{"context_id":1,"flow":{"new":1}}`:                                                true,
		`{"context_id":1,"flow":{"id":-1}}`:                                                false,
		`{"context_id":1,"flow":{"id":4294967296}}`:                                        false,
		`{"context_id":1,"flow":{"id":0.5}}`:                                               false,
		`{"context_id":1,"flow":{"id":"1"}}`:                                               false,
		`{"context_id":1,"flow":{"retries":256}}`:                                          false,
		`{"context_id":1,"flow":{"jobs":{"a":1}}}`:                                         false,
		`{"context_id":1,"flow":{"jobs":["a"]}}`:                                           false,
		`{"context_id":1,"flow":{"env_vars":{"a":1}}}`:                                     false,
		`{"context_id":1,"flow":[]}`:                                                       false,
		`{"flow":{"id":1}}`:                                                                false,
		`{"context_id":"1","flow":{"id":1,"context_id":"1"}}`:                              false,
	} {
		err := valid(t, schema, []byte(params))
		_, refused := call(t, s, "flow.create", params)
		if (err == nil) != ok || (refused == nil) != ok {
			t.Errorf("%s: schema %v, method %v", params, err, refused)
		}
	}
}
