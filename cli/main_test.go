package cli

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain puts a command edda into the PATH, which is this binary.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"edda": func() { os.Exit(Main("dev")) }})
}
