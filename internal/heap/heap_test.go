package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// as a process that says nothing of its own about garbage.
func unsaid(t *testing.T) {
	t.Helper()
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
}

// goal is at how many bytes of heap the collector begins.
func goal() int {
	s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}

// TestGarbageFollowsWhatIsLive, up and down: with little live it is collected less often
// than Go does by itself, which is at 4 MiB, and with much more often.
func TestGarbageFollowsWhatIsLive(t *testing.T) {
	unsaid(t)
	defer Bound()()
	settles(t, floor)
	const live = 256 << 20
	kept := make([]byte, live)
	settles(t, live+garbage(live))
	runtime.KeepAlive(kept)
	kept = nil
	settles(t, floor)
}

// settles collects until the next collection begins at about so many bytes.
func settles(t *testing.T, about int) {
	t.Helper()
	const slack = 16 << 20
	for deadline := time.Now().Add(10 * time.Second); goal() < about-slack || goal() > about+slack; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("collected at %d MiB, want about %d", goal()>>20, about>>20)
		}
	}
}

func TestGarbage(t *testing.T) {
	for live, want := range map[int]int{0: 32, 1: 33, 16: 48, 32: 64, 64: 64, 256: 128, 1024: 256, 16 << 10: 1024} {
		if got := garbage(live << 20); got != want<<20 {
			t.Errorf("%d MiB live: garbage of %d MiB, want %d", live, got>>20, want)
		}
	}
	for scanned, want := range map[int]int{0: 800, 4: 900, 16: 300, 64: 100, 256: 50, 64 << 10: leastPercent} {
		if got := percent(scanned << 20); got != want {
			t.Errorf("%d MiB: %d %%, want %d", scanned, got, want)
		}
	}
}

func TestStopBringsBackWhatWas(t *testing.T) {
	unsaid(t)
	was := debug.SetGCPercent(73)
	defer debug.SetGCPercent(was)
	stop := Bound()
	stop()
	runtime.GC()
	runtime.GC()
	stop()
	if now := debug.SetGCPercent(73); now != 73 {
		t.Errorf("%d %%", now)
	}
}

func TestWhoSetsItOtherwiseIsLeftAlone(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		unsaid(t)
		t.Setenv(name, "100")
		was := debug.SetGCPercent(73)
		stop := Bound()
		now := debug.SetGCPercent(was)
		if stop(); now != 73 {
			t.Errorf("%s: %d %%", name, now)
		}
	}
}
