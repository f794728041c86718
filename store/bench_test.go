package store

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// BenchmarkCommit writes transitions of the one-command kind, each for a new
// instance with a random-looking key, n to a change, two changes in flight.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkCommit(b, n, nil) })
	}
}

// BenchmarkShip is BenchmarkCommit with a Ship that does nothing.
func BenchmarkShip(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchmarkCommit(b, n, func(uint64, []byte) func() error { return func() error { return nil } })
		})
	}
}

// BenchmarkApply applies on a replica, with a sync after each 16, what BenchmarkCommit commits.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			log, of := &shipped{}, b.TempDir()
			db := open(b, of, Options{initialMap: 1 << 30, noSync: true, Ship: log.ship})
			dir := bootstrap(b, must(db.Snapshot()))
			for i := range b.N {
				db.commit(b, batch(i, n))
			}
			db.stop()
			if err := os.RemoveAll(of); err != nil { // else the disk is busy with its pages
				b.Fatal(err)
			}
			r := openReplica(b, dir, Options{initialMap: 1 << 30})
			defer r.Close()
			bytes := 0
			b.ReportAllocs()
			b.ResetTimer()
			for i, entry := range log.entries {
				if err := r.Apply(log.first+uint64(i), entry); err != nil {
					b.Fatal(err)
				}
				if bytes += len(entry); i%16 == 0 {
					if err := r.Sync(); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "transitions/s")
			b.ReportMetric(float64(bytes)/float64(b.N*n), "bytes/transition")
		})
	}
}

