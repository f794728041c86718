package retention

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"edda"
	"edda/internal/testkit"
	"edda/store"
)

// BenchmarkCommitsBesideACleanUp measures commits of 16 transitions, one after the other, without
// a clean-up and beside one over old instances, history and claims. Both take turns in one run,
// and the ratio is of that run.
func BenchmarkCommitsBesideACleanUp(b *testing.B) {
	for _, perSecond := range []int{100, 0} {
		name := "as fast as it goes"
		if perSecond > 0 {
			name = fmt.Sprint(perSecond, " a second")
		}
		b.Run(name, func(b *testing.B) { commitsBeside(b, perSecond) })
	}
}

const (
	oldInstances = 32_000
	turns        = 3
	measured     = time.Second // of each turn, alone and beside
)

func commitsBeside(b *testing.B, perSecond int) {
	for range b.N {
		db := aged(b)
		sweeper, err := New(db, func() (Settings, error) {
			return Settings{Instances: func(string, edda.Status) time.Duration { return time.Hour }, History: time.Hour, Claims: time.Hour}, nil
		}, Options{})
		if err != nil {
			b.Fatal(err)
		}
		var alone, beside []time.Duration
		removed, took := 0, time.Duration(0)
		for turn := range turns { // so that other load of the machine falls on both
			alone = append(alone, latencies(b, db, perSecond, fmt.Sprint("alone", turn), func() bool { return true })...)
			some, r := besideACleanUp(b, db, sweeper, perSecond, fmt.Sprint("beside", turn))
			beside, removed, took = append(beside, some...), removed+r.Rows(), took+r.Took
		}
		slices.Sort(alone)
		slices.Sort(beside)
		report(b, "alone", alone)
		report(b, "beside", beside)
		b.ReportMetric(float64(at(beside, 99))/float64(at(alone, 99)), "p99-ratio")
		b.ReportMetric(float64(removed)/took.Seconds(), "removed-rows/s")
	}
}

// besideACleanUp measures one turn beside a clean-up. The clean-up ends with the turn; the next
// one continues it.
func besideACleanUp(b *testing.B, db *store.DB, sweeper *Sweeper, perSecond int, name string) ([]time.Duration, Report) {
	b.Helper()
	var under atomic.Bool
	under.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan Report, 1)
	go func() {
		r, err := sweeper.Collect(ctx, Request{TrustClock: true})
		if err != nil && ctx.Err() == nil {
			b.Error(err)
		}
		under.Store(false)
		done <- r
	}()
	took := latencies(b, db, perSecond, name, under.Load)
	cancel()
	return took, <-done
}

func report(b *testing.B, when string, took []time.Duration) {
	b.ReportMetric(at(took, 50).Seconds()*1000, when+"-p50-ms")
	b.ReportMetric(at(took, 99).Seconds()*1000, when+"-p99-ms")
	b.ReportMetric(float64(len(took)), when+"-commits")
}

func at(sorted []time.Duration, percent int) time.Duration { return sorted[len(sorted)*percent/100] }

// aged returns a store with many rows that are ten days old.
func aged(b *testing.B) *store.DB {
	b.Helper()
	var behind atomic.Int64
	behind.Store(int64(10 * 24 * time.Hour))
	db, _ := testkit.OpenStore(b, b.TempDir(), store.Options{Now: func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }})
	for i := 0; i < oldInstances; i += 200 {
		var c store.Change
		for j := range 200 {
			id := fmt.Sprintf("%016x", uint64(i+j)*0x9E3779B97F4A7C15) // scattered
			c.Transitions = append(c.Transitions, finished(id, edda.StatusDone))
			c.Claims = append(c.Claims, edda.Claim{Tenant: "acme", CommandID: id, Claimed: time.Now().Add(-10 * 24 * time.Hour), Done: true})
		}
		testkit.Commit(b, db, c)
	}
	behind.Store(0)
	return db
}

// latencies commits for one turn, while on is true, and returns how long each commit took.
func latencies(b *testing.B, db *store.DB, perSecond int, name string, on func() bool) (took []time.Duration) {
	b.Helper()
	tick := time.NewTicker(time.Second / time.Duration(max(perSecond, 1)))
	defer tick.Stop()
	for n, until := 0, time.Now().Add(measured); time.Now().Before(until) && on(); n++ {
		var c store.Change
		for j := range 16 {
			id := fmt.Sprintf("%s%016x", name, uint64(n*16+j)*0x9E3779B97F4A7C15)
			t := finished(id, edda.StatusRunning)
			c.Transitions = append(c.Transitions, t)
		}
		began := time.Now()
		if err := db.Commit(context.Background(), c); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		if perSecond > 0 {
			<-tick.C
		}
	}
	slices.Sort(took)
	return took
}
