package manifests

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("edda.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("edda.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// yamlDocuments reads every document of a file as an editor's validator does:
// keys as strings.
func yamlDocuments(t *testing.T, source []byte) []any {
	t.Helper()
	var docs []any
	r := newReader(&File{}, chunk{})
	for _, c := range documents(source) {
		var n yaml.Node
		if err := yaml.Load(c.text, &n); err != nil {
			t.Fatal(err)
		}
		if len(n.Content) > 0 {
			docs = append(docs, plainData(r, n.Content[0]))
		}
	}
	return docs
}

func plainData(r *reader, n *yaml.Node) any {
	switch n = deref(n); n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plainData(r, n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		l := []any{}
		for _, c := range n.Content {
			l = append(l, plainData(r, c))
		}
		return l
	}
	return r.scalar(n)
}

func TestTheSchemaAcceptsWhatTheParserAccepts(t *testing.T) {
	s := compiledSchema(t)
	full, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string][]byte{"full": full}
	err = fs.WalkDir(Examples(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			sources[path], err = fs.ReadFile(Examples(), path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, source := range sources {
		for i, doc := range yamlDocuments(t, source) {
			if err := s.Validate(doc); err != nil {
				t.Errorf("%s, document %d: %v", name, i, err)
			}
		}
	}
}

// TestSchemaRefuses has one mistake in each case, which the parser refuses, too.
func TestSchemaRefuses(t *testing.T) {
	s := compiledSchema(t)
	for _, source := range []string{
		"saga: x",
		"saga: X\non: {E: }",
		"saga: x\non: {}",
		"saga: x\nkye: a\non: {E: }",
		"saga: x\nkey: =a\non: {E: }",
		"saga: x\nversion: 0\non: {E: }",
		"saga: x\ndeadline: soon\non: {E: }",
		"saga: x\nschedule: {s: {cron: x, every: 1h}}\non: {E: }",
		"saga: x\nschedule: {s: {}}\non: {E: }",
		"saga: x\non: {E: {start: sure}}",
		"saga: x\non: {E: {wen: a}}",
		"saga: x\non: {E: {when: =a}}",
		"saga: x\non: {E: {cases: {when: a}}}",
		"saga: x\non: {E: {do: [done]}}",
		"saga: x\non: {E: {do: [{efect: a}]}}",
		"saga: x\non: {E: {do: [{effect: a, command: B.C, to: x}]}}",
		"saga: x\non: {E: {do: [{effect: a, to: b}]}}",
		"saga: x\non: {E: {do: [{command: A.B}]}}",
		"saga: x\non: {E: {do: [{command: A, to: x}]}}",
		"saga: x\non: {E: {do: [{timer: t}]}}",
		"saga: x\non: {E: {do: [{timer: t, after: 1h, every: 1h}]}}",
		"saga: x\non: {E: {do: [{timer: t, after: 1 day, every: 1 day, at: '9:00'}]}}",
		"saga: x\non: {E: {do: [{timer: t, after: 1 day, zome: UTC}]}}",
		"saga: x\non: {E: {do: [{start: c}]}}",
		"saga: x\non: {E: {do: [{each: a}]}}",
		"saga: x\non: {E: {do: [{cancel: 'a[b]'}]}}",
		"saga: x\non: {E: {do: [{effect: a, undo: {event: b}}]}}",
		"saga: x\non: {E: {do: [{effect: a, undo: {effect: b, must: true}}]}}",
		"saga: x\non: {E: {do: [{effect: a, version: 0}]}}",
		"saga: x\non: {E: {do: [{effect: a, version: =event.v}]}}",
		"saga: x\non: {E: {do: [{command: A.B, to: x, version: 1}]}}",
		"saga: x\non: {E: {do: [{effect: a, undo: {effect: b, version: 1.5}}]}}",
		"saga: x\non: {E: {do: [{compensate: {command: A.B, to: x, version: 1}}]}}",
		"saga: x\non: {E: }\nevents: {E: {upcast: {one: {}}}}",
		"saga: x\non: {E: }\ntests: [{steps: []}]",
		"saga: x\non: {E: }\ntests: [{name: a, steps: [{evnt: E}]}]",
		"saga: x\non: {E: }\ntests: [{name: a, steps: [{answer: E}]}]",
		"saga: x\non: {E: }\ntests: [{name: a, steps: [{operator: retry}]}]",
		"saga: x\non: {E: }\ntests: [{name: a, steps: [{ok: s, expect: [{efect: x}]}]}]",
		"saga: x\non: {E: }\ntests: [{name: a, end: {stat: x}}]",
		"effect: e",
		"effect: e\nhttp: {}\ngrpc: {}",
		"effect: e\nhttp: {}\nok: =a",
		"effect: e\nhttp: {}\ndelivery: once",
		"effect: e\nhttp: {}\ncheck: {again: x}",
	} {
		if s.Validate(yamlDocuments(t, []byte(source))[0]) == nil {
			t.Errorf("the schema takes:\n%s", source)
		}
		if _, ps := Parse("x.yaml", []byte(source)); !ps.Failed() {
			t.Errorf("the parser takes:\n%s", source)
		}
	}
}

// TestSchemaNamesTheParsersKeys compares the keys of the schema with the parser's.
func TestSchemaNamesTheParsersKeys(t *testing.T) {
	r := newReader(&File{}, chunk{})
	for name, known := range map[string]keys{
		"saga": r.sagaKeys(&Saga{}), "effect": r.effectKeys(&Effect{}), "handler": r.handlerKeys(&Handler{}),
		"newer": r.blockKeys(&Block{}), "test": r.testKeys(&Test{}),
	} {
		if diff := cmp.Diff(slices.Sorted(maps.Keys(r.Defs[name].object().Properties)), slices.Sorted(maps.Keys(known))); diff != "" {
			t.Errorf("%s: schema and parser differ:\n%s", name, diff)
		}
	}
	for _, w := range slices.DeleteFunc(Words(), func(w string) bool { return w == "unset" }) {
		for key, read := range r.Defs["action_"+w].known(r.actionKeys(&Action{Kind: w})) {
			if read == nil {
				t.Errorf("the action %s: nothing reads %s", w, key)
			}
		}
	}
}

// TestGrammar checks the words that are read from the schema, in the order of messages.
func TestGrammar(t *testing.T) {
	g := readGrammar()
	for _, tt := range []struct {
		name, want string
		got        []string
	}{
		{"words", "effect command event message ask start seq each set unset timer cancel compensate undo done fail", g.words},
		{"providers", "http grpc smtp sql job nats", g.providers},
		{"inputs", "event signal ok failed timeout answer advance operator", g.inputs},
		{"outputs", "effect command event message ask start timer cancel fired expired revoke parked unparked held late duplicate dead incident refused guarded ignored dropped end", g.outputs},
	} {
		if got := strings.Join(tt.got, " "); got != tt.want {
			t.Errorf("%s are %s, want %s", tt.name, got, tt.want)
		}
	}
}
