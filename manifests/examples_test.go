package manifests

import (
	"io/fs"
	"testing"
)

func TestExamplesHaveNoProblems(t *testing.T) {
	names, err := fs.Glob(Examples(), "*.yaml")
	if err != nil || len(names) < 6 {
		t.Fatalf("examples: %v, %v", names, err)
	}
	for _, name := range names {
		source, err := fs.ReadFile(Examples(), name)
		if err != nil {
			t.Fatal(err)
		}
		f, ps := Parse(name, source)
		for _, p := range ps {
			t.Errorf("%s:%d:%d: %s", name, p.Pos.Line, p.Pos.Column, p.Message)
		}
		if len(f.Sagas)+len(f.Effects) == 0 {
			t.Errorf("%s holds nothing", name)
		}
	}
}
