package main

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
	testscript.Main(m, map[string]func(){"edda": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/scripts", UpdateScripts: *update, Setup: giveStore})
}

// giveStore puts the store of the format's test beside the script.
func giveStore(env *testscript.Env) error {
	data, err := os.ReadFile("../../store/testdata/format-v1.db")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(env.WorkDir, "format.db"), data, 0o600)
}
