//go:build linux && !race

// The race detector allocates for itself, and only Linux tells what a process
// has written: elsewhere there is nothing to compare with the baseline.

package costbudget

import (
	"flag"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is counted to "+baselineFile)

// messagesOf is not of a stage: the messages of an order in the files of the streams.
const messagesOf = "an order in the streams"

func TestNoStageBecameDearer(t *testing.T) {
	now := counts{}
	for _, s := range stages() {
		t.Run(s.name, func(t *testing.T) { now[s.name] = count(t, s) })
	}
	for _, l := range loads() {
		t.Run(l.name, func(t *testing.T) { now[l.name] = l.counted(t) })
	}
	t.Run(messagesOf, func(t *testing.T) { now[messagesOf] = inStreams(t, 512) })
	if len(now) < len(stages())+len(loads())+1 || t.Failed() {
		t.Fatal("not every stage was counted")
	}
	if *update {
		now.write(t)
		return
	}
	dearer := now.dearer(readBaseline(t))
	if len(dearer) > 0 {
		t.Errorf("stages of the straight line cost over %.0f %% more than %s says:\n  %s\n"+
			"Find out why: go test ./internal/costbudget -run '^$' -bench 'Stages/<stage>' -memprofile mem.out\n"+
			"Where it is worth it, say so in the commit that brings the new numbers: make bench-baseline",
			100*tolerance, baselineFile, strings.Join(dearer, "\n  "))
	}
}

// count is what one operation of a stage costs. Nothing is collected meanwhile
// and one goroutine runs at a time, so that pools are as full every time.
func count(t *testing.T, s stage) map[string]float64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	do, books := s.open(t, s.n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	out := map[string]float64{
		"allocs/op": float64(after.Mallocs-before.Mallocs) / float64(s.n),
		"B/op":      float64(after.TotalAlloc-before.TotalAlloc) / float64(s.n),
	}
	for unit, n := range books.per(s.n) {
		out[unit] = n
	}
	for unit, n := range out {
		out[unit] = rounded(n)
	}
	return out
}

// rounded keeps three digits: more are noise, and would show in every diff.
func rounded(n float64) float64 {
	if n == 0 {
		return 0
	}
	unit := math.Pow10(2 - int(math.Floor(math.Log10(n))))
	return math.Round(n*unit) / unit
}
