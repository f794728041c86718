//go:build !race

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"edda/internal/harness"
)

// root is the folder of the repository.
const root = "../.."

// version is that of the binary under test.
const version = "1.2.3-rc.1"

// binaryVariable names the binary under test for the tests.
const binaryVariable = "PACKAGED_EDDA"

// TestMain builds the binary once, as a release does.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "edda-deploy-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "edda")
	if err := harness.GoBuild("-C", root, "-ldflags", "-s -w -X main.version="+version, "-o", path, "./cmd/edda"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Setenv(binaryVariable, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// edda returns the path of the binary under test.
func edda() string { return os.Getenv(binaryVariable) }

// read returns the text of a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
