package cli

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"edda/internal/testkit/natscluster"
)

// TestMain puts a command edda into the PATH, which is this binary. The binary is also a server of natscluster.
func TestMain(m *testing.M) { natscluster.Main(scripted{m}) }

// scripted runs tests that may use the command edda.
type scripted struct{ m *testing.M }

func (s scripted) Run() int {
	testscript.Main(s.m, map[string]func(){"edda": func() { os.Exit(Main("dev")) }})
	return 0
}
