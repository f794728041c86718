package main

import (
	"math"
	"slices"
	"time"
)

// Latency is what some operations took, in milliseconds.
type Latency struct {
	N    int     `json:"n"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

// summarize sorts the times and takes exact quantiles by the nearest rank: the
// least time that so many of the operations did not exceed. Nil for none.
func summarize(times []time.Duration) *Latency {
	if len(times) == 0 {
		return nil
	}
	slices.Sort(times)
	return &Latency{N: len(times), P50: ms(quantile(times, 0.5)), P99: ms(quantile(times, 0.99)), P999: ms(quantile(times, 0.999)), Max: ms(times[len(times)-1])}
}

// quantile of sorted times that are not empty; q is above 0 and at most 1.
func quantile(sorted []time.Duration, q float64) time.Duration {
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9)) // 0.999*1000 is a little above 999
	return sorted[max(rank, 1)-1]
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// perSecond is a rate; 0 where no time passed.
func perSecond(n int, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}

// each spreads a total over n operations; 0 for none.
func each(total float64, n int) float64 {
	if n <= 0 {
		return 0
	}
	return total / float64(n)
}
