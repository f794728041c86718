package manifests

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a text with a file, or writes it with -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (rewrite with -update and read the diff):\n%s", path, diff)
	}
}

// clean parses a file that may have no problems.
func clean(t *testing.T, source string) *File {
	t.Helper()
	f, ps := Parse("test.yaml", []byte(source))
	for _, p := range ps {
		t.Fatalf("unexpected: %s", p.Error())
	}
	return f
}

func TestTree(t *testing.T) {
	source, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &dumper{filled: map[string]bool{}}
	d.value("", reflect.ValueOf(*clean(t, string(source))))
	golden(t, "testdata/full.golden", d.out.Bytes())
}

func TestEveryFieldOfTheTreeIsFilled(t *testing.T) {
	source, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &dumper{filled: map[string]bool{}}
	d.value("", reflect.ValueOf(*clean(t, string(source))))
	for _, typ := range []any{
		File{}, Saga{}, Schedule{}, EventDecl{}, Upcast{}, Trigger{}, Handler{}, Let{}, Assign{}, Block{}, Case{}, Action{},
		Effect{}, Retry{}, Test{}, TestStep{}, Expect{}, Value{}, TemplatePart{}, Field{}, Duration{}, Name{}, Expr{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(typ)) {
			if name := reflect.TypeOf(typ).Name() + "." + f.Name; !f.Anonymous && len(f.Index) == 1 && !d.filled[name] && name != "Saga.Partial" { // full.yaml has no error
				t.Errorf("nothing fills %s", name)
			}
		}
	}
}

// dumper writes the leaves of a tree, one on each line, and records the fields that it saw.
type dumper struct {
	out    bytes.Buffer
	filled map[string]bool
}

func (d *dumper) value(path string, v reflect.Value) {
	switch x := v.Interface().(type) {
	case Pos:
		fmt.Fprintf(&d.out, "%s %d:%d\n", path, x.Line, x.Column)
		return
	case []byte, *File:
		return // another test checks the source
	case map[string]any:
		d.json(path, x)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		d.value(path, v.Elem())
	case reflect.Struct:
		d.fields(path, v)
	case reflect.Slice:
		for i := range v.Len() {
			d.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	default:
		d.json(path, v.Interface())
	}
}

func (d *dumper) fields(path string, v reflect.Value) {
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			name := v.Type().Field(i).Name
			d.filled[v.Type().Name()+"."+name] = true
			d.value(strings.TrimPrefix(path+"."+name, "."), f)
		}
	}
}

func (d *dumper) json(path string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte(err.Error())
	}
	fmt.Fprintf(&d.out, "%s = %s (%T)\n", path, text, v)
}

// TestProblems compares the problems of each file of testdata/problems.
func TestProblems(t *testing.T) {
	paths, err := filepath.Glob("testdata/problems/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal("no files", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, ps := Parse(filepath.Base(path), source)
			if !ps.Failed() {
				t.Error("no problem was found")
			}
			var out bytes.Buffer
			ps.Print(&out, false)
			golden(t, strings.TrimSuffix(path, ".yaml")+".golden", out.Bytes())
		})
	}
}

// TestAPartialSagaSaysSo: what cannot be read leaves a gap, and a wrong value does not.
func TestAPartialSagaSaysSo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"on: {A: {start: true, do: [{done: }]}}":      false,
		"on: {A: {start: true, do: [{doen: }]}}":      false, // read as done
		"on: {A: {start: true}}\ndeadline: 10":        false,
		"on: {A: {start: true, do: {done: }}}":        true,
		"on: {A: {start: true, do: [{nothing: }]}}":   true,
		"on: {A: {start: yes, do: [{done: }]}}":       true,
		"on: {A: {start: true, then: [{done: }]}}":    true,
		"on: {A: {start: true}, A: {do: [{done: }]}}": true,
		"key: a": true,
	} {
		if got := mustParse("saga: x\n" + text + "\n").Sagas[0].Partial; got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
