package edda_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edda/manifests"
	"edda/saga"
)

// TestEveryDecisionIsInTheIndexOnce holds docs/adr/README.md against the folder.
func TestEveryDecisionIsInTheIndexOnce(t *testing.T) {
	index, err := os.ReadFile("docs/adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("docs/adr/[0-9]*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("there are no decisions", err)
	}
	if n := strings.Count(string(index), "\n| ["); n != len(pages) {
		t.Errorf("the index has %d rows for %d decisions", n, len(pages))
	}
	for _, page := range pages {
		name := filepath.Base(page)
		if strings.Count(string(index), "| ["+name[:4]+"]("+name+") |") != 1 {
			t.Errorf("%s is not in the index, or twice", name)
		}
	}
}

// TestReadmeSagaCompiles keeps the README's example true.
func TestReadmeSagaCompiles(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the README has no saga")
	}
	file, problems := manifests.Parse("README.md", []byte(text))
	if problems.Failed() {
		t.Fatal(problems)
	}
	if _, problems := saga.Compile(file.Sagas[0], saga.Options{}); len(problems) > 0 {
		t.Error(problems)
	}
}
