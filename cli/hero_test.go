package cli

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"edda/internal/realservers"
)

// The scripts of testdata/hero have a Redis and a folder of logs.
func TestHeroScripts(t *testing.T) {
	server, err := realservers.Redis(realservers.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() }) // after the scripts, which run in parallel
	testscript.Run(t, testscript.Params{Dir: "testdata/hero", UpdateScripts: *update, Setup: func(e *testscript.Env) error {
		endAtOnce(e)
		e.Setenv("EDDA_REDIS", "redis://"+server.Address())
		e.Setenv("EDDA_HERO_LOGS", filepath.Join(e.WorkDir, "logs"))
		e.Setenv("USER", "alice")
		return nil
	}})
}
