// Command edda runs durable sagas, and is the tool to write, test and operate them. It sets
// the pace of the garbage collector and leaves the rest to package cli.
package main

import (
	"os"
	"runtime"
	"runtime/debug"

	"edda/cli"
)

// version is set by the linker in a release build.
var version = "dev"

func main() {
	ballast := paceCollector(os.Getenv)
	code := cli.Main(version)
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

const (
	// gcPercent is Edda's GOGC: half as much garbage as is live.
	gcPercent = 50
	// gcBallast counts as live, and is never touched, so that it takes no memory: with
	// little live the collector would else run every few megabytes.
	gcBallast = 64 << 20
)

// paceCollector has the collector run when there is garbage of half of what is live and
// 32 MiB. It does nothing where GOGC or GOMEMLIMIT is set. The caller keeps the ballast
// alive.
func paceCollector(getenv func(string) string) (ballast []byte) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return nil
	}
	debug.SetGCPercent(gcPercent)
	return make([]byte, gcBallast)
}
