package saga

import (
	"os"
	"path/filepath"
	"testing"
)

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
