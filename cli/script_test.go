package cli

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// update rewrites the wanted outputs of scripts.
var update = flag.Bool("update", false, "rewrite the wanted outputs of the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"edda": func() { os.Exit(Main("dev")) }})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/scripts", UpdateScripts: *update, Setup: func(env *testscript.Env) error {
		endAtOnce(env)
		return giveStore(env)
	}})
}

// endAtOnce has the race detector not wait a second at the end of every command.
func endAtOnce(env *testscript.Env) { env.Setenv("GORACE", "atexit_sleep_ms=0") }

// giveStore puts the store of the format's test beside the script.
func giveStore(env *testscript.Env) error {
	data, err := os.ReadFile("../store/testdata/format-v4.db")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(env.WorkDir, "format.db"), data, 0o600)
}
