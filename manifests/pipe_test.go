package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAPipeInAFolderIsAProblem, and the other files are read.
func TestAPipeInAFolderIsAProblem(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("saga: a\nkey: event.id\non: {Go: {start: true}}\nnonsense: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "b.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	read, problems, err := ParseFiles(dir)
	if err != nil || len(read) != 2 || len(read[0].Sagas) != 1 || len(read[1].Sagas) != 0 || len(problems) != 2 {
		t.Fatalf("%d files, %v, %v", len(read), problems, err)
	}
	if text := problems[1].Error(); !problems.Failed() || !strings.Contains(text, "b.yaml:1:1: error: ") || !strings.Contains(text, "is a pipe") {
		t.Error(text)
	}
}
