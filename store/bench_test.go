package store

import (
	"context"
	"fmt"
	"testing"

	"edda"
)

// BenchmarkCommit writes transitions of the one-command kind, each for a new
// instance with a random-looking key, n to a change, two changes in flight.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkCommit(b, n) })
	}
}

func benchmarkCommit(b *testing.B, n int) {
	db := open(b, b.TempDir(), Options{initialMap: 1 << 30})
	flight := make(chan error, 2)
	bytes, sent := 0, 0
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		c := batch(i, n)
		bytes += c.Size()
		if sent++; sent > cap(flight) {
			if err := <-flight; err != nil {
				b.Fatal(err)
			}
			sent--
		}
		if err := db.Submit(context.Background(), c, func(err error) { flight <- err }); err != nil {
			b.Fatal(err)
		}
	}
	for range sent {
		if err := <-flight; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "transitions/s")
	b.ReportMetric(float64(bytes)/float64(b.N*n), "bytes/transition")
}

func batch(i, n int) (c Change) {
	for j := range n {
		id := uint64(i*n+j) * 0x9E3779B97F4A7C15 // scattered, and each once
		c.Transitions = append(c.Transitions, working(fmt.Sprintf("%016x", id), 1, fmt.Sprintf("c%016x", id)))
	}
	c.Checkpoints = []edda.Checkpoint{{Stream: "S", Seq: uint64(i)}}
	return c
}
