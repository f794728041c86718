//go:build !race

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"edda/internal/realservers"
)

// TestScripts runs the scripts of testdata/scripts, each beside the store of the format's test.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/scripts", UpdateScripts: *update, Setup: func(env *testscript.Env) error {
		data, err := os.ReadFile("../store/testdata/format-v4.db")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(env.WorkDir, "format.db"), data, 0o600)
	}})
}

// TestHeroScripts runs the scripts of testdata/hero, which have a Redis and a folder of logs.
func TestHeroScripts(t *testing.T) {
	server, err := realservers.Redis(realservers.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() }) // after the scripts, which run in parallel
	testscript.Run(t, testscript.Params{Dir: "testdata/hero", UpdateScripts: *update, Setup: func(e *testscript.Env) error {
		e.Setenv("EDDA_REDIS", "redis://"+server.Address())
		e.Setenv("EDDA_HERO_LOGS", filepath.Join(e.WorkDir, "logs"))
		e.Setenv("USER", "alice")
		return nil
	}})
}