// BenchmarkHash reads all rows of 100000 instances.
func BenchmarkHash(b *testing.B) {
	db := open(b, b.TempDir(), Options{initialMap: 1 << 30, noSync: true})
	for i := range 400 {
		db.commit(b, batch(i, 250))
	}
	for b.Loop() {
		if _, _, err := db.Hash(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkCommit(b *testing.B, n int, ship wal.Ship) {
	db := open(b, b.TempDir(), Options{initialMap: 1 << 30, Ship: ship})
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

// BenchmarkDueBehindFired looks at the due index while rows that have fired lie in front,
// which came into the file before: the log is not flushed meanwhile.
func BenchmarkDueBehindFired(b *testing.B) {
	for _, n := range []int{0, 1000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			rows := make([]Due, n+100)
			for i := range rows {
				rows[i] = Due{Time: noon.Add(time.Duration(i)), Key: key(fmt.Sprint(i))}
			}
			db := open(b, b.TempDir(), Options{})
			db.commit(b, Change{Arm: rows, Whole: true})
			db.flush(b)
			db.commit(b, Change{Disarm: rows[:n], Whole: true})
			b.ReportAllocs()
			for b.Loop() {
				if got, _, err := db.Due(noon.Add(time.Hour), 10); err != nil || len(got) != 10 {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}

// BenchmarkForget removes an hour with 200000 claims: in one transaction, as one
// bucket, and in portions. The longest transaction is what a commit may wait for.
func BenchmarkForget(b *testing.B) {
	b.Run("as one bucket", func(b *testing.B) {
		for range b.N {
			db := claimed(b)
			began := time.Now()
			tx := must(db.begin(true))
			if err := tx.Bucket([]byte(format.Claim)).DeleteBucket(format.HourKey(format.HourOf(noon))); err != nil {
				b.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(time.Since(began).Seconds()*1000, "longest-ms")
			db.stop()
		}
	})
	b.Run("in portions", func(b *testing.B) {
		for range b.N {
			db := claimed(b)
			var longest, sum time.Duration
			s, portions := db.Sweep(KindClaims, Cutoffs{Claims: noon.Add(2 * time.Hour)}), 0
			for !s.Done() {
				p := must(s.Next(context.Background()))
				began := time.Now()
				db.commit(b, Change{Remove: p.Removal})
				longest, sum, portions = max(longest, time.Since(began)), sum+time.Since(began), portions+1
			}
			b.ReportMetric(longest.Seconds()*1000, "longest-ms")
			b.ReportMetric(sum.Seconds()*1000/float64(portions), "mean-ms")
			db.stop()
		}
	})
}

func claimed(b *testing.B) *opened {
	b.Helper()
	db := open(b, b.TempDir(), Options{})
	for i := 0; i < 200_000; i += 2000 {
		var c Change
		for j := range 2000 {
			id := fmt.Sprintf("%016x", uint64(i+j)*0x9E3779B97F4A7C15)
			c.Claims = append(c.Claims, edda.Claim{Tenant: "acme", CommandID: id, Claimed: noon, Done: true, Result: json.RawMessage(`"` + strings.Repeat("x", 200) + `"`)})
		}
		db.commit(b, c)
	}
	return db
}

// BenchmarkCompact compacts a store of 100000 instances while commits go on: how long it takes, and how long commits wait.
func BenchmarkCompact(b *testing.B) {
	for range b.N {
		db := open(b, b.TempDir(), Options{initialMap: 1 << 30})
		for i := range 400 {
			db.commit(b, batch(i, 250))
		}
		stop, longest := make(chan struct{}), make(chan time.Duration)
		go func() {
			var most time.Duration
			for i := 0; ; i++ {
				select {
				case <-stop:
					longest <- most
					return
				default:
				}
				began := time.Now()
				db.commit(b, batch(100_000+i, 16))
				most = max(most, time.Since(began))
			}
		}()
		c, err := db.Compact(context.Background(), nil)
		if err != nil {
			b.Fatal(err)
		}
		close(stop)
		b.ReportMetric(float64((<-longest).Microseconds())/1000, "longest-commit-ms")
		b.ReportMetric(float64(c.Pause.Microseconds())/1000, "pause-ms")
		b.ReportMetric(c.Took.Seconds(), "took-s")
		b.ReportMetric(float64(c.Before)/(1<<20), "before-MiB")
		b.ReportMetric(float64(c.After)/(1<<20), "after-MiB")
		db.check(b)
		db.stop()
	}
}

// BenchmarkOpen opens a store whose log is as long as it may become, and one whose
// log is flushed.
func BenchmarkOpen(b *testing.B) {
	for _, folded := range []bool{false, true} {
		b.Run(fmt.Sprint("folded=", folded), func(b *testing.B) {
			dir := b.TempDir()
			db := open(b, dir, Options{noSync: true, flushAt: 16 << 20})
			for i := 0; db.file.Memtables().Active < 15<<20; i++ {
				db.commit(b, batch(i, 4))
			}
			if folded {
				db.flush(b)
			}
			logged := float64(db.file.Memtables().Logged) / (1 << 20)
			dir = filepath.Dir(crashed(b, db))
			db.stop()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				db := must(Open(dir, Options{noSync: true}))
				if err := db.Close(); err != nil { // which flushes nothing, as nothing was written
					b.Fatal(err)
				}
			}
			b.ReportMetric(logged, "log-MiB")
		})
	}
}

// BenchmarkLatency shows how long single commits take while others are flushed, over
// instances that lie anywhere in the file, and while nothing is.
func BenchmarkLatency(b *testing.B) {
	for name, flushAt := range map[string]int{"folding": 0, "not folding": 1 << 40} {
		b.Run(name, func(b *testing.B) {
			db := open(b, b.TempDir(), Options{initialMap: 1 << 30})
			for i := range 200 {
				db.commit(b, batch(i, 250))
			}
			dir := filepath.Dir(db.path)
			db.stop()
			db = open(b, dir, Options{initialMap: 1 << 30, flushAt: flushAt})
			before := db.file.Raw().Stats()
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for i := range b.N {
				began := time.Now()
				db.commit(b, batch(i*7919%20_000, 2))
				took = append(took, time.Since(began))
			}
			b.StopTimer()
			slices.Sort(took)
			after := db.file.Raw().Stats()
			pages := after.TxStats.Sub(&before.TxStats)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(took[len(took)*999/1000].Microseconds()), "p999-µs")
			b.ReportMetric(float64(pages.GetPageAlloc())/4096/float64(b.N), "pages/op")
		})
	}
}

// BenchmarkClaim looks a command up that nobody has claimed, as a worker does before
// every call.
func BenchmarkClaim(b *testing.B) {
	db := open(b, b.TempDir(), Options{noSync: true})
	for i := range 40 {
		var c Change
		for j := range 250 {
			c.Claims = append(c.Claims, edda.Claim{Tenant: "acme", CommandID: fmt.Sprintf("0195510d-e400-7abc-8def-%012x", i*250+j), Claimed: noon, Done: true})
		}
		db.commit(b, c)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, found, err := db.Claim("acme", "0195510d-e400-7abc-8def-ffffffffffff"); found || err != nil {
			b.Fatal(found, err)
		}
	}
}
