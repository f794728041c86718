package edda_test

import (
	"os"
	"strings"
	"testing"

	"edda/manifests"
	"edda/saga"
)

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
