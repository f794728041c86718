package main

import (
	"flag"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// update rewrites the wanted outputs of scripts.
var update = flag.Bool("update", false, "rewrite the wanted outputs of the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"edda": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/scripts", UpdateScripts: *update})
}
