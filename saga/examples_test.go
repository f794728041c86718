package saga

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"edda/manifests"
)

// TestExamples runs the tests of every embedded example.
func TestExamples(t *testing.T) {
	files := manifests.Examples()
	names, err := fs.Glob(files, "*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, name := range names {
		source, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { runManifest(t, name, source) })
	}
}

// runManifest compiles every saga of a file and runs its tests.
func runManifest(t *testing.T, name string, source []byte) {
	t.Helper()
	f, problems := manifests.Parse(name, source)
	reportProblems(t, problems)
	if f == nil {
		return
	}
	for _, m := range f.Sagas {
		results, problems := RunTests(m, Options{})
		reportProblems(t, problems)
		for _, r := range results {
			if !r.Passed {
				t.Errorf("%s:%d: %s\n%s", name, r.Pos.Line, r.Name, r.Diff)
			}
		}
	}
}

func reportProblems(t *testing.T, ps manifests.Problems) {
	t.Helper()
	for _, p := range ps {
		if !p.Warning {
			t.Errorf("%s:%d:%d: %s", p.File.Name, p.Pos.Line, p.Pos.Column, p.Message)
		}
	}
}

// TestCorpus runs the manifests of testdata. Each covers a part of the language with its expected
// outputs.
func TestCorpus(t *testing.T) {
	names, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(name), func(t *testing.T) { runManifest(t, name, source) })
	}
}

// TestMain gives the property tests the same seed in every run; -rapid.seed on
// the command line gives another.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
