package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// The collector leaves room for 32 MiB of garbage however little is live, and for half of
// what is live above that.
func TestTheCollectorIsPaced(t *testing.T) {
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	ballast := paceCollector(func(string) string { return "" })
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	live := m.HeapAlloc
	if garbage := m.NextGC - live; live < gcBallast || garbage < 32<<20 || garbage > live*3/4 {
		t.Errorf("%d bytes of garbage beside %d that are live", garbage, live)
	}
	runtime.KeepAlive(ballast)
}

func TestGOGCAndGOMEMLIMITWin(t *testing.T) {
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	for _, set := range []string{"GOGC", "GOMEMLIMIT"} {
		ballast := paceCollector(func(name string) string {
			if name == set {
				return "70"
			}
			return ""
		})
		if now := debug.SetGCPercent(100); ballast != nil || now != 100 {
			t.Errorf("%s: %d bytes of ballast and %d %%", set, len(ballast), now)
		}
	}
}
