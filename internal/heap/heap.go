// Package heap says how much garbage a process may hold before it is collected: more
// than Go's own rule where little is live, and less where much is.
package heap

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// floor is what a process may hold of garbage besides as much as is live. With little
	// live the collector would else run every few megabytes, which took two fifths
	// of the processor's time of a runner of short jobs.
	floor = 32 << 20
	// enough garbage is collected at once, where at least half as much is live; beyond
	// that it grows with the root of what is live.
	enough = 64 << 20
	// leastPercent is the lowest share of what is live, however much that is.
	leastPercent = 10
)

// Bound has the collector run when there is so much garbage as [garbage] says, not when
// there is as much as is live. It does nothing for who says by GOGC or GOMEMLIMIT how
// memory is collected. Stop brings back what was.
func Bound() (stop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	k := &keeper{before: debug.SetGCPercent(percent(0))}
	k.adjust()
	k.watch()
	return k.stop
}

// garbage is how much of it is collected at once. Where much is live it is the square
// root of that times enough: who collects half as often saves half of that work at twice
// the garbage, and that root is where a process that grows pays evenly for both.
func garbage(live int) int {
	root := int(math.Sqrt(float64(live) * enough))
	return min(live+floor, max(root, enough))
}

// percent is the garbage as a share of what the collector goes through, which is how Go
// wants it. Where nothing is, it is a share of the 4 MiB that Go begins with.
func percent(scanned int) int {
	const first = 4 << 20
	return max(100*garbage(scanned)/max(scanned, first), leastPercent)
}

// keeper sets the share anew after each collection.
type keeper struct {
	before int // what the share was

	mu    sync.Mutex // guards below
	set   int
	ended bool
}

// watch is called again after the next collection: nothing holds what it makes.
func (k *keeper) watch() {
	runtime.AddCleanup(&struct{ _ [16]byte }{}, func(k *keeper) {
		if k.adjust() {
			k.watch()
		}
	}, k)
}

// adjust tells whether it is to be called again.
func (k *keeper) adjust() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return false
	}
	if want := percent(scanned()); differ(want, k.set) {
		k.set = want
		debug.SetGCPercent(want)
	}
	return true
}

// differ spares the stop of all goroutines that a setting costs, for a small change.
func differ(a, b int) bool {
	const tenth = 10
	return max(a, b)-min(a, b) > min(a, b)/tenth
}

// scanned is what the last collection found live, with what it begins from.
func scanned() (sum int) {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(s)
	for i := range s {
		sum += int(s[i].Value.Uint64())
	}
	return sum
}

func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.ended = true
		debug.SetGCPercent(k.before)
	}
}
